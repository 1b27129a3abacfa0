//! The program on a pseudo-terminal, which is its controlling terminal, so that Ctrl-C works.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::broker::Broker;
use super::program::cleared;

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Terminal {
    child: Child,
    keys: File,
    seen: mpsc::Receiver<Vec<u8>>,
    /// All output until now.
    pub shown: String,
    /// End of the output that was already waited for.
    read: usize,
}

impl Terminal {
    /// Runs the program on a terminal with this number of columns.
    pub fn start(broker: &Broker, columns: u16, arguments: &[&str]) -> Self {
        Self::start_with(broker, columns, arguments, &[])
    }

    pub fn start_with(
        broker: &Broker,
        columns: u16,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave: OwnedFd = ioctl_tiocgptpeer(master.as_fd(), flags).unwrap();
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let mut command = Command::new("setsid");
        cleared(&mut command);
        let child = command
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_peeklock")])
            .args(arguments)
            .env("PEEKLOCK_URL", &broker.url)
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let keys = File::from(master);
        let mut screen = keys.try_clone().unwrap();
        let (tell, seen) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // When its last process ends, reading a terminal fails.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, seen, shown: String::new(), read: 0 }
    }

    /// Waits until this text appears after the previous one.
    pub fn until(&mut self, text: &str) {
        loop {
            if let Some(place) = self.shown[self.read..].find(text) {
                self.read += place + text.len();
                return;
            }
            match self.seen.recv_timeout(PATIENCE) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("`{text}` was not shown ({error}):\n{:?}", self.shown),
            }
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Sends a signal to the program, which replaced the process of `setsid`.
    pub fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for the end. Returns the exit code and all output.
    pub fn end(mut self) -> (i32, String) {
        while let Ok(bytes) = self.seen.recv_timeout(PATIENCE) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        let code = self.child.wait().unwrap().code().unwrap();
        (code, std::mem::take(&mut self.shown))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The process may have ended already. Closing the terminal ends its other processes.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
