//! `peeklock receive` and `peeklock peek`

use super::broker::{Broker, body};

/// SQL-09: `peek --where` shows messages for which a condition in SQL is true, also by properties
/// of the broker.
#[test]
fn messages_are_peeked_by_a_condition() {
    let broker = Broker::with_queue(&[]);
    for (body, price) in [("a", "3"), ("b", "7"), ("c", "9")] {
        let price = format!("price:i32={price}");
        broker.ok(&["send", "orders", body, "--property", &price, "--id", body]);
    }
    broker.ok(&["receive", "orders", "--settle", "abandon"]);
    let peek = |code: i32, sql: &str| {
        broker.ends(code, &["peek", "orders", "--where", sql, "--body-only"])
    };
    assert_eq!(peek(0, "price > 5").0, "b\nc\n");
    assert_eq!(peek(0, "price > 5 AND sys.MessageId <> 'b'").0, "c\n");
    assert_eq!(peek(0, "sys.DeliveryCount > 0").0, "a\n");
    assert_eq!(peek(0, "sys.SequenceNumber >= 2").0, "b\nc\n");
    assert_eq!(peek(6, "colour = 'red'").0, "");
    let (_, log) = peek(2, "price >");
    assert!(log.contains("--where"), "{log}");
}

/// A command sends no request over a link that it has detached, so none is refused.
#[test]
fn commands_that_succeed_count_no_rejection() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b"]);
    broker.ok(&["peek", "orders"]);
    broker.ok(&["receive", "orders"]);
    broker.ok(&["queue", "create", "steps", "--requires-session"]);
    broker.ok(&["send", "steps", "one", "--session", "s"]);
    broker.ok(&["receive", "steps", "--session", "s"]);
    broker.ok(&["dlq", "list", "orders"]);
    let metrics = broker.metrics();
    assert!(metrics.contains("peeklock_ready 1"), "{metrics}");
    // A check for existence counts as `EntityNotFound`.
    let counted = "peeklock_rejections_total{condition=\"InvalidOperation\"}";
    let rejections = metrics.lines().filter(|line| line.starts_with(counted));
    let rejections: Vec<&str> = rejections.filter(|line| !line.ends_with(" 0")).collect();
    assert!(rejections.is_empty(), "{rejections:?}");
}

#[test]
fn a_received_message_is_shown_whole_and_gone() {
    let broker = Broker::with_queue(&[]);
    let long = "x".repeat(500);
    broker.ok(&["send", "orders", &long, "--id", "order-1", "-p", "table:i32=7"]);
    let out = broker.ok(&["receive", "orders"]);
    for expected in ["sequence number  1\n", "message id       order-1\n", "7 (i32)\n", &long] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    let (out, log) = broker.ends(6, &["receive", "orders"]);
    assert_eq!((out.as_str(), log.as_str()), ("", "no message is available in `orders`\n"));
    broker.ends(4, &["receive", "absent"]);
}

/// FWD-26: a forwarded dead letter shows the entity that dead-lettered it.
#[test]
fn a_forwarded_dead_letter_shows_its_source() {
    let broker = Broker::with_queue(&[]);
    let forwards = ["--forward-dead-lettered-messages-to", "orders", "--max-delivery-count", "1"];
    broker.ok(&[&["queue", "create", "src"][..], &forwards].concat());
    broker.send("src", &["a", "b"]);
    broker.ok(&["receive", "src", "-n", "2", "--settle", "abandon"]);
    let out = broker.ok(&["receive", "orders", "--wait", "10s"]);
    let told = out.lines().find_map(|line| line.strip_prefix("dead-lettered in"));
    assert_eq!(told.map(str::trim), Some("src"), "{out}");
    let out = broker.ok(&["receive", "orders", "--wait", "10s", "-o", "ndjson"]);
    let message: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(message["deadLetterSource"], "src");
}

#[test]
fn receive_stops_at_the_count_or_the_last_message() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b", "c", "d", "e"]);
    assert_eq!(broker.ok(&["receive", "orders", "--body-only"]), "a\n");
    assert_eq!(broker.ok(&["receive", "orders", "-n", "2", "--body-only"]), "b\nc\n");
    let out = broker.ok(&["receive", "orders", "-n", "99", "-o", "json"]);
    let list: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[1]["body"], "e");
    let (out, _) = broker.ends(6, &["receive", "orders", "--all", "-o", "json"]);
    assert_eq!(out, "[]\n");
}

