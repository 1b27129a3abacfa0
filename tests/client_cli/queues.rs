//! `peeklock queue`

use peeklock_core::time::{TimeSpan, Timestamp};

use super::broker::{Broker, body};
use super::program::Program;

#[test]
fn a_queue_is_created_shown_listed_changed_and_deleted() {
    let broker = Broker::start();
    let created = broker.ok(&[
        "queue",
        "create",
        "eu/orders",
        "--lock-duration",
        "30s",
        "--max-delivery-count",
        "3",
        "--default-message-time-to-live",
        "P1D",
        "--dead-lettering-on-message-expiration",
        "--requires-duplicate-detection=true",
        "--duplicate-detection-history-time-window",
        "1h",
        "--max-size-in-megabytes",
        "2048",
        "--user-metadata",
        "ours",
        "--auto-delete-on-idle",
        "2h",
        "--enable-batched-operations=false",
        "-o",
        "json",
    ]);
    let created: serde_json::Value = serde_json::from_str(&created).unwrap();
    for (property, expected) in [
        ("path", "eu/orders".into()),
        ("lockDuration", "PT30S".into()),
        ("maxDeliveryCount", 3.into()),
        ("defaultMessageTimeToLive", "P1D".into()),
        ("deadLetteringOnMessageExpiration", true.into()),
        ("requiresDuplicateDetection", true.into()),
        ("duplicateDetectionHistoryTimeWindow", "PT1H".into()),
        ("maxSizeInMegabytes", 2048.into()),
        ("userMetadata", "ours".into()),
        ("autoDeleteOnIdle", "PT2H".into()),
        ("enableBatchedOperations", serde_json::Value::from(false)),
    ] {
        assert_eq!(created[property], expected, "{property}");
    }

    // Properties that are not named stay, including optional ones.
    broker.ok(&["queue", "update", "eu/orders", "--max-delivery-count", "5"]);
    let shown = broker.ok(&["queue", "show", "eu/orders", "-o", "ndjson"]);
    assert_eq!(shown.lines().count(), 1);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["maxDeliveryCount"], 5);
    assert_eq!(shown["userMetadata"], "ours");
    assert_eq!(shown["lockDuration"], "PT30S");
    broker.ok(&["queue", "update", "eu/orders", "--clear", "user-metadata"]);
    let table = broker.ok(&["queue", "show", "eu/orders"]);
    assert!(table.contains("\nuser metadata            -\n"), "{table}");
    assert!(table.contains("\nmax delivery count       5\n"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");

    broker.ok(&["queue", "create", "b"]);
    let list = broker.ok(&["queue", "list"]);
    let lines: Vec<Vec<&str>> =
        list.lines().map(|line| line.split_whitespace().collect()).collect();
    let heads = "QUEUE STATUS ACTIVE DELAYED DEAD SCHEDULED DEFERRED SIZE RETRIES";
    assert_eq!(lines[0].join(" "), heads);
    assert_eq!(lines[1], ["b", "Active", "0", "0", "0", "0", "0", "0", "B", "-"]);
    assert_eq!(lines[2][0], "eu/orders");
    let list: Vec<serde_json::Value> =
        serde_json::from_str(&broker.ok(&["queue", "list", "-o", "json"])).unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(broker.ok(&["queue", "list", "-o", "ndjson"]).lines().count(), 2);

    broker.ok(&["queue", "delete", "b", "--yes"]);
    broker.ends(4, &["queue", "delete", "b", "--yes"]);
    broker.ok(&["queue", "delete", "b", "--yes", "--if-exists"]);
    broker.ok(&["queue", "delete", "b", "--if-exists"]);
}

/// More queues than one page has.
#[test]
fn all_queues_are_listed() {
    let broker = Broker::start();
    for number in 0..105 {
        broker.ok(&["queue", "create", &format!("q{number:03}")]);
    }
    let list = broker.ok(&["queue", "list"]);
    let names: Vec<&str> = list.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    let expected: Vec<String> = (0..105).map(|number| format!("q{number:03}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn an_empty_list_succeeds_and_shows_the_create_command() {
    let broker = Broker::start();
    let (out, log) = broker.ends(0, &["queue", "list"]);
    assert_eq!(out, "");
    assert!(log.contains("peeklock queue create"), "{log}");
    assert_eq!(broker.ok(&["queue", "list", "-o", "json"]), "[]\n");
    assert_eq!(broker.ok(&["queue", "list", "-o", "ndjson"]), "");
}

#[test]
fn a_refusal_names_condition_retry_tracking_id_and_remedy() {
    let broker = Broker::with_queue(&[]);
    let (_, log) = broker.ends(5, &["queue", "create", "orders"]);
    assert!(log.starts_with("error: EntityAlreadyExists: "), "{log}");
    assert!(
        log.contains("retryable: no; tracking id: ") && log.contains("--if-not-exists"),
        "{log}"
    );
    broker.ok(&["queue", "create", "orders", "--if-not-exists", "--max-delivery-count", "1"]);
    let shown = broker.ok(&["queue", "show", "orders", "-o", "json"]);
    assert!(shown.contains("\"maxDeliveryCount\": 10"), "{shown}");
    let (_, log) = broker.ends(4, &["queue", "show", "order"]);
    assert!(log.contains("no entity has the path `order`"), "{log}");
    assert!(log.contains("`peeklock queue create order`"), "{log}");
    for out_of_range in ["0", "2147483648"] {
        let update = ["queue", "update", "orders", "--max-delivery-count", out_of_range];
        // The command does not contact a broker.
        let ended = Program::new(&update).run();
        assert_eq!(ended.code, 2);
        assert!(ended.log.contains("is not in 1..=2147483647"), "{}", ended.log);
    }
    let (_, log) = broker.ends(4, &["queue", "create", "s", "--forward-to", "absent"]);
    assert!(log.contains("no entity has the path `absent`"), "{log}");
    broker.ok(&["queue", "create", "s", "--forward-to", "orders"]);
}

/// With --if-not-exists an existing queue is unchanged, and properties that differ are reported.
#[test]
fn an_existing_queue_is_compared_with_the_named_properties() {
    let broker = Broker::with_queue(&[]);
    let again = |properties: &[&str]| {
        let create = ["queue", "create", "orders", "--if-not-exists"];
        broker.ends(0, &[&create[..], properties].concat())
    };
    let (out, log) = again(&["--max-delivery-count", "7", "--lock-duration", "30s"]);
    assert_eq!(out, "queue `orders` already exists\n");
    assert!(log.contains("max_delivery_count is 10, not 7"), "{log}");
    assert!(log.contains("lock_duration is "), "{log}");
    assert!(log.contains("change it with `peeklock queue update orders`"), "{log}");
    let (_, log) = again(&["--requires-session"]);
    assert!(log.contains("requires_session"), "{log}");
    for same in [&[][..], &["--max-delivery-count", "10"]] {
        assert_eq!(again(same).1, "");
    }
    broker.ok(&["topic", "create", "events"]);
    let (_, log) =
        broker.ends(0, &["topic", "create", "events", "--if-not-exists", "--ttl", "P1D"]);
    assert!(log.contains("default_message_time_to_live is"), "{log}");
    let eu = ["subscription", "create", "events", "eu", "--sql", "a = 1"];
    broker.ok(&eu);
    let (_, log) = broker.ends(0, &[&eu[..], &["--if-not-exists"]].concat());
    assert_eq!(log, "");
    let other = ["subscription", "create", "events", "eu", "--if-not-exists", "--sql", "a = 2"];
    let (_, log) = broker.ends(0, &other);
    assert!(log.contains("$Default is "), "{log}");
    broker.ok(&["rule", "add", "events", "eu", "dear", "--sql", "price > 1"]);
    let dear = ["rule", "add", "events", "eu", "dear", "--if-not-exists", "--sql"];
    let (_, log) = broker.ends(0, &[&dear[..], &["price > 1"]].concat());
    assert_eq!(log, "");
    let (_, log) = broker.ends(0, &[&dear[..], &["price > 2"]].concat());
    assert!(log.contains("although its filter differs"), "{log}");
}

#[test]
fn invalid_arguments_are_refused_before_any_request() {
    let broker = Broker::with_queue(&[]);
    for (arguments, expected) in [
        (&["queue", "create", "q", "--lock-duration", "30"][..], "30s"),
        (&["queue", "create", "q", "--status", "Off"], "SendDisabled"),
        (&["queue", "show", "orders/$deadletterqueue"], "sub-queue"),
        (&["queue", "update", "orders"], "nothing to change"),
        (&["queue", "crate", "q"], "create"),
        (&["queue", "list", "--url", "http://127.0.0.1:1"], "ws://HOST:PORT"),
        (&["send", "orders", "x", "--property", "a"], "KEY=VALUE"),
        (&["send", "orders", "x", "--property", "a:i33=1"], "i32"),
        (&["send", "orders", "x", "--rate", "0"], "between"),
        (&["send", "orders", "x", "--at", "tomorrow"], "+10m"),
        (&["send", "orders", "--lines", "--repeat", "2"], "read once"),
        (&["receive", "orders", "--follow", "--all"], "--all"),
        (&["receive", "orders", "--all", "--settle", "abandon"], "--count"),
        (&["dlq", "list", "orders", "--where", "raeson=x"], "fields are reason"),
        (&["schedule", "cancel", "orders"], "NUMBER"),
    ] {
        let (_, log) = broker.ends(2, arguments);
        assert!(log.contains(expected), "{arguments:?}: {log}");
    }
}

/// RTY-29: a retry policy is set, shown and removed, and it delays an abandoned message.
#[test]
fn a_queue_retries_by_its_policy() {
    let broker = Broker::start();
    broker.ok(&[
        "queue",
        "create",
        "orders",
        "--retry",
        "exponential",
        "--retry-delay",
        "1s",
        "--retry-delay-max",
        "5m",
        "--retry-jitter",
        "0.2",
        "--session-retry-order",
        "pass",
    ]);
    let table = broker.ok(&["queue", "show", "orders"]);
    assert!(table.contains("exponential from 1s up to 5m, jitter 0.2\n"), "{table}");
    let list = broker.ok(&["queue", "list"]);
    assert!(list.ends_with("  exponential 1s\n"), "{list}");
    broker.send("orders", &["a"]);
    broker.ok(&["receive", "orders", "--abandon", "--delay", "30s"]);
    broker.ends(6, &["receive", "orders"]);
    let shown = broker.ok(&["queue", "show", "orders", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["runtime"]["delayedMessageCount"], 1);
    let list = broker.ok(&["queue", "list"]);
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["orders", "Active", "1", "1", "0", "0"], "ACTIVE and DELAYED\n{list}");
    let list: serde_json::Value =
        serde_json::from_str(&broker.ok(&["queue", "list", "-o", "json"])).unwrap();
    assert_eq!(list[0]["runtime"]["delayedMessageCount"], 1);
    let peeked = broker.peek("orders");
    assert_eq!(peeked[0]["state"], "Delayed");
    assert_eq!(broker.ok(&["peek", "orders", "--state", "delayed", "--body-only"]), "a\n");
    broker.ok(&["queue", "update", "orders", "--retry", "none"]);
    let table = broker.ok(&["queue", "show", "orders"]);
    assert!(table.contains("\nretries                  at once\n"), "{table}");
    for arguments in [
        &["queue", "update", "orders", "--retry", "fixed"][..],
        &["queue", "update", "orders", "--retry-delay", "1s"],
        &["receive", "orders", "--delay", "1s"],
    ] {
        broker.ends(2, arguments);
    }
}

/// RTY-29: without a retry policy an abandoned message is delayed only if --delay is given, by that
/// time.
#[test]
fn an_abandon_uses_its_own_delay() {
    let broker = Broker::with_queue(&["--max-delivery-count", "5"]);
    broker.send("orders", &["a"]);
    broker.ok(&["receive", "orders", "--abandon"]);
    assert_eq!(broker.peek("orders")[0]["state"], "Active");
    let delay = TimeSpan::from_minutes(30);
    let earliest = now().plus(delay);
    broker.ok(&["receive", "orders", "--abandon", "--delay", "30m"]);
    let latest = now().plus(delay).plus(TimeSpan::from_ms(1));
    let peeked = broker.peek("orders");
    let until = Timestamp::parse(peeked[0]["delayedUntilUtc"].as_str().unwrap()).unwrap();
    assert!((earliest..=latest).contains(&until), "{earliest} to {latest}: {peeked:?}");
    assert_eq!(broker.bodies("orders"), [body("a", 2)]);
    broker.ends(6, &["receive", "orders"]);
}

/// Time of the system's clock in milliseconds.
fn now() -> Timestamp {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_unix_ms(since.as_millis().try_into().unwrap())
}

/// DEL-03, DEL-04, DEL-06
#[test]
fn purge_deletes_available_messages_and_reports_the_rest() {
    let broker = Broker::with_queue(&["--max-delivery-count", "1"]);
    broker.send("orders", &["dead"]);
    broker.ok(&["receive", "orders", "--settle", "abandon"]);
    let bodies: Vec<String> = (0..1200).map(|number| format!("m{number}")).collect();
    broker.send("orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    broker.ok(&["send", "orders", "later", "--at", "+1h"]);
    let (_, log) = broker.ends(2, &["queue", "purge", "orders"]);
    assert!(log.contains("--yes"), "{log}");
    assert_eq!(broker.peek("orders").len(), 1201);
    let (out, log) = broker.ends(0, &["queue", "purge", "orders", "--yes"]);
    assert_eq!(out, "deleted 1200 messages of orders\n");
    assert!(log.contains("1 is still there"), "{log}");
    assert_eq!(broker.bodies("orders"), [body("later", 0)]);
    let out = broker.ok(&["queue", "purge", "orders", "--dead-letter", "--yes", "-o", "json"]);
    assert_eq!(out, "{\"deleted\":1,\"path\":\"orders/$DeadLetterQueue\"}\n");
    broker.ends(4, &["queue", "purge", "absent", "--yes"]);
}

#[test]
fn delete_and_purge_ask_only_on_a_terminal() {
    let broker = Broker::with_queue(&[]);
    let ended = broker.program(&["queue", "delete", "orders"]).input(b"y\n").run();
    assert_eq!(ended.code, 2);
    assert!(ended.log.contains("--yes"), "{}", ended.log);
    broker.ok(&["queue", "show", "orders"]);
}
