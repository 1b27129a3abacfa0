//! The examples print the output that their first lines promise. Each is run, and its whole output
//! is compared.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A new folder for each example, without files of earlier runs.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples").join(name);
    std::fs::remove_dir_all(&folder).ok();
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs an example and returns its printed lines. Examples are built with all other tests, as
/// `./test` does, or with `cargo build --examples`.
fn run_in(folder: &Path, name: &str) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_peeklock"));
    let example = program.parent().unwrap().join("examples").join(name);
    assert!(example.exists(), "`cargo build --examples` makes {}", example.display());
    let ended = Command::new(&example).current_dir(folder).output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    let complaints = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{name}: {said}{complaints}");
    assert_eq!(complaints, "", "{name}");
    said.lines().map(|line| line.trim_end().to_owned()).collect()
}

fn run(name: &str) -> Vec<String> {
    run_in(&folder(name), name)
}

/// The lines of an example, sorted, because concurrent work ends in any order.
fn sorted(name: &str) -> Vec<String> {
    let mut lines = run(name);
    lines.sort();
    lines
}

/// A test in this file runs every example; `browser` is tested in browsers, `celery` with the SDKs.
#[test]
fn no_example_is_left_out() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let names: BTreeSet<String> = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let run_here = [
        "actor_receiver",
        "authorizer",
        "browser",
        "celery",
        "deadline",
        "embed",
        "forwarder",
        "host",
        "request_reply",
        "session_worker",
        "sessions",
        "topic",
        "transaction",
        "worker",
    ];
    assert_eq!(names, run_here.map(str::to_owned).into());
}

/// SES-19, SES-20, SES-24: the steps of each order run in sequence, with the state of the session.
#[test]
fn the_session_worker_ships_orders_step_by_step() {
    let shipped: Vec<String> =
        (1..=3).map(|order| format!("order-{order}: pick pay ship")).collect();
    assert_eq!(sorted("session_worker"), shipped);
}

/// SES-34, SES-25: each requester gets its own reply.
#[test]
fn requesters_get_their_replies_by_session() {
    let expected = [
        "ada gets the answer b\"42\"",
        "bob gets the answer b\"4\"",
        "state of ada: Some(b\"asked once\")",
    ];
    assert_eq!(sorted("sessions"), expected);
}

/// SES-34: with the same handles in process and over WebSocket.
#[test]
fn a_requester_gets_the_price_or_the_reason() {
    let said = ["in process", "over WebSocket"].map(|way| {
        [
            format!("{way}: 2 cups are 500 cents"),
            format!("{way}: the responder failed: OutOfStock: 12 cups are too many"),
            format!("{way}: no reply arrived in time"),
        ]
    });
    assert_eq!(run("request_reply"), said.concat());
}

#[test]
fn the_receiving_actor_books_two_invoices_and_refuses_one() {
    let expected = [
        "booked invoice 1 over 12.50",
        "booked invoice 3 over 99.00",
        "dead-lettered 2: BodyNotReadable (message 2 is not the expected JSON: expected ident at \
         line 1 column 2)",
    ];
    assert_eq!(sorted("actor_receiver"), expected);
}

/// FND-02: the stored data exists at the next start, and sequence numbers continue.
#[test]
fn the_embedded_broker_keeps_its_folder() {
    let folder = folder("embed");
    for number in 1..=2 {
        assert_eq!(run_in(&folder, "embed"), [format!("order {number}: b\"two coffees\"")]);
    }
}

/// EXP-48
#[test]
fn late_jobs_wait_for_slower_processing() {
    let expected = [
        "invoice was late: TTLExpiredException",
        "report was late: TTLExpiredException",
        "thumbnail was done in time",
        "2 jobs wait for slower processing",
    ];
    assert_eq!(run("deadline"), expected);
}

#[test]
fn the_authorizer_grants_by_token_and_right() {
    let expected = [
        "(no token)   Send     Unauthorized",
        "(no token)   Receive  Unauthorized",
        "only-send    Send     allowed",
        "only-send    Receive  Unauthorized",
        "everything   Send     allowed",
        "everything   Receive  allowed",
    ];
    assert_eq!(run("authorizer"), expected);
}