#[test]
fn a_receive_waits_for_the_given_time() {
    let broker = Broker::with_queue(&[]);
    let mut running = broker.program(&["receive", "orders", "--wait", "1m", "--body-only"]).start();
    broker.send("orders", &["two coffees"]);
    assert_eq!(running.line(), "two coffees");
    assert_eq!(running.end().0, 0);
    broker.ends(6, &["receive", "orders", "--wait", "10ms"]);
}

/// SET-03, SET-28: each message counts one delivery, regardless of the number of requested
/// messages.
#[test]
fn abandoned_messages_return_counted_once() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b"]);
    let arguments = ["receive", "orders", "-n", "10", "--settle", "abandon", "--body-only"];
    assert_eq!(broker.ok(&arguments), "a\nb\n");
    assert_eq!(broker.bodies("orders"), [body("a", 1), body("b", 1)]);
    assert_eq!(broker.ok(&["receive", "orders", "-n", "2", "--body-only"]), "a\nb\n");
}

/// SET-21: locks stay after an orderly end of the command.
#[test]
fn settling_none_leaves_messages_locked_and_uncounted() {
    let broker = Broker::with_queue(&["--lock-duration", "5m"]);
    broker.send("orders", &["a"]);
    let out = broker.ok(&["receive", "orders", "--settle", "none", "-o", "ndjson"]);
    let message: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(message["lockToken"].is_string());
    broker.ends(6, &["receive", "orders"]);
    assert_eq!(broker.bodies("orders"), [body("a", 0)]);
}

#[test]
fn receive_and_delete_is_only_on_demand_and_settles_nothing() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b"]);
    let mode = ["receive", "orders", "--mode", "receive-and-delete"];
    let (_, log) = broker.ends(2, &[&mode[..], &["--settle", "none"]].concat());
    assert!(log.contains("nothing to settle"), "{log}");
    let out = broker.ok(&[&mode[..], &["--all", "-o", "ndjson"]].concat());
    assert_eq!(out.lines().count(), 2);
    assert!(!out.contains("lockToken"), "{out}");
    assert!(broker.peek("orders").is_empty());
}

#[test]
fn following_runs_until_interrupted_and_loses_nothing() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    for signal in ["-INT", "-TERM"] {
        let mut running = broker.program(&["receive", "orders", "--follow", "--body-only"]).start();
        assert_eq!(running.line(), "a");
        broker.send("orders", &["b"]);
        assert_eq!(running.line(), "b");
        running.signal(signal);
        assert_eq!(running.end(), (0, String::new(), String::new()));
        // The link of the ended command no longer receives messages.
        broker.send("orders", &["a"]);
        assert_eq!(broker.bodies("orders"), [body("a", 0)]);
    }
    assert_eq!(broker.ok(&["receive", "orders", "--body-only"]), "a\n");
}

#[test]
fn a_waiting_receive_is_interrupted_with_a_code_of_its_own() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    let mut running =
        broker.program(&["receive", "orders", "-n", "2", "--wait", "5m", "--body-only"]).start();
    assert_eq!(running.line(), "a");
    running.signal("-INT");
    assert_eq!(running.end().0, 130);
    assert!(broker.peek("orders").is_empty());
}

/// A pipe holds 64 KiB: messages that were not written to it are released without a counted
/// delivery (SET-32).
#[test]
fn a_closed_pipe_releases_unwritten_messages() {
    let broker = Broker::with_queue(&["--max-delivery-count", "1"]);
    let bodies: Vec<String> = (0..100).map(|n| format!("{n:03}{}", "x".repeat(9_997))).collect();
    broker.send("orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let mut running = broker.program(&["receive", "orders", "--all", "--body-only"]).start();
    assert_eq!(running.line(), bodies[0]);
    running.leave();
    let (code, _, log) = running.end();
    assert_eq!((code, log.as_str()), (0, ""));
    let left = broker.bodies("orders");
    assert!(left.len() >= 85 && left.len() < 100, "{}", left.len());
    // The rest has no gaps, no counted delivery and no lock.
    let expected: Vec<_> = bodies[100 - left.len()..].iter().map(|text| body(text, 0)).collect();
    assert_eq!(left, expected);
    let rest = broker.ok(&["receive", "orders", "--all", "--body-only"]);
    assert_eq!(rest.lines().count(), left.len());
}

#[test]
fn a_shell_pipeline_ends_quietly_when_head_has_enough() {
    let broker = Broker::with_queue(&[]);
    let bodies: Vec<String> = (0..500).map(|n| format!("{n}{}", "x".repeat(1_000))).collect();
    broker.send("orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    for command in ["peek orders --all -o ndjson", "dlq list orders", "queue list"] {
        let script = format!("'{}' {command} | head -n 1", env!("CARGO_BIN_EXE_peeklock"));
        let ended = std::process::Command::new("bash")
            .args(["-o", "pipefail", "-c", &script])
            .env("PEEKLOCK_URL", &broker.url)
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && !log.contains("error"), "{command}: {log}");
    }
}

