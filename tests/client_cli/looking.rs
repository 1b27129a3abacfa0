//! `peeklock inspect`, `locks`, `sessions`, `clients` and `schedule show`

use serde_json::Value;

use super::broker::Broker;

fn rows(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn heads(out: &str) -> Vec<&str> {
    out.lines().next().unwrap_or_default().split("  ").filter(|head| !head.is_empty()).collect()
}

/// CON-02, CON-03, CON-41: messages in any state are listed without their bodies, and a body is
/// written unchanged.
#[test]
fn inspect_shows_messages_with_their_state() {
    let broker = Broker::with_queue(&["--lock-duration", "5m"]);
    broker.send("orders", &["one", "two", "three"]);
    broker.ok(&["send", "orders", "late", "--at", "+1h", "--subject", "reminder"]);
    broker.ok(&["receive", "orders", "--settle", "none"]);
    let out = broker.ok(&["inspect", "orders"]);
    let names =
        ["SEQUENCE", "STATE", "ENQUEUED", "TRIES", "SIZE", "ID", "SUBJECT", "ERROR", "LOCK"];
    assert_eq!(heads(&out).iter().map(|head| head.trim()).collect::<Vec<_>>(), names, "{out}");
    assert!(out.contains("locked") && out.contains(" left") && out.contains("reminder"), "{out}");

    let states = |arguments: &[&str]| -> Vec<(u64, String)> {
        let all = [&["inspect", "orders", "-o", "ndjson"], arguments].concat();
        let found = rows(&broker.ok(&all));
        let state = |head: &Value| {
            (head["sequenceNumber"].as_u64().unwrap(), head["state"].as_str().unwrap().to_owned())
        };
        found.iter().map(state).collect()
    };
    let of = |number: u64, state: &str| (number, state.to_owned());
    assert_eq!(states(&["--state", "locked,scheduled"]), [of(1, "locked"), of(4, "scheduled")]);
    assert_eq!(states(&["--descending", "-n", "2"]), [of(4, "scheduled"), of(3, "active")]);
    assert_eq!(states(&["--from", "3", "--state", "active"]), [of(3, "active")]);
    let (_, log) = broker.ends(6, &["inspect", "orders", "--state", "deferred"]);
    assert_eq!(log, "`orders` has no such message\n");
    let (_, log) = broker.ends(0, &["inspect", "orders", "-n", "1"]);
    assert!(log.contains("there are more"), "{log}");

    assert_eq!(broker.ok(&["inspect", "orders", "--body", "2"]), "two");
    let (_, log) = broker.ends(4, &["inspect", "orders", "--body", "99"]);
    assert!(log.contains("MessageNotFound"), "{log}");
    broker.ends(2, &["inspect", "orders", "--body", "2", "--state", "active"]);
    broker.ends(2, &["inspect", "--state", "active"]);
}

/// CON-04, CON-41: entities are filtered and sorted.
#[test]
fn inspect_lists_entities() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["topic", "create", "events"]);
    broker.ok(&["subscription", "create", "events", "all"]);
    broker.send("orders", &["a", "b"]);
    let paths = |arguments: &[&str]| -> Vec<String> {
        let all = [&["inspect", "-o", "ndjson"], arguments].concat();
        let found = rows(&broker.ok(&all));
        found.iter().map(|row| row["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&[]), ["events", "events/Subscriptions/all", "orders"]);
    assert_eq!(paths(&["--sort", "active", "-n", "1"]), ["orders"]);
    assert_eq!(paths(&["--filter", "EVENT", "--kind", "topic"]), ["events"]);
    let found = paths(&["--condition", "has-no-receiver"]);
    assert_eq!(found, ["events/Subscriptions/all", "orders"]);
    broker.ends(6, &["inspect", "--condition", "has-dead-letters"]);
    let table = broker.ok(&["inspect"]);
    assert!(table.starts_with("ENTITY") && table.contains("OUT/s"), "{table}");
}

/// CON-24, CON-25, CON-41: locks have their holder, which is also a client in the list.
#[test]
fn locks_and_clients_show_who_holds_a_message() {
    let broker = Broker::with_queue(&["--lock-duration", "5m"]);
    broker.send("orders", &["a"]);
    let (_, log) = broker.ends(6, &["locks", "orders"]);
    assert_eq!(log, "`orders` has no locks\n");
    let held = ["receive", "orders", "-n", "2", "--wait", "5m", "--settle", "none", "--body-only"];
    let mut running = broker.program(&held).start();
    assert_eq!(running.line(), "a");
    let locks = rows(&broker.ok(&["locks", "orders", "--sort", "age", "-o", "ndjson"]));
    let holder = &locks[0]["lock"]["holder"];
    assert_eq!(
        (&locks[0]["sequenceNumber"], &holder["transport"]),
        (&1.into(), &"websocket".into())
    );
    assert_eq!(holder["isConnected"], true);
    assert!(!locks[0].to_string().contains("lockToken"));
    let clients = rows(&broker.ok(&["clients", "--entity", "orders", "-o", "ndjson"]));
    assert_eq!(clients.len(), 1);
    assert_eq!(
        (&clients[0]["clientId"], &clients[0]["links"][0]["role"]),
        (&holder["clientId"], &"receiver".into())
    );
    let links = broker.ok(&["clients", "--entity", "orders", "--links"]);
    assert!(links.contains("IN HAND") && links.contains("receiver"), "{links}");
    let table = broker.ok(&["locks", "orders"]);
    assert!(table.contains("RENEWALS") && table.contains("websocket"), "{table}");
    let id = holder["clientId"].to_string();
    assert_eq!(broker.ok(&["clients", "close", &id]), format!("closed client {id}\n"));
    let clients = rows(&broker.ok(&["clients", "-o", "ndjson"]));
    let is_other = |client: &Value| client["clientId"] != holder["clientId"];
    assert!(clients.iter().all(is_other), "{clients:?}");
    running.signal("-INT");
    running.end();
}

/// CON-26, CON-41: a lock that outlived its connection is broken, uncounted or counted; a lock that
/// is gone is reported.
#[test]
fn locks_are_broken_by_number_and_by_session() {
    let broker = Broker::with_queue(&["--lock-duration", "5m"]);
    broker.send("orders", &["a"]);
    for flags in [&[][..], &["--counted"], &[]] {
        broker.ok(&["receive", "orders", "--settle", "none"]);
        let end = [&["locks", "break", "orders", "1", "2"], flags].concat();
        assert_eq!(broker.ok(&end), "broke 1 lock of orders\n");
        let (_, log) = broker.ends(6, &end);
        assert_eq!(log, "`orders` has no such lock\n");
    }
    let shown = rows(&broker.ok(&["inspect", "orders", "-o", "ndjson"]));
    assert_eq!(shown[0]["deliveryCount"], 1);
    broker.ends(6, &["locks", "break", "orders", "1", "-o", "json"]);
    broker.ends(2, &["locks", "break", "orders"]);
    broker.ok(&["queue", "create", "steps", "--requires-session"]);
    broker.ends(6, &["locks", "break", "steps", "--session", "a"]);
    broker.ends(6, &["locks", "--", "orders"]);
}

/// CON-12, CON-41: messages are deleted, dead-lettered and rescheduled by number; a message that is
/// left alone is reported.
#[test]
fn messages_are_acted_on_by_number() {
    let broker = Broker::with_queue(&["--lock-duration", "5m"]);
    broker.send("orders", &["a", "b", "c"]);
    broker.ok(&["send", "orders", "later", "--at", "+1h"]);
    let dead = ["message", "dead-letter", "orders", "1", "--reason", "wrong"];
    assert_eq!(broker.ok(&dead), "dead-lettered 1 message of orders\n");
    broker.ok(&["receive", "orders", "--settle", "none"]);
    let delete = ["message", "delete", "orders", "2", "3"];
    let (out, log) = broker.ends(8, &delete);
    assert_eq!(out, "deleted 1 message of orders\n");
    assert_eq!(
        log,
        "message 2: a receiver holds it; --break-locks breaks the lock, except in a session\n"
    );
    let (_, log) = broker.ends(6, &["message", "undefer", "orders", "9"]);
    assert_eq!(log, "message 9: no such message here\n");
    let broken = [&delete[..4], &["--break-locks", "-o", "json"]].concat();
    let json = r#"{"messages":[{"sequenceNumber":2,"result":"done"}]}"#;
    assert_eq!(broker.ok(&broken), format!("{json}\n"));
    let now = ["message", "reschedule", "orders", "4", "--now"];
    assert_eq!(broker.ok(&now), "rescheduled 1 message of orders\n");
    let received = broker.ok(&["receive", "orders", "--body-only", "--wait", "30s"]);
    assert_eq!(received.trim_end(), "later");
    let dead = ["message", "delete", "orders/$deadletterqueue", "1"];
    assert_eq!(broker.ok(&dead), "deleted 1 message of orders/$deadletterqueue\n");
    broker.ends(2, &["message", "reschedule", "orders", "4"]);
    broker.ends(2, &["message", "delete", "orders"]);
}

/// CON-27, CON-41: sessions are sorted, and a state is read while a receiver holds the session.
#[test]
fn sessions_show_their_messages_and_state() {
    let broker = Broker::start();
    broker.ok(&["queue", "create", "steps", "--requires-session", "--lock-duration", "5m"]);
    for (session, text) in [("b", "1"), ("a", "2"), ("b", "3")] {
        broker.ok(&["send", "steps", text, "--session", session]);
    }
    broker.ok(&["session", "set-state", "steps", "b", "packed"]);
    let held = ["receive", "steps", "--session", "b", "-n", "3", "--wait", "5m"];
    let held = [&held[..], &["--settle", "none", "--body-only"]].concat();
    let mut running = broker.program(&held).start();
    assert_eq!([running.line(), running.line()], ["1", "3"]);
    assert_eq!(broker.ok(&["sessions", "steps", "--state", "b"]), "packed");
    broker.ends(6, &["sessions", "steps", "--state", "a"]);
    let found = ["sessions", "steps", "--sort", "active", "--descending", "-o", "ndjson"];
    let found = rows(&broker.ok(&found));
    assert_eq!((&found[0]["sessionId"], &found[0]["activeMessageCount"]), (&"b".into(), &2.into()));
    assert_eq!(
        (&found[0]["stateSize"], &found[0]["lock"]["isOfSession"]),
        (&6.into(), &true.into())
    );
    assert_eq!(found[1]["sessionId"], "a");
    broker.ends(6, &["sessions", "steps", "--stuck"]);
    let table = broker.ok(&["sessions", "steps"]);
    assert!(table.starts_with("SESSION") && table.contains("HOLDER"), "{table}");
    running.signal("-INT");
    running.end();
}

/// CON-31, CON-41: values over time, of an entity and of the namespace, as table, rows and JSON.
#[test]
fn series_are_shown_over_time() {
    let broker = Broker::with_queue(&[]);
    for entity in [&["orders"][..], &[]] {
        let series = |more: &[&'static str]| [&["series"][..], entity, more].concat();
        let before = broker.ok(&series(&["-o", "json"]));
        let before: Value = serde_json::from_str(&before).unwrap();
        let before = before.get(0).unwrap_or(&before);
        assert_eq!(before["columns"].as_object().unwrap().len(), 30, "{before}");
        broker.ok(&["send", "orders", "a"]);
        // The message counts when its second is over.
        let fine = series(&["--span", "1m", "--resolution", "1s", "-o", "json"]);
        let accepted = || {
            let shown: Value = serde_json::from_str(&broker.ok(&fine)).unwrap();
            let shown = shown.get(0).unwrap_or(&shown);
            let values = shown["columns"]["accepted"].as_array().unwrap().clone();
            values.iter().filter_map(Value::as_u64).sum::<u64>()
        };
        while accepted() == 0 {}
        let table = broker.ok(&series(&["--span", "1m", "--resolution", "1s"]));
        assert!(table.starts_with("COLUMN") && table.contains("accepted"), "{table}");
        let list = broker.ok(&series(&["--span", "1m", "--resolution", "1s", "--list"]));
        assert!(list.starts_with("FROM") && list.contains("WAIT P95"), "{list}");
    }
    broker.ends(4, &["series", "none"]);
    broker.ends(2, &["series", "--resolution", "2s"]);
}

/// CON-29, CON-41: the stations of a message as table and rows, by number and by id.
#[test]
fn journey_is_shown_by_number_and_by_id() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["send", "orders", "a", "--id", "one"]);
    broker.ok(&["receive", "orders", "--settle", "dead-letter", "--reason", "wrong"]);
    let table = broker.ok(&["journey", "orders", "1"]);
    let names = ["TIME", "ENTITY", "NUMBER", "STATION", "DETAIL", "CLIENT"];
    assert_eq!(heads(&table).iter().map(|head| head.trim()).collect::<Vec<_>>(), names, "{table}");
    assert!(table.contains("by its receiver") && table.contains("peeklock"), "{table}");
    let expected = ["accepted", "delivered", "deadLettered"];
    for arguments in
        [&["orders", "1"][..], &["orders/$deadletterqueue", "1"], &["--message-id", "one"]]
    {
        let all = [&["journey", "-o", "ndjson"], arguments].concat();
        let found = rows(&broker.ok(&all));
        let stations: Vec<_> = found.iter().map(|row| row["station"].as_str().unwrap()).collect();
        assert_eq!(stations, expected, "{arguments:?}");
        assert!(found.iter().all(|row| row["path"] == "orders" && row["sequenceNumber"] == 1));
    }
    broker.ends(6, &["journey", "orders", "2"]);
    broker.ends(6, &["journey", "--message-id", "two"]);
    broker.ends(4, &["journey", "none", "1"]);
    broker.ends(2, &["journey", "orders"]);
    broker.ends(2, &["journey", "orders", "1", "--message-id", "one"]);
}

/// CON-38, CON-41: entities and their destinations as table and JSON.
#[test]
fn topology_is_shown() {
    let broker = Broker::with_queue(&[]);
    broker.ends(6, &["topology"]);
    broker.ok(&["queue", "create", "archive"]);
    broker.ok(&["queue", "update", "orders", "--forward-to", "archive"]);
    broker.ok(&["topic", "create", "events"]);
    broker.ok(&[
        "subscription",
        "create",
        "events",
        "all",
        "--forward-dead-lettered-messages-to",
        "orders",
    ]);
    let table = broker.ok(&["topology"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["FROM", "KIND", "TO", "RATE", "WAITING", "FAILED"], "{table}");
    assert_eq!(lines[1][..3], ["events", "copies", "events/Subscriptions/all"], "{table}");
    assert_eq!(lines[3][..3], ["orders", "messages", "archive"], "{table}");
    let all = broker.ok(&["topology", "-o", "json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all[0]["longestChain"]["hops"], 2, "{all}");
    assert_eq!(all[0]["nodes"].as_array().unwrap().len(), 4);
    let near = rows(&broker.ok(&["topology", "archive", "--hops", "1", "-o", "ndjson"]));
    assert_eq!(near[0]["nodes"].as_array().unwrap().len(), 2, "{near:?}");
    broker.ends(4, &["topology", "none"]);
    broker.ends(2, &["topology", "orders", "--hops", "17"]);
}

/// CON-39, CON-41: findings are shown with their remedies, muted, and shown again.
#[test]
fn findings_are_shown_and_muted() {
    let broker = Broker::with_queue(&[]);
    let shown = broker.ok(&["checks", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), Value::Array(Vec::new()));
    assert_eq!(broker.ok(&["checks", "orders", "--kind", "nearlyFull"]), "");
    let kind = "deadLettersUnread";
    let muted = broker.ok(&["checks", "mute", kind, "orders", "--reason", "known"]);
    assert_eq!(muted, "muted deadLettersUnread of orders\n");
    let muted = broker.ok(&["checks", "mute", "diskNearlyFull", "--reason", "x", "-o", "json"]);
    let expected = r#"{"kind":"diskNearlyFull","path":"","result":"muted"}"#;
    assert_eq!(muted.trim_end(), expected);
    let unmuted = broker.ok(&["checks", "unmute", "diskNearlyFull"]);
    assert_eq!(unmuted, "unmuted diskNearlyFull of the broker\n");
    broker.ends(4, &["checks", "mute", kind, "none", "--reason", "known"]);
    broker.ends(2, &["checks", "mute", "none", "orders", "--reason", "known"]);
    broker.ends(2, &["checks", "mute", kind, "orders"]);
}

/// CON-28, CON-41: scheduled messages are counted by slot, in an entity and in the namespace.
#[test]
fn schedule_is_shown_by_slot() {
    let broker = Broker::with_queue(&[]);
    for at in ["+30m", "+30m", "+5h"] {
        broker.ok(&["send", "orders", "later", "--at", at]);
    }
    for entity in [&["orders"][..], &[]] {
        let slots = ["schedule", "show", "--slot", "1h", "--slots", "3", "-o", "json"];
        let shown = broker.ok(&[&slots[..], entity].concat());
        let timeline: Value = serde_json::from_str(&shown).unwrap();
        let timeline = timeline.get(0).unwrap_or(&timeline);
        assert_eq!(timeline["counts"], serde_json::json!([2, 0, 0]), "{shown}");
        assert_eq!(timeline["later"], 1, "{shown}");
    }
    let table = broker.ok(&["schedule", "show", "orders", "--slot", "1h", "--slots", "3"]);
    assert!(table.contains("SCHEDULED") && table.contains('█'), "{table}");
    let list = broker.ok(&["schedule", "show", "orders", "--list", "-o", "ndjson"]);
    assert_eq!(rows(&list).len(), 3);
    broker.ends(2, &["schedule", "show", "orders", "--slot", "1s"]);
    broker.ends(2, &["schedule", "show", "orders", "--slots", "241"]);
}

/// CON-34, CON-41: a tap shows messages that are accepted while it is open, and takes none.
#[test]
fn tap_shows_messages_and_takes_none() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["before"]);
    let mut running = broker.program(&["tap", "orders", "-n", "2", "-o", "ndjson"]).start();
    assert_eq!(running.log_line(), "the tap on `orders` is open");
    broker.send("orders", &["a", "b"]);
    let heads = [running.line(), running.line()];
    let heads = heads.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let shown = heads.map(|head| (head["sequenceNumber"].clone(), head["bodyStart"].clone()));
    assert_eq!(shown, [(2.into(), "a".into()), (3.into(), "b".into())]);
    assert_eq!(running.end().0, 0);
    assert_eq!(broker.bodies("orders").len(), 3);
    let mut running = broker.program(&["tap", "orders", "-n", "1"]).start();
    running.log_line();
    broker.send("orders", &["c"]);
    assert!(running.line().contains("  4  "));
    assert_eq!(running.end().0, 0);
}

/// CON-35, CON-36, CON-37, CON-41: a rule is tried on the samples of a topic before it is saved.
#[test]
fn rules_are_tried_on_samples() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["topic", "create", "events"]);
    broker.ends(6, &["samples", "events"]);
    broker.ok(&["subscription", "create", "events", "dear", "--sql", "price > 5"]);
    for price in ["1", "7"] {
        let property = format!("price:i32={price}");
        broker.ok(&["send", "events", "x", "--id", price, "--property", &property]);
    }
    let table = broker.ok(&["samples", "events"]);
    let names = ["NUMBER", "TIME", "SIZE", "COPIES", "ID", "SUBJECT", "PROPERTIES"];
    assert_eq!(heads(&table).iter().map(|head| head.trim()).collect::<Vec<_>>(), names, "{table}");
    assert!(table.contains("price=7"), "{table}");
    let samples = rows(&broker.ok(&["samples", "events", "-o", "ndjson"]));
    let copies: Vec<_> = samples.iter().map(|row| row["copyCount"].as_u64().unwrap()).collect();
    assert_eq!(copies, [1, 0]);
    let explained = broker.ok(&["rule", "test", "events", "--sequence", "2"]);
    assert!(explained.starts_with("subscription dear\nrule $Default selects it\n"), "{explained}");
    assert!(explained.ends_with("copy by rule $Default\n\n1 copy in all\n"), "{explained}");
    broker.ends(6, &["rule", "test", "events", "--property", "price:i32=1"]);
    broker.ends(4, &["rule", "test", "events", "--sequence", "9"]);
    let shown = broker.ok(&["what-if", "events", "dear", "--sql", "price < 5"]);
    let lines: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["dear", "1", "1", "1", "1", "0"], "{shown}");
    assert_eq!(lines[4][..4], ["samples", "2", "7", "-dear"], "{shown}");
    assert_eq!(lines[5][..4], ["samples", "1", "1", "+dear"], "{shown}");
    let found = broker.ok(&["what-if", "events", "dear", "--remove", "-o", "json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found[0]["subscriptions"][0]["lost"], 1, "{found}");
    broker.ends(6, &["what-if", "events", "dear", "--sql", "price > 6"]);
    broker.ends(2, &["what-if", "events", "dear"]);
    broker.ends(4, &["what-if", "events", "none", "--all"]);
    let rules = broker.ok(&["rule", "list", "events", "dear"]);
    assert!(rules.contains("price > 5"), "nothing has changed: {rules}");
}
