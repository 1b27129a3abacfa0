//! A PostgreSQL server of its own, in a folder of the test, and sessions to it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peeklock_store_postgres::PostgresConfig;

/// Time for the server to start, and for a state to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. It ends with its value.
pub struct Server {
    folder: PathBuf,
    process: Child,
    schemas: AtomicU32,
    /// The port of its listener with TLS, if it has one.
    port: Option<u16>,
}

/// A session of `psql`, which keeps its locks until it ends.
pub struct Psql {
    process: Child,
    answers: BufReader<ChildStdout>,
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
        Self::start_with(name, None)
    }

    /// Starts a server that also listens on loopback, with a certificate and its key in PEM.
    pub fn start_with_tls(name: &str, certificate: &str, key: &str) -> Self {
        Self::start_with(name, Some((certificate, key)))
    }

    fn start_with(name: &str, tls: Option<(&str, &str)>) -> Self {
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
        let port = tls.map(|(certificate, key)| {
            let write = |name: &str, text: &str| {
                let path = data.join(name);
                fs::write(&path, text).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
                if let Some((user, group)) = user() {
                    chown(&path, Some(user), Some(group)).unwrap();
                }
            };
            write("server.crt", certificate);
            write("server.key", key);
            let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            free.local_addr().unwrap().port()
        });
        let process = Self::run(&folder, port);
        let server = Self { folder, process, schemas: AtomicU32::new(0), port };
        server.wait();
        server
    }

    fn run(folder: &Path, port: Option<u16>) -> Child {
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"));
        command(&programs().join("postgres"))
            .arg("-D")
            .arg(folder.join("data"))
            .args(["-c", "shared_buffers=64MB", "-k"])
            .arg(folder)
            .args(match port {
                Some(port) => {
                    vec![
                        "-clisten_addresses=127.0.0.1".into(),
                        "-cssl=on".into(),
                        format!("-p{port}"),
                    ]
                }
                None => vec!["-clisten_addresses=".to_owned()],
            })
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

    /// Kills it, and waits until its other processes, which notice that, have ended: until then the
    /// next server would be refused.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let data = self.folder.join("data");
        let is_here = |process: &fs::DirEntry| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|folder| folder == data)
        };
        while fs::read_dir("/proc").unwrap().flatten().any(|process| is_here(&process)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts it again after it was killed.
    pub fn restart(&mut self) {
        self.process = Self::run(&self.folder, self.port);
        self.wait();
    }

    /// The program `psql` with a connection.
    fn psql(&self) -> Command {
        let mut psql = command(&programs().join("psql"));
        psql.args(["-qXAt", "-v", "ON_ERROR_STOP=1", "-U", "peeklock", "-d", "postgres", "-h"]);
        psql.arg(&self.folder);
        if let Some(port) = self.port {
            psql.arg("-p").arg(port.to_string());
        }
        psql
    }

    /// Runs a statement. Returns whether it succeeded.
    pub fn sql(&self, statement: &str) -> bool {
        let ran = self.psql().args(["-c", statement]).stderr(Stdio::null()).status();
        ran.unwrap().success()
    }

    /// The answer to a question, as text.
    pub fn ask(&self, question: &str) -> String {
        let ran = self.psql().args(["-c", question]).stdout(Stdio::piped()).output().unwrap();
        assert!(ran.status.success(), "{question}");
        String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
    }

    /// Waits until the answer to a question is `wanted`.
    pub fn wait_for(&self, question: &str, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(question);
            if answer == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{question}: {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Changes a setting of the running server.
    pub fn set(&self, setting: &str) {
        assert!(self.sql(&format!("ALTER SYSTEM SET {setting}")));
        assert!(self.sql("SELECT pg_reload_conf()"));
    }

    /// Begins a session.
    pub fn session(&self) -> Psql {
        let mut process = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Psql { process, answers }
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

    /// As [`Self::empty_store`], over the listener with TLS.
    pub fn empty_store_on_loopback(&self) -> PostgresConfig {
        let config = self.empty_store();
        let (_, options) = config.url.split_once(" user=").unwrap();
        let url = format!("host=127.0.0.1 port={} user={options}", self.port.unwrap());
        PostgresConfig { url, ..config }
    }
}

/// The schema of a store.
pub fn schema_of(config: &PostgresConfig) -> &str {
    config.url.rsplit_once("search_path=").unwrap().1.trim_end_matches('\'')
}

impl Psql {
    /// Sends statements.
    pub fn send(&mut self, statements: &str) {
        let input = self.process.stdin.as_mut().unwrap();
        input.write_all(format!("{statements};\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Sends statements, and waits until they have run.
    pub fn run(&mut self, statements: &str) {
        self.send(&format!("{statements}; SELECT 'done'"));
        assert_eq!(self.line(), "done");
    }

    /// The next line of its answers.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.answers.read_line(&mut line).unwrap() > 0, "the session has ended");
        line.trim_end().to_owned()
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}
