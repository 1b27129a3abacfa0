//! Can clients be written from the documents alone, and do those of the Azure SDKs work unchanged? They run against
//! the built binary.

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

/// Runs the scenarios of an SDK, which start brokers of their own; there are at least so many.
fn scenarios(command: &mut Command, count_min: usize) {
    let ended = command.env_remove("PYTHONPATH").output().expect("the interpreter runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    let count = said.lines().find_map(|line| line.strip_prefix("ok ")?.strip_suffix(" scenarios"));
    let count: Option<usize> = count.and_then(|count| count.parse().ok());
    assert!(ended.status.success() && count >= Some(count_min), "{said}{errors}");
}

fn azure_servicebus(flavour: &str) {
    let mut command = Command::new(python());
    command.arg(folder().join("python/run.py")).args([env!("CARGO_BIN_EXE_peeklock"), flavour]);
    scenarios(&mut command, 60);
}

/// AMQP-01, SEC-21: the package azure-servicebus of Python connects with a connection string and works unchanged, its
/// synchronous client.
#[test]
fn the_python_sdk_works_unchanged() {
    azure_servicebus("sync");
}

/// AMQP-01, SEC-21: the same, its asynchronous client.
#[test]
fn the_asynchronous_python_sdk_works_unchanged() {
    azure_servicebus("async");
}

/// AMQP-01, SEC-21: the package @azure/service-bus of JavaScript connects with a connection string and works unchanged.
#[test]
fn the_javascript_sdk_works_unchanged() {
    let made = Command::new(folder().join("js/setup")).output().expect("tests/sdk/js/setup runs");
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "no JavaScript environment: {errors}");
    let node = String::from_utf8(made.stdout).unwrap();
    let mut command = Command::new(node.trim());
    command.arg(folder().join("js/run.js")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 60);
}

/// Runs the scenarios of an administration client, behind TLS.
fn administer(arguments: &[&str]) {
    let mut command = Command::new(python());
    command.arg(folder().join("admin/run.py")).arg(env!("CARGO_BIN_EXE_peeklock")).args(arguments);
    scenarios(&mut command, 45);
}

/// ADM-02, ADM-52, SEC-21: the administration client of azure-servicebus of Python works unchanged over https, whose certificate it
/// verifies.
#[test]
fn the_python_administration_client_works_unchanged() {
    administer(&["python"]);
}

/// ADM-02, ADM-52, SEC-21: that of @azure/service-bus of JavaScript does.
#[test]
fn the_javascript_administration_client_works_unchanged() {
    let made = Command::new(folder().join("js/setup")).output().expect("tests/sdk/js/setup runs");
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "no JavaScript environment: {errors}");
    administer(&["javascript", String::from_utf8(made.stdout).unwrap().trim()]);
}
