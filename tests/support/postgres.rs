//! A PostgreSQL server of its own for a test, from Debian's package, in a folder of the test.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Clients on this machine: the role `guarded` needs a password, others only over TCP.
const CLIENTS: &str = "local all guarded scram-sha-256\n\
    local all all trust\n\
    local replication all trust\n\
    host all all all scram-sha-256\n";

/// Options of a server that listens only at the socket in its folder.
pub const OWN_SOCKET: &str = "-c listen_addresses=";

/// A running server, with the superuser `postgres`. It ends with its value.
pub struct Postgres {
    folder: PathBuf,
    /// Words before each program, which run it in another namespace, and as a user other than root.
    within: Vec<String>,
}

impl Postgres {
    /// Starts a server that listens at a socket in its folder.
    pub fn start(name: &str) -> Self {
        Self::start_within(name, Vec::new(), OWN_SOCKET)
    }

    /// Starts a server by these words before each program, with these options.
    pub fn start_within(name: &str, within: Vec<String>, options: &str) -> Self {
        let server = Self::in_empty_folder(name, within);
        let folder = &server.folder;
        let made = server
            .command("initdb")
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "-D"])
            .arg(folder.join("data"))
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb has failed");
        fs::write(folder.join("data/pg_hba.conf"), CLIENTS).unwrap();
        server.run(options);
        server
    }

    /// Starts a standby of another server, with these options.
    pub fn start_standby(name: &str, primary: &Self, options: &str) -> Self {
        let server = Self::in_empty_folder(name, Vec::new());
        server.copy(primary);
        server.run(options);
        server
    }

    fn in_empty_folder(name: &str, within: Vec<String>) -> Self {
        let name = format!("peeklock-pg-{name}-{}", std::process::id());
        let server = Self { folder: std::env::temp_dir().join(name), within };
        let folder = &server.folder;
        fs::remove_dir_all(folder).ok();
        fs::create_dir_all(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        if let Some((user, group)) = server.user() {
            chown(folder, Some(user), Some(group)).unwrap();
        }
        server
    }

    /// Replaces the data of this server, which does not run, by a copy of another one. From its next
    /// start on it follows that server.
    pub fn copy(&self, primary: &Self) {
        let data = self.folder.join("data");
        fs::remove_dir_all(&data).ok();
        let copied = self
            .command("pg_basebackup")
            .args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-U", "postgres"])
            .arg("-h")
            .arg(&primary.folder)
            .arg("-D")
            .arg(data)
            .stdout(Stdio::null())
            .status();
        assert!(copied.unwrap().success(), "pg_basebackup has failed");
    }

    /// Makes a standby the primary, and waits until it takes writes.
    pub fn promote(&self) {
        assert!(self.control(&["promote", "-w", "-s"]), "the server does not become the primary");
    }

    /// Folder with the socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Folder of the programs of the server.
    pub fn programs() -> PathBuf {
        let versions = fs::read_dir("/usr/lib/postgresql").expect("install the package postgresql");
        let newest = versions.flatten().map(|one| one.path()).max();
        newest.expect("install the package postgresql").join("bin")
    }

    /// Starts the server, with further options, and waits until it takes connections.
    pub fn run(&self, options: &str) {
        let options = format!("-k {} -c shared_buffers=64MB {options}", self.folder.display());
        let started = self
            .command("pg_ctl")
            .args(["start", "-w", "-s", "-o", &options, "-D"])
            .arg(self.folder.join("data"))
            .arg("-l")
            .arg(self.folder.join("log"))
            .stdout(Stdio::null())
            .status();
        assert!(started.unwrap().success(), "the server does not start: {}", self.log());
    }

    /// The log of the server.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Ends the server at once, as a crash does: the next start recovers.
    pub fn crash(&self) {
        assert!(self.stop("immediate"), "the server does not end");
    }

    /// Ends the server in order.
    pub fn shut_down(&self) {
        assert!(self.stop("fast"), "the server does not end");
    }

    fn stop(&self, mode: &str) -> bool {
        self.control(&["stop", "-w", "-s", "-m", mode])
    }

    /// Runs `pg_ctl` for this server. Returns whether it succeeded.
    fn control(&self, arguments: &[&str]) -> bool {
        let ran = self
            .command("pg_ctl")
            .args(arguments)
            .arg("-D")
            .arg(self.folder.join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        ran.unwrap().success()
    }

    /// Stops all processes of the server, as on a frozen machine. They go on when the result is
    /// dropped.
    pub fn freeze(&self) -> Frozen {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        let server: u32 = file.lines().next().unwrap().trim().parse().unwrap();
        let mut frozen = Frozen(vec![server]);
        frozen.signal("-STOP");
        // From then on the server starts no further process.
        wait_until_stopped(server);
        frozen.0.extend(children(server));
        frozen.signal("-STOP");
        frozen
    }

    /// Runs a statement. Returns its output.
    pub fn sql(&self, statement: &str) -> String {
        let ran = self
            .command("psql")
            .args(["-qtAX", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"])
            .arg(&self.folder)
            .args(["-c", statement])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{statement}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Makes a database that belongs to a new role of the same name. Returns its address.
    pub fn database(&self, name: &str) -> String {
        self.sql(&format!("CREATE ROLE {name} LOGIN"));
        self.sql(&format!("CREATE DATABASE {name} OWNER {name}"));
        format!("host={} user={name} dbname={name}", self.folder.display())
    }

    fn command(&self, program: &str) -> Command {
        let program = Self::programs().join(program);
        let mut command = match self.within.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        if let Some((user, group)) = self.user() {
            command.uid(user).gid(group);
        }
        // Such a server does not read the folder of the test.
        command.env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
        command
    }

    /// User and group for a server, which does not run as root.
    fn user(&self) -> Option<(u32, u32)> {
        if !self.within.is_empty() || !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = users.lines().find(|line| line.starts_with("postgres:"))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }
}

/// Processes that are stopped.
pub struct Frozen(Vec<u32>);

impl Frozen {
    fn signal(&self, signal: &str) {
        let processes = self.0.iter().map(u32::to_string);
        // A process may have ended.
        Command::new("kill").arg(signal).args(processes).stderr(Stdio::null()).status().unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// Waits until a process has stopped: on a busy machine that is later than the signal.
fn wait_until_stopped(process: u32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !facts(process).trim_start().starts_with('T') {
        assert!(Instant::now() < deadline, "the process does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// State, parent and further facts of a process; nothing if it has ended.
fn facts(process: u32) -> String {
    let facts = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program ends with the last parenthesis.
    facts.rsplit_once(')').map_or_else(String::new, |(_, facts)| facts.to_owned())
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child =
        |process: &u32| facts(*process).split_whitespace().nth(1) == Some(&*parent.to_string());
    processes.filter(is_child).collect()
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop("immediate");
        fs::remove_dir_all(&self.folder).ok();
    }
}
