//! A broker process on loopback in its own directory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpStream;

const START_TIME_MAX: Duration = Duration::from_secs(90);
/// Clock ticks in `/proc`, the same on every Linux that Debian supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// A directory that is removed on drop.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn within(place: &Path, name: &str) -> Result<Self> {
        let path = place.join(format!("peeklock-compare-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path.canonicalize()?))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Returns an unused port.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A process with its descendants, ended on drop.
pub struct Server {
    child: Child,
    name: String,
}

impl Server {
    pub fn start(name: &str, command: &mut Command, directory: &Directory) -> Result<Self> {
        let log = File::create(directory.0.join(format!("{name}.log")))?;
        command
            .current_dir(&directory.0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Its own process group: only this program handles an interrupt at the terminal.
            .process_group(0);
        let child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// Waits until the server listens.
    pub async fn listens(&mut self, port: u16, directory: &Directory) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || started.elapsed() > START_TIME_MAX {
                let log = directory.0.join(format!("{}.log", self.name));
                bail!("{} does not listen:\n{}", self.name, fs::read_to_string(log)?);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns the CPU seconds of the process and its descendants.
    pub fn cpu(&self) -> f64 {
        let tree = tree(self.child.id());
        tree.iter().map(|id| stat(*id).map_or(0.0, |(_, cpu)| cpu)).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for id in tree(self.child.id()) {
            Command::new("kill")
                .args(["-KILL", &id.to_string()])
                .stderr(Stdio::null())
                .status()
                .ok();
        }
        self.child.wait().ok();
    }
}

/// Returns the CPU seconds of this process.
pub fn own_cpu() -> f64 {
    stat(std::process::id()).map_or(0.0, |(_, cpu)| cpu)
}

/// Returns the ids of a process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for id in ids {
        if let Some((parent, _)) = stat(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(id) = tree.get(next) {
        tree.extend(children.remove(id).unwrap_or_default());
        next += 1;
    }
    tree
}

/// Returns the parent of a process, and its CPU seconds.
fn stat(id: u32) -> Option<(u32, f64)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some((fields.get(1)?.parse().ok()?, ticks / TICKS_PER_SECOND))
}
