//! `peeklock session`, and receiving by session

use super::broker::{Broker, body};

/// A broker with a queue `steps` that requires sessions, and two sessions in it.
fn with_sessions() -> Broker {
    let broker = Broker::start();
    broker.ok(&["queue", "create", "steps", "--requires-session", "--lock-duration", "5m"]);
    for (session, text) in [("b", "1"), ("a", "2"), ("b", "3")] {
        broker.ok(&["send", "steps", text, "--session", session]);
    }
    broker
}

/// SES-07, SES-19, RCV-28: a queue with sessions is received by session only, first the session
/// with the oldest message.
#[test]
fn messages_are_received_by_session() {
    let broker = with_sessions();
    let (_, log) = broker.ends(1, &["receive", "steps"]);
    assert!(log.contains("InvalidOperation") && log.contains("--next-session"), "{log}");
    broker.ends(1, &["send", "steps", "none"]);
    let next = ["receive", "steps", "--next-session", "--all", "--body-only"];
    assert_eq!(broker.ok(&next), "1\n3\n");
    assert_eq!(broker.ok(&["receive", "steps", "--session", "a", "--body-only"]), "2\n");
    let (_, log) = broker.ends(6, &next);
    assert_eq!(log, "no session with a message is available in `steps`\n");
    let (_, log) = broker.ends(6, &["receive", "steps", "--session", "a"]);
    assert_eq!(log, "no message is available in `steps`\n");
    broker.ends(2, &["receive", "steps", "--session", "a", "--next-session"]);
    broker.ends(2, &["receive", "steps", "--session", "a", "--dead-letter"]);
}

/// SES-06, SES-11, SES-31: the command holds the session while it runs, and releases its messages
/// without a counted delivery.
#[test]
fn a_session_is_held_while_the_command_runs() {
    let broker = with_sessions();
    let held = ["receive", "steps", "--session", "b", "-n", "3", "--wait", "5m", "--body-only"];
    let mut running = broker.program(&held).start();
    assert_eq!([running.line(), running.line()], ["1", "3"]);
    let (_, log) = broker.ends(1, &["receive", "steps", "--session", "b"]);
    assert!(log.contains("SessionCannotBeLocked") && log.contains("--next-session"), "{log}");
    broker.ends(1, &["session", "state", "steps", "b"]);
    let shown = broker.ok(&["queue", "show", "steps"]);
    assert!(shown.contains("2, 1 locked"), "{shown}");
    broker.ok(&["send", "steps", "4", "--session", "b"]);
    assert_eq!(running.line(), "4");
    assert_eq!(running.end().0, 0);
    let none = ["receive", "steps", "--session", "a", "--settle", "none", "--body-only"];
    assert_eq!(broker.ok(&none), "2\n");
    assert_eq!(broker.bodies("steps"), [body("2", 0)]);
    let back = ["receive", "steps", "--session", "a", "--settle", "abandon", "--body-only"];
    assert_eq!(broker.ok(&back), "2\n");
    assert_eq!(broker.bodies("steps"), [body("2", 1)]);
}

/// SES-07, SES-08: one session after another, including new ones.
#[test]
fn following_moves_from_session_to_session() {
    let broker = with_sessions();
    let follow = ["receive", "steps", "--next-session", "--follow", "--body-only"];
    let mut running = broker.program(&follow).start();
    assert_eq!([running.line(), running.line(), running.line()], ["1", "3", "2"]);
    broker.ok(&["send", "steps", "5", "--session", "c"]);
    assert_eq!(running.line(), "5");
    running.signal("-INT");
    assert_eq!(running.end().0, 0);
    assert!(broker.peek("steps").is_empty());
}

/// SES-29, PEK-07: listing sessions and peeking their messages.
#[test]
fn sessions_are_listed_and_peeked() {
    let broker = with_sessions();
    assert_eq!(broker.ok(&["session", "list", "steps"]), "a\nb\n");
    let ids = broker.ok(&["session", "list", "steps", "-o", "ndjson", "--active"]);
    assert_eq!(ids, "{\"sessionId\":\"a\"}\n{\"sessionId\":\"b\"}\n");
    assert_eq!(broker.ok(&["session", "list", "steps", "--state-set-after", "+1h"]), "");
    let out = broker.ok(&["peek", "steps", "--session", "b", "-o", "ndjson"]);
    assert_eq!(out.lines().count(), 2);
    assert!(out.lines().all(|line| line.contains("\"sessionId\":\"b\"")), "{out}");
    broker.ends(6, &["peek", "steps", "--session", "z"]);
    broker.ok(&["queue", "create", "orders"]);
    for arguments in [&["session", "list", "orders"][..], &["peek", "orders", "--session", "a"]] {
        let (_, log) = broker.ends(1, arguments);
        assert!(log.contains("InvalidOperation"), "{log}");
    }
    broker.ends(4, &["session", "list", "absent"]);
}

/// SES-24, SES-25: the state is returned byte for byte.
#[test]
fn a_state_is_set_shown_and_cleared() {
    let broker = with_sessions();
    broker.ends(6, &["session", "state", "steps", "a"]);
    broker.ok(&["session", "set-state", "steps", "a", "half way"]);
    assert_eq!(broker.ok(&["session", "state", "steps", "a"]), "half way\n");
    assert_eq!(broker.ok(&["session", "state", "steps", "a", "--raw"]), "half way");
    let bytes = [0xff, 0, 0x1b];
    let set = broker.program(&["session", "set-state", "steps", "a", "--file", "-"]);
    assert_eq!(set.input(&bytes).run().code, 0);
    let raw = broker.program(&["session", "state", "steps", "a", "--raw"]).run();
    assert_eq!(raw.bytes, bytes);
    let json = broker.ok(&["session", "state", "steps", "a", "-o", "json"]);
    assert_eq!(json, "{\"sessionId\":\"a\",\"stateBase64\":\"/wAb\"}\n");
    broker.ok(&["session", "set-state", "steps", "a", "--clear"]);
    let (out, log) = broker.ends(6, &["session", "state", "steps", "a"]);
    assert_eq!((out.as_str(), log.as_str()), ("", "session `a` of `steps` has no state\n"));
    broker.ends(2, &["session", "set-state", "steps", "a"]);
    broker.ends(2, &["session", "set-state", "steps", "a", "x", "--clear"]);
}

/// DEL-07: a purge deletes messages of sessions that no client holds.
#[test]
fn a_queue_with_sessions_can_be_purged() {
    let broker = with_sessions();
    let out = broker.ok(&["queue", "purge", "steps", "--yes"]);
    assert_eq!(out, "deleted 3 messages of steps\n");
    assert!(broker.peek("steps").is_empty());
}
