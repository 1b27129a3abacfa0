//! The broker as a separate process, started from the command line and ended by SIGKILL or SIGTERM.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::servers::Servers;
use crate::wait::Limit;

/// Small, so that a round fills many segments.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Where a broker stores its messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    Journal,
    /// In a PostgreSQL server of the run.
    Postgres,
    /// The same, with a second broker that stands by.
    Standby,
    /// As `Standby`, with a primary and two standbys of the database.
    Trio,
    /// In memory, to show that the judge notices.
    Memory,
}

/// A fault at the end of a round. The broker is killed in each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The broker is killed.
    Broker,
    /// The database server crashes, and the broker is killed before the server starts again.
    Both,
    /// The database server crashes and starts again. The broker is killed after it has gone on.
    Server,
    /// The broker is stopped with SIGSTOP for this time, goes on, and is killed soon after. A standby
    /// may have taken over meanwhile.
    Pause(Duration),
}

impl Fault {
    /// Whether the database server crashes.
    pub fn has_crash(self) -> bool {
        matches!(self, Self::Both | Self::Server)
    }
}

/// Maximum time for a line of the output, or for the end of a process.
const STEP_MAX: Duration = Duration::from_secs(120);
/// Part of a pause that a broker lives after it.
const LIFE_AFTER_PAUSE: u32 = 16;

/// Directory of one run: the data directory and the output of the brokers.
pub struct Place {
    /// The broker that stands by.
    standby: RefCell<Option<Spawned>>,
    /// Number of brokers that have started.
    started: Cell<u32>,
    directory: PathBuf,
    storage: Storage,
    /// The servers, and the address of the database.
    database: Option<(Servers, String)>,
}

impl Place {
    /// Creates an empty directory of this name.
    pub fn new(name: &str, storage: Storage) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("durability").join(name);
        if directory.exists() {
            std::fs::remove_dir_all(&directory).unwrap();
        }
        std::fs::create_dir_all(&directory).unwrap();
        let database = match storage {
            Storage::Postgres | Storage::Standby => Some(Servers::start(name, false)),
            Storage::Trio => Some(Servers::start(name, true)),
            Storage::Journal | Storage::Memory => None,
        };
        let (standby, started) = (RefCell::default(), Cell::default());
        Self { standby, started, directory, storage, database }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn log(&self) -> PathBuf {
        self.directory.join("broker.log")
    }

    /// The last lines that brokers wrote to standard error.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Names and sizes of the files of the journal.
    pub fn files(&self) -> Vec<(String, u64)> {
        let Ok(entries) = std::fs::read_dir(self.directory.join("data")) else { return Vec::new() };
        // A file may be gone between its entry and its facts; folders belong to others.
        let files = entries.filter_map(|entry| {
            let entry = entry.unwrap();
            let facts = entry.metadata().ok();
            if facts.as_ref().is_some_and(|facts| facts.is_dir()) {
                return None;
            }
            let size = facts.map_or(0, |facts| facts.len());
            Some((entry.file_name().to_string_lossy().into_owned(), size))
        });
        let mut files: Vec<_> = files.collect();
        files.sort();
        files
    }

    /// Copies the files of the journal under this name for a later investigation.
    pub fn keep(&self, name: &str) {
        let copy = self.directory.join(name);
        std::fs::create_dir(&copy).unwrap();
        for (file, _) in self.files() {
            let from = self.directory.join("data").join(&file);
            std::fs::copy(from, copy.join(&file)).unwrap();
        }
    }

    /// Removes such a copy.
    pub fn forget(&self, name: &str) {
        std::fs::remove_dir_all(self.directory.join(name)).unwrap();
    }

    /// Removes the directory.
    pub fn remove(self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }

    /// The broker that stands by, or a new one, without waiting until it serves.
    pub fn spawn(&self) -> Spawned {
        self.standby.take().unwrap_or_else(|| self.spawn_at("127.0.0.1:0"))
    }

    /// Starts a broker that stands by, if the run has one, and waits until it does.
    ///
    /// # Errors
    /// If the process ends before.
    pub fn stand_by(&self) -> Result<(), String> {
        if self.has_standby() {
            let mut standby = self.spawn_at("127.0.0.1:0");
            standby.read_until("probes")?;
            self.standby.replace(Some(standby));
        }
        Ok(())
    }

    /// Whether a second broker stands by.
    pub fn has_standby(&self) -> bool {
        matches!(self.storage, Storage::Standby | Storage::Trio)
    }

    /// Whether the database has standbys.
    pub fn has_trio(&self) -> bool {
        self.storage == Storage::Trio
    }

