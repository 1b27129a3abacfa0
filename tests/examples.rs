//! Do the examples do what their first lines say?

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// Runs an example and returns what it prints. They are built with all other tests, as `./test` does, or
/// by `cargo build --examples`.
fn run(name: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_peeklock"));
    let example = program.parent().unwrap().join("examples").join(name);
    assert!(example.exists(), "`cargo build --examples` makes {}", example.display());
    let ended = Command::new(&example).current_dir(env!("CARGO_TARGET_TMPDIR")).output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&ended.stderr));
    said
}

/// Its lines, sorted: orders that are worked off side by side end in any order.
fn lines(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = run(name).lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

/// SES-19, SES-20, SES-24: each order in its order, with what the session keeps.
#[test]
fn the_worker_of_sessions_ships_every_order_in_its_order() {
    let shipped: Vec<String> =
        (1..=3).map(|order| format!("order-{order}: pick pay ship")).collect();
    assert_eq!(lines("session_worker"), shipped);
}

/// SES-34, SES-25: each requester its own reply.
#[test]
fn requesters_get_their_replies_by_session() {
    let expected =
        ["ada is told b\"42\"", "bob is told b\"4\"", "state of ada: Some(b\"asked once\")"];
    assert_eq!(lines("sessions"), expected);
}

#[test]
fn the_actor_that_receives_books_two_invoices_and_refuses_one() {
    let said = run("actor_receiver");
    for expected in ["booked invoice 1", "booked invoice 3", "NotAnInvoice"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn the_other_examples_run_to_their_ends() {
    for name in ["embed", "deadline", "authorizer"] {
        assert!(!run(name).is_empty(), "{name} says nothing");
    }
}
