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
fn one_table_is_sorted_as_asked() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["queue", "create", "a"]);
    broker.ok(&["queue", "create", "b"]);
    broker.send("b", &["x", "y"]);
    broker.send("orders", &["x"]);
    let names = |sort: &str| -> Vec<String> {
        let out = broker.ok(&["top", "--once", "--interval", "100ms", "--sort", sort]);
        let mut lines = out.lines();
        let heads: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        // The order is marked.
        let (queue, active) =
            if sort == "queue" { ("QUEUE↑", "ACTIVE") } else { ("QUEUE", "ACTIVE↓") };
        assert_eq!(
            heads,
            [queue, active, "DEAD", "SCHEDULED", "DEFERRED", "IN/s", "OUT/s", "SIZE"]
        );
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names("active"), ["b", "orders", "a"]);
    assert_eq!(names("queue"), ["a", "b", "orders"]);
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