#[test]
fn following_survives_a_lost_connection() {
    let mut broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    let mut running = broker.program(&["receive", "orders", "--follow", "--body-only"]).start();
    assert_eq!(running.line(), "a");
    let address = broker.address().to_owned();
    broker.kill();
    assert_eq!(running.log_line(), "connection lost; reconnecting");
    let again = Broker::start_at(&address);
    again.ok(&["queue", "create", "orders"]);
    again.send("orders", &["b"]);
    assert_eq!(running.log_line(), "connected again");
    // The command ends normally if the queue was absent when the receive began.
    running.signal("-INT");
    running.end();
}

#[test]
fn an_interrupt_without_a_connection_ends_at_once() {
    let mut broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    let mut running = broker.program(&["receive", "orders", "--follow", "--body-only"]).start();
    assert_eq!(running.line(), "a");
    // Wait until the message is completed; otherwise the command would also report it as unsettled.
    while !broker.peek("orders").is_empty() {}
    broker.kill();
    assert_eq!(running.log_line(), "connection lost; reconnecting");
    let begun = std::time::Instant::now();
    running.signal("-INT");
    assert_eq!(running.end().0, 0);
    assert!(begun.elapsed() < std::time::Duration::from_secs(3));
}

#[test]
fn peek_shows_ranges_and_states_and_changes_nothing() {
    let broker = Broker::with_queue(&["--lock-duration", "5m"]);
    broker.send("orders", &["a", "b", "c"]);
    broker.ok(&["send", "orders", "later", "--at", "+1h"]);
    broker.ok(&["receive", "orders", "--settle", "none"]);
    let column = |arguments: &[&str]| -> Vec<String> {
        let out = broker.ok(&[&["peek", "orders"], arguments].concat());
        out.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(column(&[]), ["1", "2", "3", "4"]);
    assert_eq!(column(&["--from", "2", "-n", "2"]), ["2", "3"]);
    assert_eq!(column(&["--state", "scheduled"]), ["4"]);
    assert_eq!(column(&["--state", "active"]), ["1", "2", "3"]);
    let nothing = |arguments: &[&str]| broker.ends(6, &[&["peek"], arguments].concat()).1;
    assert!(nothing(&["orders", "--state", "deferred"]).contains("has no such message"));
    assert!(nothing(&["orders", "--from", "9"]).contains("has no such message"));
    assert!(nothing(&["orders", "--dead-letter"]).contains("has no messages"));
    broker.ends(4, &["peek", "absent"]);
    let (_, log) = broker.ends(0, &["peek", "orders", "-n", "1"]);
    assert!(log.contains("`--from 2`"), "{log}");
    let long = broker.ok(&["peek", "orders", "--from", "4", "--long"]);
    assert!(long.contains("state            scheduled\n") && long.ends_with("\nlater\n"), "{long}");
    assert!(broker.bodies("orders").iter().all(|(_, count)| *count == 0));
}

#[test]
fn peek_follows_new_messages() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    let arguments = ["peek", "orders", "--follow", "--interval", "10ms", "--body-only"];
    let mut running = broker.program(&arguments).start();
    assert_eq!(running.line(), "a");
    broker.send("orders", &["b"]);
    assert_eq!(running.line(), "b");
    running.signal("-INT");
    assert_eq!(running.end().0, 0);
}

