//! Does whoever operates the broker learn who was refused for where he comes from (SEC-23)? His browser says no more than
//! that something failed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Requests of one page, at once.
const REQUESTS: usize = 20;

/// SEC-23: over each transport a refused Origin is told in the log, with the peer and the setting that it is missing from,
/// and not once for each request.
#[test]
fn a_refused_origin_is_in_the_log() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
            command.env_remove(name);
        }
    }
    let free = "127.0.0.1:0";
    let mut process = command
        .args(["serve", "--ephemeral", "--http", free, "--ws", free, "--amqp", free])
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut banner = BufReader::new(process.stdout.take().unwrap());
    let mut address = |prefix: &str| loop {
        let mut line = String::new();
        assert_ne!(banner.read_line(&mut line).unwrap(), 0, "the broker did not start");
        if let Some(url) = line.trim().strip_prefix(prefix) {
            let (_, address) = url.trim().split_once("://").unwrap();
            break address.trim_end_matches('/').to_owned();
        }
    };
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let asked = [
        ("http", address("http "), "/health", ""),
        ("websocket", address("websocket "), "/", upgrade),
        ("amqp", address("amqp "), "/$servicebus/websocket", upgrade),
    ];
    for (transport, address, path, more) in &asked {
        for _ in 0..REQUESTS {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let origin = "Origin: http://page.example\r\n";
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{origin}{more}\r\n").unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 403", "{transport}");
        }
    }
    let kill = Command::new("kill").arg("-TERM").arg(process.id().to_string()).status();
    assert!(kill.unwrap().success());
    let mut log = String::new();
    process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(process.wait().unwrap().success(), "{log}");
    for (transport, address, ..) in &asked {
        let setting = format!("{transport}.allowed_origins");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(&setting)).collect();
        assert!(
            (1..REQUESTS).contains(&lines.len()),
            "{} lines for {transport}:\n{log}",
            lines.len()
        );
        for line in lines {
            assert!(line.contains("WARN") && line.contains("http://page.example"), "{line}");
            assert!(line.contains("127.0.0.1:") && line.contains(address.as_str()), "{line}");
        }
    }
}