    /// Kills a broker, and its database server if the fault includes it. `go_on` uses the broker
    /// after a crash of the server alone, and `end` is called just before the kill. Returns the
    /// instant of the kill.
    pub fn fail(
        &self,
        broker: Broker,
        fault: Fault,
        go_on: impl FnOnce(&Broker),
        end: &dyn Fn(),
    ) -> Instant {
        let servers = self.database.as_ref().map(|(servers, _)| servers);
        let servers = servers.filter(|_| fault.has_crash());
        if let Some(servers) = servers {
            servers.crash();
        }
        if let Fault::Pause(time) = fault {
            broker.process.signal("-STOP");
            std::thread::sleep(time);
            broker.process.signal("-CONT");
            std::thread::sleep(time / LIFE_AFTER_PAUSE);
        }
        if let Some(servers) = servers.filter(|_| fault == Fault::Server) {
            servers.recover();
            go_on(&broker);
        }
        end();
        let killed_at = Instant::now();
        broker.kill();
        if let Some(servers) = servers.filter(|_| fault == Fault::Both) {
            servers.recover();
        }
        killed_at
    }

    /// Replaces a database server that an earlier fault has left without its role.
    pub fn mend(&self) {
        if let Some((servers, _)) = &self.database {
            servers.mend();
        }
    }

    /// Starts a broker with this address for WebSocket.
    pub fn spawn_at(&self, websocket: &str) -> Spawned {
        let log: File = OpenOptions::new().append(true).create(true).open(self.log()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
                command.env_remove(name);
            }
        }
        command.args([
            "serve",
            "--http",
            "127.0.0.1:0",
            "--ws",
            websocket,
            "--amqp",
            "127.0.0.1:0",
        ]);
        match self.storage {
            Storage::Journal | Storage::Postgres => command.args(["--data-dir", "data"]),
            Storage::Standby | Storage::Trio => {
                // At most two brokers live at a time, one after the other.
                let folder = if self.started.get().is_multiple_of(2) { "even" } else { "odd" };
                command.args(["--data-dir", folder])
            }
            Storage::Memory => command.arg("--ephemeral"),
        };
        self.started.update(|started| started + 1);
        command
            .env("PEEKLOCK__JOURNAL__SEGMENT_BYTES", SEGMENT_BYTES.to_string())
            .env("PEEKLOCK__JOURNAL__FREE_BYTES_MIN", (4 * SEGMENT_BYTES).to_string())
            // A small cache, so that contents are also read from disk.
            .env("PEEKLOCK__JOURNAL__CACHE_BYTES", (2 * SEGMENT_BYTES).to_string())
            .envs(self.database.iter().flat_map(|(_, address)| {
                [
                    ("PEEKLOCK__STORE__KIND", "postgres"),
                    ("PEEKLOCK__STORE__POSTGRES__URL", address.as_str()),
                    ("PEEKLOCK__STORE__POSTGRES__SHARDS", "4"),
                    ("PEEKLOCK__CLUSTER__LEAVE_DELAY", "0s"),
                    // A small cache, so that contents are also read from the database.
                    ("PEEKLOCK__STORE__POSTGRES__CACHE_BYTES", "1048576"),
                ]
            }))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Spawned { child, output }
    }
}

/// A process that is killed when it is dropped.
pub struct Spawned {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Spawned {
    /// Waits until the broker serves.
    ///
    /// # Errors
    /// If the process ends before.
    pub fn ready(mut self) -> Result<Broker, String> {
        let address = self.read_until("http")?.trim_start_matches("http://").to_owned();
        let websocket = self.read_until("websocket")?;
        let amqp = self.read_until("amqp")?.trim_start_matches("amqp://").to_owned();
        Ok(Broker { process: self, address, websocket, amqp })
    }

    /// Reads the output up to the line of this name. Returns the rest of the line.
    ///
    /// # Errors
    /// If the process ends before. One that does not write the line in time is killed.
    fn read_until(&mut self, name: &str) -> Result<String, String> {
        let limit = Limit::new(self.child.id(), STEP_MAX);
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                drop(limit);
                let status = self.wait();
                return Err(format!("no line `{name}` from the broker: {status}"));
            }
            let rest = line.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
            if let Some(rest) = rest {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    /// Waits for the end of the process, which is killed if it does not come.
    fn wait(&mut self) -> ExitStatus {
        let _limit = Limit::new(self.child.id(), STEP_MAX);
        self.child.wait().unwrap()
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(kill.unwrap().success());
    }

    /// Kills with SIGKILL and waits for the end of the process.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the process after this time, regardless of its state.
    pub fn kill_after(self, time: Duration) {
        std::thread::sleep(time);
        self.kill();
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A broker that serves clients.
pub struct Broker {
    process: Spawned,
    pub address: String,
    /// URL of the WebSocket transport.
    pub websocket: String,
    /// Host and port of the AMQP transport.
    pub amqp: String,
}

impl Broker {
    /// Kills with SIGKILL.
    pub fn kill(self) {
        self.process.kill();
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// If the process does not end with success.
    pub fn stop(mut self) -> Result<(), String> {
        self.process.signal("-TERM");
        let status = self.process.wait();
        if status.success() { Ok(()) } else { Err(format!("the broker ended with {status}")) }
    }
}
