//! The program in pipes, without settings from the environment of the test.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

pub struct Program {
    command: Command,
    input: Option<Vec<u8>>,
}

pub struct Ended {
    pub code: i32,
    pub out: String,
    pub bytes: Vec<u8>,
    pub log: String,
}

/// Removes settings of the environment.
pub fn cleared(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.to_uppercase().starts_with("PEEKLOCK_") || name == "NO_COLOR" {
            command.env_remove(name);
        }
    }
    // Contexts of the user must not be used.
    command.env("XDG_CONFIG_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/client-cli-none"));
}

impl Program {
    pub fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        cleared(&mut command);
        command.args(arguments);
        Self { command, input: None }
    }

    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the program in this folder.
    pub fn within(mut self, folder: &str) -> Self {
        self.command.current_dir(folder);
        self
    }

    pub fn input(mut self, bytes: &[u8]) -> Self {
        self.input = Some(bytes.to_vec());
        self
    }

    /// Runs the program to its end.
    pub fn run(mut self) -> Ended {
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let writer = self.input.map(|bytes| {
            let mut stdin = child.stdin.take().unwrap();
            std::thread::spawn(move || {
                // The program need not read all input.
                let _unread = stdin.write_all(&bytes);
            })
        });
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        if let Some(writer) = writer {
            writer.join().unwrap();
        }
        Ended {
            code: status.code().unwrap(),
            out: String::from_utf8_lossy(&stdout).into_owned(),
            bytes: stdout,
            log: String::from_utf8(stderr).unwrap(),
        }
    }

    /// Starts the program to observe it while it runs.
    pub fn start(mut self) -> Running {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let log = BufReader::new(child.stderr.take().unwrap());
        Running { child, out: Some(out), log }
    }
}

/// A running program, killed when it is dropped.
pub struct Running {
    pub child: Child,
    out: Option<BufReader<ChildStdout>>,
    log: BufReader<std::process::ChildStderr>,
}

impl Running {
    /// The next line of standard output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line of standard error.
    pub fn log_line(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Closes the reading end of standard output, as `head` does.
    pub fn leave(&mut self) {
        self.out.take();
    }

    pub fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for the end. Returns the exit code, the unread output and standard error.
    pub fn end(mut self) -> (i32, String, String) {
        self.child.stdin.take();
        let (mut rest, mut log) = (String::new(), String::new());
        if let Some(out) = &mut self.out {
            out.read_to_string(&mut rest).unwrap();
        }
        self.log.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code().unwrap(), rest, log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
