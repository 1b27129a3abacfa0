//! Can clients be written from the documents alone, and do those of the Azure SDKs work unchanged? They run against
//! the built binary.

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

/// The interpreter with what the clients need; `./test` makes it beforehand.
fn python() -> String {
    set_up("venv").expect("Python is never left out")
}

/// SET-21, RCV-16, SND-29: the protocol of docs/reference/websocket.md, spoken by a client that was
/// written from it: both encodings, and resumption.
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
    scenarios(&mut command, 105);
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

/// The program to run JavaScript with.
fn node() -> String {
    set_up("js/setup").expect("JavaScript is never left out")
}

/// AMQP-01, SEC-21: the package @azure/service-bus of JavaScript connects with a connection string and works unchanged.
#[test]
fn the_javascript_sdk_works_unchanged() {
    let mut command = Command::new(node());
    command.arg(folder().join("js/run.js")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 95);
}

/// AMQP-02, SET-21, ADM-02, SEC-21: Celery works unchanged, by the transport of kombu for Azure Service Bus, which dials ports 5671 and 443 with TLS
/// and trusts what certifi lists; so does its example.
#[test]
fn celery_works_unchanged() {
    let Some(python) = set_up("celery/setup") else { return };
    let mut command = Command::new(python);
    command.arg(folder().join("celery/run.py")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 17);
}

/// AMQP-04, AMQP-30, AMQP-36, AMQP-41, AMQP-50, AMQP-51, AMQP-60, AMQP-95, SND-18: Qpid Proton for Python, turned by hand, does what the SDKs for Azure never
/// do: sends that are settled before, in pieces, or aborted; credit one by one; drains; windows of one frame; links that are refused; frames that make no sense.
#[test]
fn qpid_proton_works_unchanged() {
    let mut command = Command::new(python());
    command.arg(folder().join("proton/run.py")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 42);
}

/// AMQP-01, AMQP-54, AMQP-55: the crate azservicebus for Rust, whose AMQP nobody here wrote, works unchanged: locks and sessions that are renewed, deferred
/// messages, rules, what is received for good.
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

/// ADM-02, SEC-21, LIS-05: the administration client of azure-servicebus of Python works unchanged over https, whose certificate it
/// verifies, at the port and with the string of the client for messages.
#[test]
fn the_python_administration_client_works_unchanged() {
    administer(&["python"]);
}

/// ADM-02, SEC-21: its asynchronous client does the same.
#[test]
fn the_asynchronous_python_administration_client_works_unchanged() {
    administer(&["python-async"]);
}

/// ADM-02, ADM-60, LIS-05, SEC-21, SEC-24: in the emulator's place it works over plain HTTP, with the emulator's key, by a transport of the application.
#[test]
fn the_python_administration_client_works_in_the_emulators_place() {
    administer(&["python-in-place"]);
}

/// ADM-02, LIS-05, SEC-21: that of @azure/service-bus of JavaScript does.
#[test]
fn the_javascript_administration_client_works_unchanged() {
    administer(&["javascript", &node()]);
}

/// AMQP-02, SEC-21, SEC-24, ADM-60, ADM-61, TOP-01: the Python SDK works unchanged with the emulator's own connection string at the emulator's port, on
/// what its sample configuration declares.
#[test]
fn the_emulators_string_and_sample_works_unchanged() {
    let Some(python) = set_up("emulator/setup") else { return };
    let mut command = Command::new(python);
    command.arg(folder().join("emulator/run.py")).arg(env!("CARGO_BIN_EXE_peeklock"));
    scenarios(&mut command, 7);
}

/// SEC-17, SEC-18, AMQP-02: two teams, each with a policy of one right, use the SDKs of Python and JavaScript unchanged with a broker on another machine,
/// over TLS by its development authority.
#[test]
fn a_broker_off_loopback_works_unchanged() {
    let Some(python) = set_up("walk/setup") else { return };
    let mut command = Command::new(python);
    command.arg(folder().join("walk/run.py")).args([env!("CARGO_BIN_EXE_peeklock"), &node()]);
    scenarios(&mut command, 6);
}

/// Runs a suite of the program with the SDK for Go, where there is a Go.
fn go(suite: &str, count_min: usize) {
    let Some(program) = set_up("go/setup") else { return };
    let mut command = Command::new(program);
    scenarios(command.args([env!("CARGO_BIN_EXE_peeklock"), suite]), count_min);
}

/// AMQP-01, AMQP-02, AMQ-01, SEC-21: the module azservicebus of Go connects with a connection string, over TLS, too, and works
/// unchanged.
#[test]
fn the_go_sdk_works_unchanged() {
    go("sdk", 90);
}

/// ADM-02, ADM-46, SEC-21: its package admin works unchanged over https, whose certificate it verifies.
#[test]
fn the_go_administration_client_works_unchanged() {
    go("admin", 20);
}

/// Runs a suite of the program with the SDK for Java and Qpid JMS, where there is a Java and a Maven.
fn java(suite: &str, count_min: usize) {
    let Some(jar) = set_up("java/setup") else { return };
    let mut command = Command::new("java");
    // It starts sooner and lives a minute.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", &jar]);
    scenarios(command.args([env!("CARGO_BIN_EXE_peeklock"), suite]), count_min);
}

/// AMQP-01, SEC-21: the library azure-messaging-servicebus of Java connects with a connection string and works unchanged.
#[test]
fn the_java_sdk_works_unchanged() {
    java("azure", 105);
}

/// ADM-02, ADM-46, SEC-21: its administration client works unchanged over https, whose certificate it verifies.
#[test]
fn the_java_administration_client_works_unchanged() {
    java("admin", 20);
}

/// AMQP-08, AMQP-99, AMQP-101: Qpid JMS connects with a policy and its key and works unchanged, and what is not offered is refused by name.
#[test]
fn qpid_jms_works_unchanged() {
    java("jms", 42);
}

/// AMQP-01, ADM-02, TXN-09, SEC-21: the package Azure.Messaging.ServiceBus of .NET connects with a connection string and works
/// unchanged, with its administration client, processors and transactions.
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

/// AMQP-01, AMQP-04, ADM-02, SEC-27: the live tests of azservicebus for Go and of its package admin, and the tests of go-amqp,
/// pass unchanged, with tokens of an identity provider. `tests/sdk/official/expected` lists those that are expected to fail.
#[test]
fn the_go_sdk_with_official_tests_works_unchanged() {
    official("go", &["go-azservicebus", "go-azservicebus-admin", "go-amqp"], 150);
}

/// AMQP-01, ADM-02, SEC-27: the live tests of azure-servicebus for Python pass unchanged, synchronous, asynchronous and of administration.
#[test]
fn the_python_sdk_with_official_tests_works_unchanged() {
    official("python", &["python-sync", "python-async", "python-admin"], 200);
}
