//! Can clients be written from the documents alone? They run against the built binary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/served.rs"]
mod served;

use std::path::{Path, PathBuf};
use std::process::Command;

use served::Served;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk")
}

/// The interpreter with what the clients need; `./test` makes it beforehand.
fn python() -> String {
    let made = Command::new(folder().join("venv")).output().expect("tests/sdk/venv runs");
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "no Python environment: {errors}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// SET-21, RCV-16, SND-29: the protocol of docs/websocket-protocol.md, spoken by a client that was
/// written from it: both encodings, and resumption.
#[test]
fn a_client_written_from_the_document_speaks_websocket() {
    let served = Served::start();
    let ended = Command::new(python())
        .arg(folder().join("websocket_client.py"))
        .arg(&served.url)
        .output()
        .expect("python runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.trim() == "ok", "{said}{errors}");
}
