//! The program starts, reports its addresses, refuses invalid settings, and stops in order. The
//! tests run the built program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod audit;
mod configuration;
#[path = "../support/postgres.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod database;
mod declarations;
mod issuer;
mod jobs;
mod migrate;
mod postgres;
mod reference;
mod secure;
mod serving;
mod standby;
mod supervised;
#[path = "../support/wait.rs"]
mod wait;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use wait::{Limit, PATIENCE, wait_for};

const FREE_PORT: &str = "127.0.0.1:0";

/// A directory for one test, without a `peeklock.toml` unless the test writes one.
fn directory(test: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli").join(test);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// The program in that directory, without settings from the environment.
fn peeklock(test: &str, config: &str, arguments: &[&str]) -> Command {
    let directory = directory(test);
    if !config.is_empty() {
        std::fs::write(directory.join("peeklock.toml"), config).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
            command.env_remove(name);
        }
    }
    command
}

fn run(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A broker that is ready; killed when it is dropped.
struct Server {
    child: Child,
    banner: BufReader<ChildStdout>,
    read: String,
    address: String,
    /// Folder in which the broker runs. A log that is a file is in it.
    folder: PathBuf,
}

impl Server {
    /// Starts a broker and reads the banner up to the line of the HTTP listener.
    fn start(command: Command) -> Self {
        Self::start_logging_to(command, Stdio::piped())
    }

    /// Starts a broker with a file as its log, which may be large.
    fn start_logging_to(command: Command, log: Stdio) -> Self {
        let mut server = Self::spawn(command, log);
        server.read_address("http");
        server
    }

    /// Starts a broker, and reads nothing of its output.
    fn spawn(mut command: Command, log: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let banner = BufReader::new(child.stdout.take().unwrap());
        let folder = command.get_current_dir().unwrap_or(Path::new(".")).to_owned();
        Self { child, banner, read: String::new(), address: String::new(), folder }
    }

    /// The log, if it is a file.
    fn log_file(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Reads the output up to the line of this name. Returns the rest of the line. A broker that
    /// does not write it in time is killed.
    fn read_line(&mut self, name: &str) -> String {
        let limit = Limit::new(self.child.id(), PATIENCE);
        loop {
            let begin = self.read.len();
            if self.banner.read_line(&mut self.read).unwrap() == 0 {
                let mut log = self.log_file();
                if let Some(mut stderr) = self.child.stderr.take() {
                    stderr.read_to_string(&mut log).unwrap();
                }
                drop(limit);
                panic!("no line `{name}` in the banner:\n{}\n{log}", self.read);
            }
            let line = self.read[begin..].trim();
            if let Some(rest) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Reads the output up to the line of this name, and asks at its address from now on.
    fn read_address(&mut self, name: &str) {
        let url = self.read_line(name);
        let address = url.trim_start_matches("http://");
        address.trim_end_matches("/readyz").clone_into(&mut self.address);
    }

    /// URL for the commands of the program, which comes later in the banner.
    fn websocket(&mut self) -> String {
        self.read_line("websocket")
    }

    /// Sends a signal.
    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(kill.unwrap().success());
    }

    /// Stops the broker until `-CONT`. Returns when each thread has stopped: on a busy system that is
    /// later than the signal.
    fn pause(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            // The name of a thread ends with the last parenthesis.
            stat.is_ok_and(|stat| stat.rsplit_once(')').unwrap().1.starts_with(" T"))
        };
        let is_paused = || std::fs::read_dir(&tasks).unwrap().all(is_stopped).then_some(());
        wait_for(is_paused, || self.log_file());
    }

    /// Waits for the end. Returns the exit code; none if the broker had to be killed.
    fn exit_code(&mut self) -> Option<i32> {
        let _limit = Limit::new(self.child.id(), PATIENCE);
        self.child.wait().unwrap().code()
    }

    /// Sends a request. Returns the status code and the whole answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_with("", method, path, body)
    }

    /// Sends a request with additional header lines.
    fn ask_with(&self, head: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n{head}\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (code, answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "")
    }

    /// Sends a signal. Returns the exit code, all of standard output, and the log.
    fn stop(mut self, signal: &str) -> (i32, String, String) {
        self.signal(signal);
        let limit = Limit::new(self.child.id(), PATIENCE);
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        let mut out = std::mem::take(&mut self.read);
        self.banner.read_to_string(&mut out).unwrap();
        drop(limit);
        let Some(code) = self.exit_code() else {
            panic!("the broker did not stop:\n{out}\n{}{log}", self.log_file());
        };
        (code, out, log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
