//! `peeklock search` and `dlq groups`

use serde_json::Value;

use super::broker::Broker;

fn rows(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// CON-05, CON-06, CON-07, CON-41: messages are found by their content, in one or all entities, with
/// the place of the match; a search that met its bound goes on from its position.
#[test]
fn search_finds_messages() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["queue", "create", "bills"]);
    broker.send("orders", &[r#"{"id": 17}"#, r#"{"id": 18}"#, r#"{"id": 17, "late": true}"#]);
    broker.send("bills", &["bill of order 17"]);
    let numbers = |arguments: &[&str]| -> Vec<(String, u64)> {
        let found = rows(&broker.ok(&[&["search", "-o", "ndjson"], arguments].concat()));
        let place = |hit: &Value| {
            (hit["path"].as_str().unwrap().to_owned(), hit["sequenceNumber"].as_u64().unwrap())
        };
        found.iter().map(place).collect()
    };
    let of = |path: &str, number: u64| (path.to_owned(), number);
    assert_eq!(numbers(&["orders", "body.$.id=17"]), [of("orders", 1), of("orders", 3)]);
    assert_eq!(numbers(&["orders", "body.$.id=17 not body.$.late"]), [of("orders", 1)]);
    assert_eq!(numbers(&["ORDER"]), [of("bills", 1)]);
    assert_eq!(numbers(&["orders", "bills", "body:17 after:-1h", "--descending"]).len(), 3);
    let table = broker.ok(&["search", "orders", "body.$.late"]);
    assert!(table.contains("MATCH") && table.contains(r#"{"id": 17, "late": true}"#), "{table}");

    let (out, log) = broker.ends(0, &["search", "orders", "body.$.id", "-n", "2", "-o", "ndjson"]);
    assert_eq!(rows(&out).len(), 2);
    assert!(log.contains("looked at 2 messages") && log.contains("bound of hits"), "{log}");
    let (_, rest) = log.split_once("--after ").unwrap();
    let (after, _) = rest.split_once('`').unwrap();
    assert_eq!(numbers(&["orders", "body.$.id", "--after", after]), [of("orders", 3)]);

    let (_, log) = broker.ends(6, &["search", "orders", "id=none"]);
    assert!(log.contains("no message meets the conditions"), "{log}");
    assert!(!log.contains("was searched as a text"), "{log}");
    let (_, log) = broker.ends(6, &["search", "orders"]);
    assert!(log.contains("`peeklock search orders ''` lists the messages"), "{log}");
    assert_eq!(numbers(&["orders", ""]).len(), 3);
    let (_, log) = broker.ends(2, &["search", "orders", "raeson:x"]);
    assert!(log.contains("`raeson` is none of"), "{log}");
    broker.ends(4, &["search", "absent", "x"]);
}

/// CON-11, CON-41: dead letters are counted by cause, with any numbers in their descriptions.
#[test]
fn dead_letters_are_counted_by_cause() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b", "c"]);
    for cause in ["order 17 timed out", "order 4711 timed out", "no stock"] {
        broker.ok(&["receive", "orders", "--settle", "dead-letter", "--description", cause]);
    }
    let table = broker.ok(&["dlq", "groups", "orders"]);
    assert!(table.contains("order {n} timed out") && table.contains("1, 2"), "{table}");
    let groups = rows(&broker.ok(&["dlq", "groups", "orders", "-o", "ndjson"]));
    assert_eq!((groups.len(), &groups[0]["count"]), (2, &Value::from(2)));
    let groups = rows(&broker.ok(&["dlq", "groups", "orders", "timed", "-o", "ndjson"]));
    assert_eq!(groups.len(), 1);
    // SET-42, DLQ-34: the errors of failed attempts are causes too.
    broker.ok(&["queue", "create", "failing", "--max-delivery-count", "1"]);
    broker.send("failing", &["a", "b"]);
    for error in ["no route to 10.0.0.7", "no route to 10.0.0.12"] {
        broker.ok(&["receive", "failing", "--abandon", "--error", error]);
    }
    broker.ends(2, &["receive", "failing", "--error", "x"]);
    let [group] = &rows(&broker.ok(&["dlq", "groups", "failing", "-o", "ndjson"]))[..] else {
        panic!("one group");
    };
    assert_eq!(group["count"], 2);
    for command in [
        &["dlq", "groups", "failing"][..],
        &["dlq", "list", "failing"],
        &["dlq", "show", "failing", "1"],
        &["inspect", "failing", "--dead-letter"],
    ] {
        let out = broker.ok(command);
        assert!(out.contains("no route to "), "{out}");
    }
    broker.ends(2, &["dlq", "groups", "orders", "--by", "colour"]);
    broker.ends(6, &["dlq", "groups", "orders", "nothing"]);
}
