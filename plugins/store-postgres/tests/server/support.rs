//! A PostgreSQL server of its own, in a folder of the test.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peeklock_store_postgres::PostgresConfig;

/// Time for the server to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. It ends with its value.
pub struct Server {
    folder: PathBuf,
    process: Child,
    schemas: AtomicU32,
}

/// Folder of the programs of Debian's package.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("install the package postgresql");
    let newest = versions.flatten().map(|one| one.path()).max();
    newest.expect("install the package postgresql").join("bin")
}

/// The user for a server that does not run as root, as its number and the number of its group.
fn user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = user() {
        command.uid(user).gid(group);
    }
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

impl Server {
    /// Starts a server.
    pub fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pl-pg-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        if let Some((user, group)) = user() {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let data = folder.join("data");
        let made = command(&programs().join("initdb"))
            .args(["--auth=trust", "--username=peeklock", "--no-sync", "--encoding=UTF8", "-D"])
            .arg(&data)
            .status();
        assert!(made.unwrap().success(), "initdb has failed");
        let process = Self::run(&folder);
        let server = Self { folder, process, schemas: AtomicU32::new(0) };
        server.wait();
        server
    }

    fn run(folder: &Path) -> Child {
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"));
        command(&programs().join("postgres"))
            .arg("-D")
            .arg(folder.join("data"))
            .args(["-c", "listen_addresses=", "-c", "shared_buffers=64MB", "-k"])
            .arg(folder)
            .stderr(log.unwrap())
            .spawn()
            .unwrap()
    }

    /// Waits until it takes connections.
    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.sql("SELECT 1") {
            let mut log = String::new();
            fs::File::open(self.folder.join("log")).unwrap().read_to_string(&mut log).unwrap();
            assert!(Instant::now() < deadline, "the server does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, and all of its processes, as a crash does.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again after it was killed.
    pub fn restart(&mut self) {
        self.process = Self::run(&self.folder);
        self.wait();
    }

    /// Runs a statement. Returns whether it succeeded.
    pub fn sql(&self, statement: &str) -> bool {
        let ran = command(&programs().join("psql"))
            .args(["-qX", "-v", "ON_ERROR_STOP=1", "-U", "peeklock", "-d", "postgres", "-h"])
            .arg(&self.folder)
            .args(["-c", statement])
            .stderr(Stdio::null())
            .status();
        ran.unwrap().success()
    }

    /// Settings of a store in a schema of its own.
    pub fn empty_store(&self) -> PostgresConfig {
        let schema = format!("store{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        assert!(self.sql(&format!("CREATE SCHEMA {schema}")));
        let url = format!(
            "host={} user=peeklock dbname=postgres options='-c search_path={schema}'",
            self.folder.display()
        );
        PostgresConfig { url, shard_count: 4, ..PostgresConfig::default() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}
