//! The program opens a data directory of version 0.1.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/served.rs"]
mod served;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use served::Served;

/// Segment size of that directory. The zeros at its end are not stored in the repository.
const SEGMENT_BYTES: u64 = 1 << 20;

/// A directory of version 0.1 after an orderly stop: a queue, a message that was abandoned once,
/// one deferred, one dead-lettered, one scheduled for 2099, and one that was completed.
fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("version-0.1");
    fs::remove_dir_all(&directory).ok();
    fs::create_dir_all(&directory).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-0.1");
    for file in ["manifest", "segment-0000000001.log"] {
        fs::copy(kept.join(file), directory.join(file)).unwrap();
    }
    let segment = fs::File::options().write(true).open(directory.join("segment-0000000001.log"));
    segment.unwrap().set_len(SEGMENT_BYTES).unwrap();
    directory
}

fn run(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_peeklock")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Number, body and state of all messages in a queue.
fn peeked(url: &str, queue: &str) -> Vec<(u64, String, String)> {
    let lines = run(&["peek", queue, "--all", "--output", "ndjson", "--url", url]);
    let messages = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    messages
        .map(|it| (it["sequenceNumber"].as_u64().unwrap(), text(&it["body"]), text(&it["state"])))
        .collect()
}

/// MSG-12, SET-35, DLQ-01: all data that version 0.1 stored is there and usable, also when the
/// directory is opened again.
#[test]
fn a_data_directory_of_version_0_1_is_opened() {
    let directory = directory();
    let place = directory.to_str().unwrap();
    run(&["verify", "--data-dir", place]);
    for _ in 0..2 {
        let served = Served::with(&["--data-dir", place]);
        let shown = run(&["queue", "show", "orders", "-o", "json", "--url", &served.url]);
        let queue: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(queue["maxDeliveryCount"], 7);
        assert_eq!(queue["requiresDuplicateDetection"], true);
        assert_eq!(queue["runtime"]["lastSequenceNumber"], 5);
        let message =
            |number: u64, body: &str, state: &str| (number, body.to_owned(), state.to_owned());
        assert_eq!(
            peeked(&served.url, "orders"),
            [
                message(1, "two coffees from before", "Active"),
                message(2, "a tea from before", "Deferred"),
                message(5, "scheduled from before", "Scheduled"),
            ]
        );
        let dead = peeked(&served.url, "orders/$DeadLetterQueue");
        assert_eq!(dead, [message(3, "a dead letter from before", "Active")]);
    }
    let served = Served::with(&["--data-dir", place]);
    run(&["send", "orders", "a tea of today", "--url", &served.url]);
    let numbers: Vec<u64> = peeked(&served.url, "orders").iter().map(|message| message.0).collect();
    assert_eq!(numbers, [1, 2, 5, 6], "numbers go on");
    let received = run(&["receive", "orders", "-o", "ndjson", "--url", &served.url]);
    let received: Value = serde_json::from_str(received.lines().next().unwrap()).unwrap();
    assert_eq!(received["deliveryCount"], 2, "it was abandoned once: {received}");
    drop(served);
    run(&["verify", "--data-dir", place]);
}
