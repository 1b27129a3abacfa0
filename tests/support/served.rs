//! A broker process of the built binary without storage, for clients in other languages.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A broker of the built binary. It ends with the test.
pub struct Served {
    process: Child,
    /// URL of its HTTP transport.
    #[allow(dead_code, reason = "only some tests use it")]
    pub http: String,
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
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let mut address = |transport: &str| {
            let found =
                lines.find_map(|line| Some(line.trim().strip_prefix(transport)?.trim().to_owned()));
            found.expect("the banner names the address")
        };
        let (http, url) = (address("http "), address("websocket "));
        Self { process, http, url }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
