//! `peeklock top` in a pipe

use super::broker::Broker;

/// CNT-13
#[test]
fn readings_in_a_pipe_are_lines_of_json_with_rates() {
    let broker = Broker::with_queue(&["--max-delivery-count", "1"]);
    broker.send("orders", &["a", "b"]);
    let mut running = broker.program(&["top", "--interval", "100ms"]).start();
    let read = |line: String| -> serde_json::Value { serde_json::from_str(&line).unwrap() };
    let first = read(running.line());
    let queue = &first["queues"][0];
    assert_eq!((&queue["path"], &queue["active"]), (&"orders".into(), &2.into()));
    assert!(queue["inPerSecond"].is_null());
    broker.send("orders", &["c"]);
    broker.ok(&["receive", "orders"]);
    broker.ok(&["receive", "orders", "--settle", "abandon"]);
    let (mut came, mut went) = (0.0, 0.0);
    loop {
        let queue = &read(running.line())["queues"][0];
        came += queue["inPerSecond"].as_f64().unwrap();
        went += queue["outPerSecond"].as_f64().unwrap();
        if queue["deadLettered"] == 1 {
            assert_eq!(queue["active"], 1);
            break;
        }
    }
    assert!(came > 0.0 && went > 0.0, "{came} {went}");
    running.signal("-INT");
    assert_eq!(running.end().0, 0);
}

#[test]
fn a_table_is_sorted_by_the_given_column() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["queue", "create", "a"]);
    broker.ok(&["queue", "create", "b"]);
    broker.send("b", &["x", "y"]);
    broker.send("orders", &["x"]);
    let names = |sort: &str| -> Vec<String> {
        let out = broker.ok(&["top", "--once", "--interval", "100ms", "--sort", sort]);
        let mut lines = out.lines();
        let heads: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        // The column that determines the order is marked.
        let (name, active) =
            if sort == "name" { ("NAME↑", "ACTIVE") } else { ("NAME", "ACTIVE↓") };
        assert_eq!(
            heads,
            [name, "KIND", active, "DEAD", "SCHEDULED", "DEFERRED", "IN/s", "OUT/s", "SIZE"]
        );
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names("active"), ["b", "orders", "a"]);
    assert_eq!(names("name"), ["a", "b", "orders"]);
}

#[test]
fn readings_end_quietly_when_the_reader_leaves() {
    let broker = Broker::with_queue(&[]);
    let mut running = broker.program(&["top", "--interval", "100ms"]).start();
    running.line();
    running.leave();
    let (code, _, log) = running.end();
    assert_eq!((code, log.as_str()), (0, ""));
}

/// CNT-01, CNT-04, CNT-13: topics and subscriptions are shown next to queues, with the values that
/// they have.
#[test]
fn topics_and_subscriptions_are_shown_next_to_queues() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["topic", "create", "events"]);
    broker.ok(&["topic", "create", "quiet"]);
    broker.ok(&["subscription", "create", "events", "all"]);
    broker.ok(&["subscription", "create", "events", "none", "--none"]);
    broker.ok(&["send", "events", "a"]);
    broker.ok(&["send", "events", "later", "--at", "+1h"]);
    let table = broker.ok(&["top", "--once", "--interval", "100ms", "--sort", "name"]);
    let lines: Vec<Vec<&str>> =
        table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let all = "events/Subscriptions/all";
    assert_eq!(lines[0][..8], ["events", "topic", "-", "-", "1", "-", "0.0", "-"]);
    assert_eq!(lines[1][..8], [all, "subscription", "1", "0", "-", "0", "0.0", "0.0"]);
    assert_eq!(lines[2][..3], ["events/Subscriptions/none", "subscription", "0"]);
    assert_eq!(lines[3][..8], ["orders", "queue", "0", "0", "0", "0", "0.0", "0.0"]);
    assert_eq!((lines[4][0], lines.len()), ("quiet", 5));
    // Columns are aligned.
    let kinds = ["topic", "subscription", "queue"];
    let places: Vec<_> = table
        .lines()
        .skip(1)
        .map(|line| kinds.iter().find_map(|kind| line.find(&format!(" {kind} "))).unwrap())
        .collect();
    assert_eq!(places, [places[0]; 5], "{table}");

    let arguments = ["top", "--interval", "100ms", "--kind", "topic,subscription"];
    let mut running = broker.program(&arguments).start();
    let read = |line: String| -> serde_json::Value { serde_json::from_str(&line).unwrap() };
    let first = read(running.line());
    assert!(first.get("queues").is_none());
    assert_eq!(first["topics"][0]["scheduled"], 1);
    assert!(first["topics"][0].get("active").is_none());
    assert_eq!(first["subscriptions"].as_array().unwrap().len(), 2);
    broker.ok(&["receive", "events/subscriptions/all"]);
    broker.ok(&["send", "events", "b"]);
    let (mut published, mut came, mut went) = (0.0, 0.0, 0.0);
    while published == 0.0 || came == 0.0 || went == 0.0 {
        let seen = read(running.line());
        let rate = |of: &serde_json::Value| of.as_f64().unwrap();
        published += rate(&seen["topics"][0]["inPerSecond"]);
        came += rate(&seen["subscriptions"][0]["inPerSecond"]);
        went += rate(&seen["subscriptions"][0]["outPerSecond"]);
        assert_eq!(rate(&seen["subscriptions"][1]["inPerSecond"]), 0.0);
    }
    running.signal("-INT");
    assert_eq!(running.end().0, 0);
}
