//! Does the browser client work? Node and a headless Chromium run it against the built binary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../examples/browser/serve.rs"]
mod serve;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

type Failure = Box<dyn std::error::Error>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// A broker of the built binary; ends with the test.
struct Served {
    process: Child,
    url: String,
}

impl Served {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_peeklock"))
            .args(["serve", "--ephemeral", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0"])
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

/// Runs a command in the folder of these tests; what it says is shown if it fails.
fn run(command: &mut Command) {
    let ended = command.current_dir(folder()).output().expect("the command runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}{errors}");
}

/// What the tests need; `./test` makes it beforehand. A machine without Node or Chromium fails here.
fn set_up() {
    run(&mut Command::new(folder().join("setup")));
}

fn node(files: &[&str], environment: &[(&str, String)]) {
    set_up();
    let mut command = Command::new("node");
    // A test that hangs is named.
    command.args(["--test", "--test-reporter", "spec", "--test-timeout", "60000"]).args(files);
    run(command.envs(environment.iter().cloned()));
}

/// SET-01 to SET-08, RCV-16, RCV-21, SND-07, SND-13, SND-29, ERR-02: the client against a broker.
#[test]
fn the_browser_client_sends_receives_and_settles() {
    let served = Served::start();
    node(
        &["client.test.js", "types.test.js", "readme.test.js"],
        &[("PEEKLOCK_WS", served.url.clone())],
    );
}

/// SET-21, ERR-06: connections that are cut.
#[test]
fn the_browser_client_resumes() {
    let served = Served::start();
    node(&["resume.test.js"], &[("PEEKLOCK_WS", served.url.clone())]);
}

/// ERR-06, SND-13, SET-17: a broker that refuses, falls silent, or says what makes no sense.
#[test]
fn the_browser_client_survives_what_a_broker_should_not_do() {
    node(&["socket.test.js"], &[("PEEKLOCK_WS", "ws://127.0.0.1:1/".to_owned())]);
}

#[test]
fn the_browser_client_has_the_types_it_says() {
    set_up();
    run(Command::new("node_modules/.bin/tsc").args(["--project", "."]));
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
