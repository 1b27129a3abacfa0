//! The browser client works: Node and a headless Chromium run it against the built binary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../examples/browser/serve.rs"]
mod serve;
#[path = "support/served.rs"]
mod served;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use served::Served;

type Failure = Box<dyn std::error::Error>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// Runs a command in the folder of these tests. A failure prints its output.
fn run(command: &mut Command) {
    let ended = command.current_dir(folder()).output().expect("the command runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}{errors}");
}

/// Prepares the tools of the tests, as `./test` does before, and returns a search path that begins
/// with the right Node. Fails on a machine without Chromium.
fn search_path() -> String {
    let made = Command::new(folder().join("setup")).output().expect("tests/browser/setup runs");
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    let node = String::from_utf8(made.stdout).unwrap();
    format!("{}:{}", node.trim(), std::env::var("PATH").unwrap())
}

fn node(files: &[&str], environment: &[(&str, String)]) {
    let mut command = Command::new("node");
    command.env("PATH", search_path());
    // The timeout makes the report name a test that hangs.
    command.args(["--test", "--test-reporter", "spec", "--test-timeout", "300000"]).args(files);
    run(command.envs(environment.iter().cloned()));
}

/// The client against a broker. Comments above its tests name their requirements.
#[test]
fn the_browser_client_sends_receives_and_settles() {
    let served = Served::with(&["--ephemeral"]);
    node(
        &["client.test.js", "types.test.js", "readme.test.js"],
        &[("PEEKLOCK_WS", served.url.clone())],
    );
}

/// Sessions.
#[test]
fn the_browser_client_receives_by_session() {
    let served = Served::with(&["--ephemeral"]);
    node(&["sessions.test.js"], &[("PEEKLOCK_WS", served.url.clone())]);
}

/// Inspection.
#[test]
fn the_browser_client_inspects() {
    let served = Served::with(&["--ephemeral"]);
    node(&["inspection.test.js"], &[("PEEKLOCK_WS", served.url.clone())]);
}

/// Transactions.
#[test]
fn the_browser_client_has_transactions() {
    let served = Served::with(&["--ephemeral"]);
    node(&["transactions.test.js"], &[("PEEKLOCK_WS", served.url.clone())]);
}

/// SET-21, ERR-06: connections that are cut.
#[test]
fn the_browser_client_resumes() {
    let served = Served::with(&["--ephemeral"]);
    node(&["resume.test.js"], &[("PEEKLOCK_WS", served.url.clone())]);
}

/// ERR-06, SND-13, SET-17: a broker that refuses, stops answering, or sends invalid frames.
#[test]
fn the_browser_client_survives_protocol_violations() {
    node(&["socket.test.js"], &[("PEEKLOCK_WS", "ws://127.0.0.1:1/".to_owned())]);
}

/// TLS-06, TLS-08: over TLS, with connection strings.
#[test]
fn the_browser_client_signs_and_trusts() {
    let directory = concat!(env!("CARGO_TARGET_TMPDIR"), "/browser-tls");
    if Path::new(directory).exists() {
        std::fs::remove_dir_all(directory).unwrap();
    }
    let served = Served::with(&["--data-dir", directory, "--tls"]);
    let string = std::fs::read_to_string(format!("{directory}/root.connection-string")).unwrap();
    node(
        &["secure.test.js"],
        &[
            ("PEEKLOCK_WS", served.url.clone()),
            ("PEEKLOCK_CONNECTION_STRING", string.trim().to_owned()),
            ("NODE_EXTRA_CA_CERTS", format!("{directory}/tls/authority.pem")),
        ],
    );
}

#[test]
fn the_browser_client_has_its_declared_types() {
    let path = search_path();
    run(Command::new("node_modules/.bin/tsc").args(["--project", "."]).env("PATH", path));
}

/// The console. Comments above its tests name their requirements.
#[test]
fn the_console_works_in_chromium() {
    let served = Served::with(&["--ephemeral"]);
    node(
        &["console.test.js"],
        &[("PEEKLOCK_HTTP", served.http.clone()), ("PEEKLOCK_WS", served.url.clone())],
    );
}

/// Actions and searches of the console.
#[test]
fn the_console_acts_and_searches() {
    let served = Served::with(&["--ephemeral"]);
    node(
        &["console-actions.test.js", "console-search.test.js"],
        &[("PEEKLOCK_HTTP", served.http.clone()), ("PEEKLOCK_WS", served.url.clone())],
    );
}

/// The way from a message that did not arrive to its cause, as the how-to page has it.
#[test]
fn the_console_leads_to_causes() {
    let served = Served::with(&["--ephemeral"]);
    node(
        &["console-causes.test.js"],
        &[("PEEKLOCK_HTTP", served.http.clone()), ("PEEKLOCK_WS", served.url.clone())],
    );
}

/// Jobs, the workbench, the audit trail, the topology, checks and filters in the console.
#[test]
fn the_console_runs_jobs() {
    for file in [
        "console-jobs.test.js",
        "console-audit.test.js",
        "console-topology.test.js",
        "console-filters.test.js",
    ] {
        let served = Served::with(&["--ephemeral"]);
        node(
            &[file],
            &[("PEEKLOCK_HTTP", served.http.clone()), ("PEEKLOCK_WS", served.url.clone())],
        );
    }
}

/// Import and export of the namespace, sending and taking in the console.
#[test]
fn the_console_imports_and_sends() {
    for file in ["console-import.test.js", "console-traffic.test.js"] {
        let served = Served::with(&["--ephemeral"]);
        node(
            &[file],
            &[("PEEKLOCK_HTTP", served.http.clone()), ("PEEKLOCK_WS", served.url.clone())],
        );
    }
}

/// CON-42, CON-71: the console of a broker that asks every client for a token.
#[test]
fn the_console_signs_in() {
    let directory = concat!(env!("CARGO_TARGET_TMPDIR"), "/browser-sign-in");
    if Path::new(directory).exists() {
        std::fs::remove_dir_all(directory).unwrap();
    }
    std::fs::create_dir_all(directory).unwrap();
    let config = format!("{directory}/peeklock.toml");
    std::fs::write(&config, "[security]\nallow_anonymous = false\n").unwrap();
    let served = Served::with(&["--data-dir", directory, "--config", &config]);
    let string = std::fs::read_to_string(format!("{directory}/root.connection-string")).unwrap();
    node(
        &["console-sign-in.test.js"],
        &[
            ("PEEKLOCK_HTTP", served.http.clone()),
            ("PEEKLOCK_WS", served.url.clone()),
            ("PEEKLOCK_CONNECTION_STRING", string.trim().to_owned()),
        ],
    );
}

#[test]
fn the_console_has_its_declared_types() {
    let path = search_path();
    let project = ["--project", "console.tsconfig.json"];
    run(Command::new("node_modules/.bin/tsc").args(project).env("PATH", path));
}

/// SEC-23, SET-01, SET-03, SET-05, SET-07, SET-21, SET-32: the page of the example, and the client in
/// a real browser.
#[test]
fn the_browser_page_works_in_chromium() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let served = serve::Served::start(anywhere, anywhere).await.expect("the page is served");
        let environment = [
            ("PEEKLOCK_PAGE", format!("http://{}", served.page)),
            ("PEEKLOCK_WS", format!("ws://{}/", served.broker_address())),
        ];
        let tests = move || node(&["chromium.test.js"], &environment);
        let ended = tokio::task::spawn_blocking(tests).await;
        served.stop().await.expect("the page stops");
        ended.expect("the tests pass");
    });
}