#[test]
fn the_forwarder_sends_orders_to_their_regions() {
    let expected = [
        "orders-eu: b\"two coffees\", None",
        "orders-us: b\"one tea\", None",
        "incoming/$Transfer/$deadletterqueue: b\"dust\", Some(\"UnknownRegion\")",
    ];
    assert_eq!(run("forwarder"), expected);
}

/// TOP-02, TOP-03
#[test]
fn each_subscription_gets_messages_selected_by_its_rules() {
    let expected = [
        "audit: two coffees",
        "audit: an espresso machine",
        "audit: an espresso machine (marked)",
        "eu: two coffees",
        "us: an espresso machine",
        // The reason why a message would not be selected.
        "rule eu does not match",
        "  false   region = 'eu'   saw 'us' and 'eu'",
        "  region is 'us'",
    ];
    assert_eq!(run("topic"), expected);
}

/// TXN-01, TXN-14
#[test]
fn a_dead_letter_is_corrected_in_one_transaction() {
    let expected = [
        "before the commit: 0 in the queue, 1 in its dead-letter queue",
        "after the commit: 1 in the queue, 0 in its dead-letter queue",
        "the copy is message [SequenceNumber(2)]",
        "received b\"3 apples\"",
        "at the end: 0 in the queue, 0 in its dead-letter queue",
    ];
    assert_eq!(run("transaction"), expected);
}

/// The guide shows the whole program, which has under 30 lines of code.
#[test]
fn the_guide_shows_the_second_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = std::fs::read_to_string(folder.join("examples/host.rs")).unwrap();
    let code = &example[example.find("use peeklock::").unwrap()..];
    assert!(code.lines().count() < 30);
    let guide = std::fs::read_to_string(folder.join("docs/reference/embedding.md")).unwrap();
    assert!(guide.contains(code), "docs/reference/embedding.md and examples/host.rs differ");
}

/// The program is `peeklock` with its configuration, banner and signals, plus its own transport and
/// forwarder.
#[test]
fn the_second_binary_serves_lines_and_prints_forwarded_messages() {
    let folder = folder("host");
    let program = Path::new(env!("CARGO_BIN_EXE_peeklock"));
    let example = program.parent().unwrap().join("examples").join("host");
    let topology = "[[queues]]\nname = \"lines\"\nforward_to = \"print://order\"\n";
    std::fs::write(folder.join("peeklock.toml"), topology).unwrap();
    let mut served = Command::new(&example)
        .args(["serve", "--ephemeral", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0"])
        .args(["--amqp", "127.0.0.1:0", "--log-filter", "warn"])
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(served.stdout.take().unwrap()).lines().map_while(Result::ok);
    let listens = lines.find(|line| line.trim().starts_with("line ")).expect("the banner names it");
    let address = listens.rsplit('/').next().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"two coffees\none tea\n").unwrap();
    let mut answers = BufReader::new(client).lines().map(Result::unwrap);
    assert_eq!([answers.next(), answers.next()], [Some("1".to_owned()), Some("2".to_owned())]);
    // At its end the program waits for connected clients.
    drop(answers);
    let mut printed = lines.by_ref().filter(|line| line.starts_with("order"));
    assert_eq!(printed.next().unwrap(), "order: two coffees");
    assert_eq!(printed.next().unwrap(), "order: one tea");
    let told = Command::new("kill").arg(served.id().to_string()).status().unwrap();
    assert!(told.success() && served.wait().unwrap().success(), "it ends by a signal, in order");
}

/// SET-03, SET-05: one drink succeeds at its first attempt, one at its second, and one order is
/// refused.
#[test]
fn the_worker_prepares_two_drinks_and_refuses_an_order() {
    let expected = [
        "prepared two coffees at attempt 1",
        "prepared one tea at attempt 2",
        "refused b\"one soup\": NotOnTheMenu",
    ];
    assert_eq!(run("worker"), expected);
}
