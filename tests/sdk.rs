//! Clients written from the documents alone work, and the Azure SDKs work unchanged. All run
//! against the built binary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/served.rs"]
mod served;
#[path = "support/set_up.rs"]
mod set_up;

use std::path::{Path, PathBuf};
use std::process::Command;

use served::Served;
use set_up::set_up;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk")
}

/// The Python interpreter with the packages of the clients; `./test` prepares it.
fn python() -> String {
    set_up("venv").expect("Python is never left out")
}

/// SET-21, RCV-16, SND-29: a client that was written from docs/reference/websocket.md uses both
/// encodings and resumption.
#[test]
fn a_client_written_from_the_document_speaks_websocket() {
    let served = Served::with(&["--ephemeral"]);
    let ended = Command::new(python())
        .arg(folder().join("websocket_client.py"))
        .arg(&served.url)
        .output()
        .expect("python runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.trim() == "ok", "{said}{errors}");
}

/// Runs the scenarios of an SDK, which start their own brokers. At least `count_min` must run.
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
    scenarios(&mut command, 105);
}

/// AMQP-01, SEC-21: the synchronous client of azure-servicebus for Python connects with a
/// connection string and works unchanged.
#[test]
fn the_python_sdk_works_unchanged() {
    azure_servicebus("sync");
}

/// AMQP-01, SEC-21: so does its asynchronous client.
#[test]
fn the_asynchronous_python_sdk_works_unchanged() {
    azure_servicebus("async");
}

/// The program that runs JavaScript.
fn node() -> String {
    set_up("js/setup").expect("JavaScript is never left out")
}

/// AMQP-01, SEC-21: the package @azure/service-bus for JavaScript connects with a connection string
/// and works unchanged.
#[test]
fn the_javascript_sdk_works_unchanged() {
    let mut command = Command::new(node());
    command.arg(folder().join("js/run.js")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 95);
}

/// AMQP-02, SET-21, ADM-02, SEC-21: Celery works unchanged over kombu's transport for Azure Service
/// Bus, which connects to ports 5671 and 443 with TLS and trusts the authorities of certifi. Its
/// example works, too.
#[test]
fn celery_works_unchanged() {
    let Some(python) = set_up("celery/setup") else { return };
    let mut command = Command::new(python);
    command.arg(folder().join("celery/run.py")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 17);
}

/// AMQP-04, AMQP-30, AMQP-36, AMQP-41, AMQP-50, AMQP-51, AMQP-60, AMQP-95, SND-18: Qpid Proton for
/// Python, driven step by step, uses features that the Azure SDKs never use: pre-settled, split and
/// aborted sends; single credits; drains; windows of one frame; refused links; invalid frames.
#[test]
fn qpid_proton_works_unchanged() {
    let mut command = Command::new(python());
    command.arg(folder().join("proton/run.py")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 42);
}

/// AMQP-01, AMQP-54, AMQP-55: the crate azservicebus for Rust, whose AMQP implementation is
/// independent, works unchanged: renewed locks and sessions, deferred messages, rules,
/// receive-and-delete.
#[test]
fn azservicebus_for_rust_works_unchanged() {
    let mut command = Command::new(set_up("rust/setup").expect("Rust is never left out"));
    command.arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 24);
}

/// Runs the scenarios of an administration client.
fn administer(arguments: &[&str]) {
    let mut command = Command::new(python());
    command.arg(folder().join("admin/run.py")).arg(env!("CARGO_BIN_EXE_peeklock")).args(arguments);
    scenarios(&mut command, 45);
}

/// ADM-02, SEC-21, LIS-05: the administration client of azure-servicebus for Python works unchanged
/// over https and verifies the certificate. It uses the port and the connection string of the
/// messaging client.
#[test]
fn the_python_administration_client_works_unchanged() {
    administer(&["python"]);
}

/// ADM-02, SEC-21: so does its asynchronous client.
#[test]
fn the_asynchronous_python_administration_client_works_unchanged() {
    administer(&["python-async"]);
}

/// ADM-02, ADM-60, LIS-05, SEC-21, SEC-24: in emulator mode it works over plain HTTP with the
/// emulator's key, over a transport of the application.
#[test]
fn the_python_administration_client_works_in_the_emulators_place() {
    administer(&["python-in-place"]);
}

/// ADM-02, LIS-05, SEC-21: so does the administration client of @azure/service-bus for JavaScript.
#[test]
fn the_javascript_administration_client_works_unchanged() {
    administer(&["javascript", &node()]);
}

