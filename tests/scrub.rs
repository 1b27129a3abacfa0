//! `peeklock verify` finds damage, and `peeklock repair` saves everything that is readable. The
//! tests run the built program on directories of a broker.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A directory for one test.
fn place(test: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("scrub").join(test);
    if place.exists() {
        std::fs::remove_dir_all(&place).unwrap();
    }
    std::fs::create_dir_all(&place).unwrap();
    place
}

fn peeklock(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.args(arguments).current_dir(place).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
            command.env_remove(name);
        }
    }
    command
}

fn run(place: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = peeklock(place, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A broker on the subdirectory `data`; killed when it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(place: &Path) -> Self {
        let mut command = peeklock(
            place,
            &["serve", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0", "--amqp", "127.0.0.1:0"],
        );
        command.env("PEEKLOCK__JOURNAL__SEGMENT_BYTES", "1048576");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut banner = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let Some(line) = banner.next() else {
                let mut log = String::new();
                child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
                panic!("no listener in the banner: {log}");
            };
            if let Some(url) = line.unwrap().trim().strip_prefix("http ") {
                break url.trim().trim_start_matches("http://").to_owned();
            }
        };
        Self { child, address }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (address, length) = (&self.address, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (code, body)
    }

    /// Receives and deletes all messages.
    fn drain(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            match self.ask("DELETE", "/orders/messages/head?timeout=0", "") {
                (200, body) => bodies.push(body),
                (204, _) => return bodies,
                (code, answer) => panic!("{code}: {answer}"),
            }
        }
    }

    /// Stops the broker in order.
    fn stop(mut self) {
        let kill = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(kill.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn body(number: usize) -> String {
    format!("order {number:04}, two coffees")
}

/// A directory whose broker stored ten messages, delivered the first, and was stopped in order.
fn filled(test: &str) -> PathBuf {
    let place = place(test);
    let server = Server::start(&place);
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    for number in 1..=10 {
        assert_eq!(server.ask("POST", "/orders/messages", &body(number)).0, 201);
    }
    assert_eq!(server.ask("DELETE", "/orders/messages/head", ""), (200, body(1)));
    server.stop();
    place
}

const FIRST: &str = "data/segment-0000000001.log";

fn position(place: &Path, file: &str, wanted: &[u8]) -> usize {
    let bytes = std::fs::read(place.join(file)).unwrap();
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
}

fn flip(place: &Path, file: &str, at: usize) {
    let path = place.join(file);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Names and bytes of all files of the journal except the lock file, whose content differs.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let named = named.filter(|(name, path)| name != "lock" && path.is_file());
    named.map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
}

fn copies(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains(".before-repair-")).collect()
}

fn report(place: &Path) -> (i32, Value) {
    let (code, out, err) = run(place, &["verify", "--output", "json"]);
    let report = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    (code, report)
}

#[test]
fn a_sound_journal_is_left_unchanged() {
    let place = filled("sound");
    let before = files(&place.join("data"));
    let (code, out, err) = run(&place, &["verify"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.ends_with("sound\n") && out.contains("1 segment, "), "{out}");
    let (code, report) = report(&place);
    assert_eq!((code, report["sound"].as_bool()), (0, Some(true)));
    assert_eq!(report["findings"], Value::Array(Vec::new()));
    assert_eq!(files(&place.join("data")), before);
    let (code, out, _) = run(&place, &["repair"]);
    assert_eq!(code, 0);
    assert!(out.ends_with("sound: there is nothing to repair\n"), "{out}");
    assert_eq!(files(&place.join("data")), before);
    assert!(copies(&place).is_empty());
}

/// One flipped byte in the content of a message: `serve` refuses, `verify` names the message,
/// `repair` gives up only that message, and the others are served.
#[test]
fn a_damaged_message_is_given_up_and_others_are_served() {
    let place = filled("content");
    let at = position(&place, FIRST, body(7).as_bytes());
    flip(&place, FIRST, at);
    let damaged = files(&place.join("data"));

    let (code, _, err) = run(
        &place,
        &["serve", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0", "--amqp", "127.0.0.1:0"],
    );
    assert_eq!(code, 1);
    assert!(err.contains("`segment-0000000001.log` at byte "), "{err}");
    assert!(err.contains("`peeklock verify`"), "{err}");

    let (code, out, _) = run(&place, &["verify"]);
    assert_eq!(code, 3);
    assert!(out.contains("queue orders (entity 1)\n  lost      message 7\n"), "{out}");
    // The columns are aligned.
    let head = out.lines().find(|line| line.starts_with("FILE")).unwrap();
    let row = out.lines().find(|line| line.starts_with("segment-")).unwrap();
    for (name, text) in [("MEANS", "damage"), ("FINDING", "frame ")] {
        assert_eq!(head.find(name), row.find(text), "{out}");
    }
    assert!(!out.contains('\u{1b}'), "{out}");
    let (_, report) = report(&place);
    let finding = &report["findings"][0];
    assert_eq!(
        (finding["kind"].as_str(), finding["severity"].as_str()),
        (Some("frames"), Some("damage"))
    );
    let (from, bytes) = (finding["offset"].as_u64().unwrap(), finding["bytes"].as_u64().unwrap());
    assert!((from..from + bytes).contains(&(at as u64)), "{finding}");

    let (code, out, err) = run(&place, &["repair"]);
    assert_eq!(code, 2);
    assert!(err.contains("--yes"), "{err}");
    assert!(out.contains("lost      message 7"), "{out}");
    assert_eq!(files(&place.join("data")), damaged, "nothing was changed");
    assert!(copies(&place).is_empty());

    let (code, out, err) = run(&place, &["repair", "--yes"]);
    assert_eq!(code, 0, "{err}");
    let copy = &copies(&place)[0];
    assert!(out.contains(&format!("{}", copy.file_name().unwrap().display())), "{out}");
    assert_eq!(files(copy), damaged, "the copy is the directory as it was");
    assert_eq!(run(&place, &["verify"]).0, 0);

    let server = Server::start(&place);
    let expected: Vec<String> = (2..=10).filter(|number| *number != 7).map(body).collect();
    assert_eq!(server.drain(), expected);
    server.stop();
}

/// A frame with a damaged head: its records still identify its messages.
#[test]
fn a_damaged_frame_keeps_its_messages() {
    let place = filled("frame");
    let content = position(&place, FIRST, body(5).as_bytes());
    let bytes = std::fs::read(place.join(FIRST)).unwrap();
    let head = bytes[..content].windows(4).rposition(|window| window == b"PKf1").unwrap();
    // The checksum of the frame.
    flip(&place, FIRST, head + 28);
    let (code, report) = report(&place);
    assert_eq!(code, 3);
    assert_eq!(report["affected"][0]["fate"], "saved");
    assert_eq!(report["affected"][0]["sequence_numbers"], serde_json::json!([5]));
    assert_eq!(report["affected"][0]["queue"], "orders");
    let (code, out, err) = run(&place, &["repair", "--yes", "--output", "json"]);
    assert_eq!(code, 0, "{err}");
    let repaired: Value = serde_json::from_str(&out).unwrap();
    assert!(repaired["repair"]["copy"].as_str().unwrap().contains("data.before-repair-"));
    let server = Server::start(&place);
    assert_eq!(server.drain(), (2..=10).map(body).collect::<Vec<_>>());
    server.stop();
}

#[test]
fn one_damaged_header_copy_is_harmless_and_two_are_not() {
    let place = filled("header");
    flip(&place, FIRST, 20);
    let (code, report) = report(&place);
    assert_eq!((code, report["findings"][0]["kind"].as_str()), (0, Some("header-copy")));
    let both = place.join("both");
    std::fs::create_dir(&both).unwrap();
    let copied = Command::new("cp").arg("-r").arg(place.join("data")).arg(&both).status();
    assert!(copied.unwrap().success());
    assert_eq!(run(&place, &["repair", "--yes"]).0, 0);
    let (code, out, _) = run(&place, &["verify"]);
    assert!(code == 0 && out.ends_with("garbage\nsound\n"), "{out}");

    flip(&both, FIRST, 2_048 + 20);
    assert_eq!(run(&both, &["verify"]).0, 3);
    let (code, _, err) = run(&both, &["repair", "--yes"]);
    assert_eq!(code, 1);
    assert!(err.contains("segment-0000000001.log") && err.contains("backup"), "{err}");
}

#[test]
fn a_torn_end_is_reported_without_damage() {
    let place = place("torn");
    let mut server = Server::start(&place);
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    assert_eq!(server.ask("POST", "/orders/messages", &body(1)).0, 201);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    drop(server);
    // A frame after the last one, which the process might have been writing when it was killed.
    let path = place.join(FIRST);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.windows(4).rposition(|window| window == b"PKf1").unwrap();
    let field = |at: usize| last + at..last + at + 4;
    let length = u32::from_le_bytes(bytes[field(4)].try_into().unwrap()) as usize;
    let lsn = u64::from_le_bytes(bytes[last + 8..last + 16].try_into().unwrap());
    let next = last + (32 + length).next_multiple_of(8);
    let mut head = bytes[last..last + 32].to_vec();
    head[8..16].copy_from_slice(&(lsn + 1).to_le_bytes());
    bytes[next..next + 32].copy_from_slice(&head);
    std::fs::write(&path, bytes).unwrap();
    let (code, report) = report(&place);
    assert_eq!((code, report["findings"][0]["kind"].as_str()), (0, Some("unfinished-write")));
    assert_eq!(report["findings"][0]["offset"].as_u64(), Some(next as u64));
    let server = Server::start(&place);
    assert_eq!(server.drain(), [body(1)]);
    server.stop();
}

/// Each restart begins a new segment. One in the middle is removed.
#[test]
fn a_missing_segment_needs_a_decision() {
    let place = filled("missing");
    for number in 11..=12 {
        let server = Server::start(&place);
        assert_eq!(server.ask("POST", "/orders/messages", &body(number)).0, 201);
        server.stop();
    }
    let second = place.join("data/segment-0000000002.log");
    std::fs::remove_file(&second).unwrap();
    let (code, out, _) = run(&place, &["verify"]);
    assert_eq!(code, 3);
    assert!(out.contains("segment-0000000002.log") && out.contains("is missing"), "{out}");
    let (code, _, err) = run(&place, &["repair", "--yes"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("`peeklock repair --data-dir ") && err.contains(" --drop-segment 2`"),
        "{err}"
    );
    let (code, _, err) = run(&place, &["repair", "--yes", "--drop-segment", "1"]);
    assert_eq!(code, 1);
    assert!(err.contains("segment 1 can be read"), "{err}");
    let (code, _, err) = run(&place, &["repair", "--yes", "--drop-segment", "2"]);
    assert_eq!(code, 0, "{err}");
    let server = Server::start(&place);
    let expected = (2..=12).filter(|number| *number != 11).map(body).collect::<Vec<_>>();
    assert_eq!(server.drain(), expected);
    server.stop();
}

#[test]
fn a_journal_without_segments_promises_nothing() {
    let place = filled("no-segments");
    for name in files(&place.join("data")).keys().filter(|name| name.starts_with("segment-")) {
        std::fs::remove_file(place.join("data").join(name)).unwrap();
    }
    let (code, text, _) = run(&place, &["verify"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("restore the files from a backup"), "{text}");
    assert!(!text.contains("peeklock repair"), "{text}");
    let (code, _, log) = run(&place, &["repair", "--yes"]);
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("restore them from a backup"), "{log}");
}

/// A sealed segment has a side file, whose damage loses no data.
#[test]
fn a_damaged_side_file_is_harmless() {
    let place = filled("side");
    let server = Server::start(&place);
    // The side file of the first segment exists or is being written when the broker has stopped.
    assert_eq!(server.ask("POST", "/orders/messages", &body(11)).0, 201);
    server.stop();
    let side = place.join("data/segment-0000000001.idx");
    if !side.exists() {
        std::fs::write(&side, [7; 200]).unwrap();
    } else {
        flip(&place, "data/segment-0000000001.idx", 50);
    }
    let (code, report) = report(&place);
    assert_eq!((code, report["findings"][0]["kind"].as_str()), (0, Some("side-file")));
    let server = Server::start(&place);
    assert_eq!(server.drain(), (2..=11).map(body).collect::<Vec<_>>());
    server.stop();
}

#[test]
fn a_directory_in_use_or_without_a_journal_is_refused() {
    let place = filled("in-use");
    let server = Server::start(&place);
    for command in [&["verify"][..], &["repair", "--yes"]] {
        let (code, _, err) = run(&place, command);
        assert_eq!(code, 1);
        let process = format!("in use by process {}", server.child.id());
        assert!(err.contains(&process) && err.contains("stop it"), "{err}");
    }
    server.stop();
    std::fs::create_dir(place.join("empty")).unwrap();
    for directory in ["empty", "absent"] {
        for command in ["verify", "repair"] {
            let (code, _, err) = run(&place, &[command, "--data-dir", directory]);
            assert_eq!(code, 1);
            let expected = format!("error: there is no journal in `{directory}`; ");
            assert!(err.starts_with(&expected), "{err}");
        }
    }
    assert!(!place.join("absent").exists());
    assert_eq!(std::fs::read_dir(place.join("empty")).unwrap().count(), 0);
}

#[test]
fn help_has_examples_and_exit_codes() {
    let place = place("help");
    for command in ["verify", "repair"] {
        let (code, out, _) = run(&place, &[command, "--help"]);
        assert_eq!(code, 0);
        assert!(out.contains("Examples:") && out.contains("Exit codes:"), "{out}");
    }
}
