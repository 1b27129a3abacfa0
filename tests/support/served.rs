//! A broker process of the built binary without storage, for clients in other languages.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A broker of the built binary. It ends with the test.
pub struct Served {
    process: Child,
    /// URL of its WebSocket transport.
    pub url: String,
}

impl Served {
    /// Starts a broker with these flags, on free ports.
    pub fn with(flags: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_peeklock"))
            .args(["serve", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0"])
            .args(["--amqp", "127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let output = process.stdout.take().expect("its output");
        let url = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.trim().strip_prefix("websocket ")?.trim().to_owned()))
            .expect("the banner names the address");
        Self { process, url }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