/// AMQP-02, SEC-21, SEC-24, ADM-60, ADM-61, TOP-01: the Python SDK works unchanged with the
/// emulator's connection string, at the emulator's port, on the entities of its sample
/// configuration.
#[test]
fn the_emulators_string_and_sample_works_unchanged() {
    let Some(python) = set_up("emulator/setup") else { return };
    let mut command = Command::new(python);
    command.arg(folder().join("emulator/run.py")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 7);
}

/// SEC-17, SEC-18, AMQP-02: two teams, each with a policy of one right, use the SDKs for Python and
/// JavaScript unchanged with a broker on another machine, over TLS with its development authority.
#[test]
fn a_broker_off_loopback_works_unchanged() {
    let Some(python) = set_up("walk/setup") else { return };
    let mut command = Command::new(python);
    command.arg(folder().join("walk/run.py")).args([env!("CARGO_BIN_EXE_peeklock"), &node()]);
    scenarios(&mut command, 6);
}

/// Runs a suite of the program with the SDK for Go, if Go is installed.
fn go(suite: &str, count_min: usize) {
    let Some(program) = set_up("go/setup") else { return };
    let mut command = Command::new(program);
    scenarios(command.args([env!("CARGO_BIN_EXE_peeklock"), suite]), count_min);
}

/// AMQP-01, AMQP-02, AMQ-01, SEC-21: the module azservicebus for Go connects with a connection
/// string, with and without TLS, and works unchanged.
#[test]
fn the_go_sdk_works_unchanged() {
    go("sdk", 90);
}

/// ADM-02, ADM-46, SEC-21: its package admin works unchanged over https, whose certificate it verifies.
#[test]
fn the_go_administration_client_works_unchanged() {
    go("admin", 20);
}

/// Runs a suite of the program with the SDK for Java and Qpid JMS, if Java and Maven are installed.
fn java(suite: &str, count_min: usize) {
    let Some(jar) = set_up("java/setup") else { return };
    let mut command = Command::new("java");
    // The program runs for a minute, so a fast start matters.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", &jar]);
    scenarios(command.args([env!("CARGO_BIN_EXE_peeklock"), suite]), count_min);
}

/// AMQP-01, SEC-21: the library azure-messaging-servicebus for Java connects with a connection
/// string and works unchanged.
#[test]
fn the_java_sdk_works_unchanged() {
    java("azure", 105);
}

/// ADM-02, ADM-46, SEC-21: its administration client works unchanged over https, whose certificate it verifies.
#[test]
fn the_java_administration_client_works_unchanged() {
    java("admin", 20);
}

/// AMQP-08, AMQP-99, AMQP-101: Qpid JMS connects with a policy and its key and works unchanged, and
/// unsupported features are refused by name.
#[test]
fn qpid_jms_works_unchanged() {
    java("jms", 42);
}

/// AMQP-01, ADM-02, TXN-09, SEC-21: the package Azure.Messaging.ServiceBus for .NET connects with a
/// connection string and works unchanged, with its administration client, processors and
/// transactions.
#[test]
fn the_dotnet_sdk_works_unchanged() {
    let Some(program) = set_up("dotnet/setup") else { return };
    scenarios(Command::new(program).arg(env!("CARGO_BIN_EXE_peeklock")), 46);
}

/// Runs the short selection of the tests that the authors of an SDK wrote for the cloud.
fn official(language: &str, suites: &[&str], count_min: usize) {
    let Some(python) = set_up(&format!("official/setup {language}")) else { return };
    let mut command = Command::new(python);
    command.arg(folder().join("official/run.py")).arg(env!("CARGO_BIN_EXE_peeklock"));
    for suite in suites {
        command.args(["--suite", suite]);
    }
    scenarios(&mut command, count_min);
}

/// AMQP-01, AMQP-04, ADM-02, SEC-27: the live tests of azservicebus for Go and of its package
/// admin, and the tests of go-amqp, pass unchanged with tokens of an identity provider.
/// `tests/sdk/official/expected` lists expected failures.
#[test]
fn the_go_sdk_with_official_tests_works_unchanged() {
    official("go", &["go-azservicebus", "go-azservicebus-admin", "go-amqp"], 150);
}

/// AMQP-01, ADM-02, SEC-27: the live tests of azure-servicebus for Python pass unchanged,
/// synchronous, asynchronous and administration.
#[test]
fn the_python_sdk_with_official_tests_works_unchanged() {
    official("python", &["python-sync", "python-async", "python-admin"], 200);
}