/// Bodies are unchanged in a pipe with --body-only, and escaped in any other output.
#[test]
fn control_characters_are_escaped_unless_bodies_are_requested() {
    let broker = Broker::with_queue(&[]);
    let hostile = "\u{1b}[2J\u{202e}gpj";
    let message = serde_json::json!({"body": hostile, "messageId": hostile, "subject": hostile,
        "applicationProperties": {hostile: hostile}});
    broker.program(&["send", "orders"]).input(message.to_string().as_bytes()).run();
    for arguments in [
        &["peek", "orders"][..],
        &["peek", "orders", "--long"],
        &["peek", "orders", "-o", "ndjson"],
        &["peek", "orders", "-o", "json"],
    ] {
        let out = broker.ok(arguments);
        assert!(!out.contains(['\u{1b}', '\u{202e}']), "{arguments:?}: {out}");
        assert!(out.contains("[2J"), "{arguments:?}: {out}");
    }
    let peeked = broker.peek("orders").remove(0);
    assert_eq!(peeked["body"], hostile);
    assert_eq!(broker.ok(&["peek", "orders", "--body-only"]), format!("{hostile}\n"));
    assert_eq!(broker.ok(&["receive", "orders", "--raw"]), hostile);
}

#[test]
fn long_bodies_are_cut_in_tables_with_a_note() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &[&"x".repeat(61)]);
    let (out, log) = broker.ends(0, &["peek", "orders"]);
    assert!(out.contains(&format!("{}…", "x".repeat(60))), "{out}");
    assert!(log.contains("--long"), "{log}");
}

/// A message that could not be written is not completed.
#[test]
fn a_full_disk_loses_nothing() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_peeklock"))
        .args(["receive", "orders", "--all", "--body-only"])
        .env("PEEKLOCK_URL", &broker.url)
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(log.starts_with("error: standard output: "), "{log}");
    assert_eq!(broker.bodies("orders"), [body("a", 0), body("b", 0)]);
    assert_eq!(broker.ok(&["receive", "orders", "--all", "--body-only"]), "a\nb\n");
}

/// SET-25: the command reports messages that were written but could not be completed.
#[test]
fn uncompleted_messages_are_reported() {
    let broker = Broker::with_queue(&[]);
    // More than a pipe holds, so the writer is still busy when the first line is read.
    let bodies: Vec<String> = (0..20).map(|n| format!("{n:02}{}", "x".repeat(9_998))).collect();
    broker.send("orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let mut running = broker.program(&["receive", "orders", "--all", "--body-only"]).start();
    assert_eq!(running.line(), bodies[0]);
    broker.ok(&["queue", "delete", "orders", "--yes"]);
    let (code, rest, log) = running.end();
    assert_eq!(code, 8, "{log}");
    assert_eq!(rest.lines().count(), 19);
    assert!(log.contains("20 of the messages written could not be settled"), "{log}");
}

/// SET-25: the command also reports them if the broker is away and Ctrl-C ends the command.
#[test]
fn uncompleted_messages_are_reported_when_the_broker_is_away() {
    for follow in [&["--follow"][..], &["--all"]] {
        let mut broker = Broker::with_queue(&[]);
        let bodies: Vec<String> = (0..20).map(|n| format!("{n:02}{}", "x".repeat(9_998))).collect();
        broker.send("orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
        let arguments = [&["receive", "orders", "--body-only"][..], follow].concat();
        // More than a pipe holds, so the writer is still busy when the first line is read.
        let mut running = broker.program(&arguments).start();
        assert_eq!(running.line(), bodies[0]);
        broker.kill();
        running.signal("-INT");
        let (code, rest, log) = running.end();
        let written = rest.lines().count() + 1;
        assert_eq!(code, 8, "{log}");
        let expected = format!("{written} of the messages written could not be settled");
        assert!(log.contains(&expected), "{expected}: {log}");
    }
}

/// SET-03: the command reports messages that could not be abandoned.
#[test]
fn failed_abandons_are_reported() {
    let mut broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    let waiting = ["receive", "orders", "-n", "2", "--wait", "5m", "--body-only"];
    let mut running = broker.program(&[&waiting[..], &["--settle", "abandon"]].concat()).start();
    assert_eq!(running.line(), "a");
    broker.kill();
    assert_eq!(running.log_line(), "connection lost; reconnecting");
    running.signal("-INT");
    let (code, _, log) = running.end();
    assert_eq!(code, 8, "{log}");
    assert!(log.contains("1 of the messages written could not be abandoned"), "{log}");
}

/// EXP-33: `peek` marks expired messages that are still stored.
#[test]
fn peek_marks_expired_messages() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["send", "orders", "a", "--ttl", "1ms"]);
    broker.ok(&["send", "orders", "b"]);
    // The other process takes more than a millisecond.
    let out = broker.ok(&["peek", "orders"]);
    let lines: Vec<&str> = out.lines().skip(1).collect();
    assert!(lines[0].contains("active, expired"), "{out}");
    assert!(lines[1].contains("active ") && !lines[1].contains("expired"), "{out}");
}
