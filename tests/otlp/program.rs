//! The built program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A directory for one test.
pub fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("otlp").join(test);
    std::fs::remove_dir_all(&directory).ok();
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn peeklock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    for (name, _) in std::env::vars_os() {
        let upper = name.to_string_lossy().to_uppercase();
        if upper.starts_with("PEEKLOCK_") || upper.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command that must end with this code. Returns its output.
pub fn run(arguments: &[&str], code: i32) -> String {
    let output = peeklock().args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    text
}

/// A broker that is ready; killed when it is dropped.
pub struct Program {
    child: Child,
    log: PathBuf,
    http: String,
    pub websocket: String,
}

impl Program {
    /// Starts a broker in memory, in this directory, with this configuration file.
    pub fn start(place: &Path, config: &str, environment: &[(&str, &str)]) -> Self {
        std::fs::write(place.join("peeklock.toml"), config).unwrap();
        let free = "127.0.0.1:0";
        let mut child = peeklock()
            .args(["serve", "--ephemeral", "--http", free, "--ws", free, "--amqp", free])
            .envs(environment.iter().copied())
            .current_dir(place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(place.join("log")).unwrap())
            .spawn()
            .unwrap();
        let banner = BufReader::new(child.stdout.take().unwrap());
        let log = place.join("log");
        let mut program = Self { child, log, http: String::new(), websocket: String::new() };
        for line in banner.lines().map_while(Result::ok) {
            if let Some(url) = line.trim().strip_prefix("http ") {
                program.http = url.trim().trim_start_matches("http://").to_owned();
            }
            if let Some(url) = line.trim().strip_prefix("websocket ") {
                program.websocket = url.trim().to_owned();
            }
            if !program.http.is_empty() && !program.websocket.is_empty() {
                return program;
            }
        }
        panic!("{}", std::fs::read_to_string(&program.log).unwrap());
    }

    /// Sends a request over HTTP. Returns the status.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> u16 {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (host, length) = (&self.http, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Stops the broker in order. Returns its log.
    pub fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        let log = std::fs::read_to_string(&self.log).unwrap();
        assert!(status.success(), "{log}");
        log
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
