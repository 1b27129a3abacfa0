//! `peeklock topic`, `subscription`, `rule`, `forward`

use serde_json::Value;

use super::broker::Broker;
use super::program::Program;

fn with_topic() -> Broker {
    let broker = Broker::start();
    broker.ok(&["topic", "create", "orders"]);
    broker
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// ENT-03, ENT-07, ENT-17, ENT-30
#[test]
fn a_topic_is_created_shown_listed_changed_and_deleted() {
    let broker = Broker::start();
    let created = json(&broker.ok(&[
        "topic",
        "create",
        "eu/orders",
        "--ttl",
        "P1D",
        "--max-size-in-megabytes",
        "2048",
        "--requires-duplicate-detection",
        "--user-metadata",
        "ours",
        "-o",
        "json",
    ]));
    assert_eq!(created["defaultMessageTimeToLive"], "P1D");
    assert_eq!(created["maxSizeInMegabytes"], 2048);
    assert_eq!(created["requiresDuplicateDetection"], true);
    broker.ok(&["topic", "update", "eu/orders", "--status", "SendDisabled"]);
    let shown = json(&broker.ok(&["topic", "show", "eu/orders", "-o", "ndjson"]));
    assert_eq!(
        (&shown["status"], &shown["userMetadata"]),
        (&"SendDisabled".into(), &"ours".into())
    );
    broker.ok(&["topic", "update", "eu/orders", "--clear", "user-metadata"]);
    let table = broker.ok(&["topic", "show", "eu/orders"]);
    assert!(table.lines().any(|line| words(line) == ["user", "metadata", "-"]), "{table}");
    assert!(table.lines().any(|line| words(line) == ["transfer", "dead-lettered", "0"]), "{table}");

    broker.ok(&["topic", "create", "b"]);
    let list = broker.ok(&["topic", "list"]);
    let lines: Vec<_> = list.lines().map(words).collect();
    assert_eq!(lines[0], ["TOPIC", "STATUS", "SUBSCRIPTIONS", "SCHEDULED", "DEAD", "SIZE"]);
    assert_eq!(lines[1], ["b", "Active", "0", "0", "0", "0", "B"]);
    assert_eq!(lines[2][..2], ["eu/orders", "SendDisabled"]);
    assert_eq!(broker.ok(&["topic", "list", "-o", "ndjson"]).lines().count(), 2);

    broker.ends(5, &["topic", "create", "b"]);
    broker.ok(&["topic", "create", "b", "--if-not-exists"]);
    let (_, log) = broker.ends(2, &["topic", "delete", "b"]);
    assert!(log.contains("--yes"), "{log}");
    broker.ok(&["topic", "delete", "b", "--yes"]);
    broker.ends(4, &["topic", "delete", "b", "--yes"]);
    broker.ok(&["topic", "delete", "b", "--yes", "--if-exists"]);
}

/// TOP-01, TOP-03, TOP-12, TOP-14: messages sent to a topic are received from the subscriptions
/// whose rules select them.
#[test]
fn subscriptions_get_messages_selected_by_their_rules() {
    let broker = with_topic();
    broker.ok(&["subscription", "create", "orders", "audit"]);
    let sql = "region = 'eu' AND price > @limit";
    let limit = ["--parameter", "@limit:i32=5"];
    broker.ok(&[&["sub", "create", "orders", "eu", "--sql", sql][..], &limit].concat());
    let coffee = ["--correlation", "sys.Label=coffee", "--rule-name", "coffee"];
    broker.ok(&[&["subscription", "create", "orders", "coffee"][..], &coffee].concat());
    let action = ["--sql", "price > 100", "--action", "SET priority = 'high'"];
    broker.ok(&[&["rule", "add", "orders", "audit", "dear"][..], &action].concat());

    let dear = ["--property", "region=eu", "--property", "price:i32=120", "--subject", "coffee"];
    broker.ok(&[&["send", "orders", "dear"][..], &dear].concat());
    broker.ok(&["send", "orders", "cheap", "--property", "region=eu", "--property", "price:i32=1"]);
    let bodies = |name: &str| -> Vec<Value> {
        let messages = broker.peek(&format!("orders/subscriptions/{name}"));
        messages.iter().map(|message| message["body"].clone()).collect()
    };
    assert_eq!(bodies("audit"), ["dear", "dear", "cheap"]);
    assert_eq!(bodies("eu"), ["dear"]);
    assert_eq!(bodies("coffee"), ["dear"]);
    let copies = broker.peek("orders/subscriptions/audit");
    assert_eq!(copies[1]["applicationProperties"]["priority"], "high");

    let table = broker.ok(&["subscription", "list", "orders"]);
    let lines: Vec<_> = table.lines().map(words).collect();
    let heads = "SUBSCRIPTION STATUS ACTIVE DELAYED DEAD DEFERRED RETRIES FORWARDS TO";
    assert_eq!(lines[0].join(" "), heads);
    assert_eq!(lines[1], ["audit", "Active", "3", "0", "0", "0", "-", "-"]);
    assert!(broker.ok(&["topic", "show", "orders"]).contains("\ncoffee        Active       1"));

    let out = broker.ok(&["receive", "orders/subscriptions/eu", "--body-only"]);
    assert_eq!(out, "dear\n");
    broker.ends(6, &["receive", "orders/subscriptions/eu"]);
    let (_, log) = broker.ends(1, &["receive", "orders"]);
    assert!(log.contains("subscriptions"), "{log}");
    // RTY-29
    let retry = ["--retry", "linear", "--retry-delay", "2m"];
    broker.ok(&[&["subscription", "update", "orders", "coffee"][..], &retry].concat());
    let list = broker.ok(&["subscription", "list", "orders"]);
    assert!(list.contains("  linear 2m "), "{list}");
    let shown = broker.ok(&["subscription", "show", "orders", "coffee"]);
    assert!(shown.contains("  linear from 2m\n"), "{shown}");
    broker.ok(&["receive", "orders/subscriptions/audit", "--abandon", "--delay", "30m"]);
    let list = broker.ok(&["subscription", "list", "orders"]);
    let row = list.lines().map(words).find(|row| row[0] == "audit").unwrap();
    assert_eq!(row[..5], ["audit", "Active", "3", "1", "0"], "ACTIVE and DELAYED");
    let shown = broker.ok(&["subscription", "show", "orders", "audit", "-o", "json"]);
    assert_eq!(json(&shown)["runtime"]["delayedMessageCount"], 1);
    broker.ok(&["subscription", "update", "orders", "coffee", "--retry", "none"]);
    broker.ok(&["subscription", "update", "orders", "coffee", "--max-delivery-count", "1"]);
    broker.ok(&["receive", "orders/subscriptions/coffee", "--settle", "abandon"]);
    let dead = broker.ok(&["dlq", "list", "orders/subscriptions/coffee"]);
    assert!(dead.contains("MaxDeliveryCountExceeded"), "{dead}");
    let shown = broker.ok(&["subscription", "show", "orders", "coffee"]);
    assert!(shown.contains("\ndead-lettered               1\n"), "{shown}");
    assert!(shown.contains("\ncoffee  sys.Subject = 'coffee'  -\n"), "{shown}");

    broker.ok(&["subscription", "delete", "orders", "coffee", "--yes"]);
    broker.ends(4, &["subscription", "show", "orders", "coffee"]);
    broker.ok(&["subscription", "delete", "orders", "coffee", "--yes", "--if-exists"]);
}

/// TOP-25, TOP-30
#[test]
fn a_catch_all_gets_the_rest_and_rule_test_explains_it() {
    let broker = with_topic();
    broker.ok(&["subscription", "create", "orders", "dear", "--sql", "price > 5"]);
    broker.ok(&["subscription", "create", "orders", "rest", "--catch-all"]);
    for price in ["1", "7"] {
        broker.ok(&["send", "orders", price, "--property", &format!("price:i32={price}")]);
    }
    let bodies = || -> Vec<Value> {
        let messages = broker.peek("orders/subscriptions/rest");
        messages.iter().map(|message| message["body"].clone()).collect()
    };
    assert_eq!(bodies(), ["1"]);
    let (out, _) = broker.ends(6, &["rule", "test", "orders", "rest", "--property", "price:i32=9"]);
    assert_eq!(
        out,
        "rule $Default is not evaluated: the subscription dear selects the message\n\na catch-all \
         gets only messages that no other subscription selects: no copy\n"
    );
    broker.ok(&["rule", "test", "orders", "rest", "--property", "price:i32=1"]);
    let shown = |wanted: &str| {
        let shown = broker.ok(&["subscription", "show", "orders", "rest"]);
        let row = shown.lines().find(|line| line.starts_with("catch-all")).unwrap().to_owned();
        assert_eq!(words(&row), ["catch-all", wanted]);
    };
    shown("true");
    broker.ok(&["subscription", "update", "orders", "rest", "--catch-all=false"]);
    shown("false");
    broker.ok(&["send", "orders", "9", "--property", "price:i32=9"]);
    assert_eq!(bodies(), ["1", "9"]);
}

/// TOP-13, TOP-16, TOP-24
#[test]
fn rules_are_added_shown_replaced_and_removed() {
    let broker = with_topic();
    broker.ok(&["subscription", "create", "orders", "eu"]);
    let of = |command: &'static str, more: &[&'static str]| {
        [&["rule", command, "orders", "eu"][..], more].concat()
    };
    broker.ok(&of("add", &["b", "--sql", "price > 5"]));
    broker.ends(5, &of("add", &["B", "--all"]));
    broker.ok(&of("add", &["B", "--all", "--if-not-exists"]));
    let correlated = ["a", "--correlation", "region=eu", "--correlation", "paid:bool=true"];
    broker.ok(&of("add", &correlated));
    let list = broker.ok(&of("list", &[]));
    let expected = [
        "RULE      SELECTS                         ACTION",
        "$Default  every message                   -",
        "a         region = 'eu' AND paid = true   -",
        "b         price > 5                       -",
    ];
    let squeezed = |text: &str| words(text).join(" ");
    let shown: Vec<_> = list.lines().map(squeezed).collect();
    assert_eq!(shown, expected.map(squeezed));

    broker.ok(&of("update", &["b", "--sql", "price > 7", "--action", "SET a = 1"]));
    let rule = json(&broker.ok(&of("show", &["B", "-o", "json"])));
    assert_eq!((&rule["name"], &rule["filter"]["sql"]), (&"b".into(), &"price > 7".into()));
    assert_eq!(rule["action"]["sql"], "SET a = 1");
    let (_, log) = broker.ends(2, &of("update", &["b", "--sql", "price >"]));
    assert!(log.contains("column 8") && log.contains("`b`"), "{log}");
    let (_, log) = broker.ends(2, &of("update", &["b", "--action", "SET a = 1"]));
    assert!(log.contains("the whole rule"), "{log}");
    let (_, log) = broker.ends(2, &of("add", &["c"]));
    assert!(log.contains("--correlation"), "{log}");
    broker.ok(&of("delete", &["$default"]));
    broker.ends(4, &of("delete", &["$default"]));
    broker.ok(&of("delete", &["$default", "--if-exists"]));
    let names: Vec<Value> = broker
        .ok(&of("list", &["-o", "ndjson"]))
        .lines()
        .map(|line| json(line)["name"].clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

/// TOP-17: an invalid filter or an absent topic is reported before anything is created.
#[test]
fn an_invalid_subscription_is_not_created() {
    let broker = with_topic();
    let (_, log) = broker.ends(2, &["subscription", "create", "orders", "eu", "--sql", "a ="]);
    assert!(log.contains("line 1, column 4"), "{log}");
    broker.ends(4, &["subscription", "show", "orders", "eu"]);
    let (_, log) = broker.ends(4, &["subscription", "create", "order", "eu"]);
    assert!(log.contains("`peeklock topic create order`"), "{log}");
    let (_, log) = broker.ends(4, &["rule", "list", "orders", "us"]);
    assert!(log.contains("peeklock subscription list orders"), "{log}");
    for (arguments, expected) in [
        (&["topic", "create", "a/subscriptions/b"][..], "give only the topic"),
        (&["topic", "show", "a/$deadletterqueue"], "sub-queue"),
        (&["topic", "update", "orders"], "nothing to change"),
        (&["subscription", "update", "orders", "eu"], "`peeklock rule`"),
        (&["subscription", "create", "orders", "eu", "--sql", "1=1", "--all"], "--all"),
        (&["rule", "add", "orders", "eu", "r", "--correlation", "sys.Size=1"], "CorrelationId"),
        (&["rule", "test", "--property", "a=1"], "no rules to test"),
        (&["rule", "test", "orders", "--rule", "a", "--subject", "x"], "SUBSCRIPTION"),
        (&["rule", "test", "orders", "eu", "--sql", "1=1", "--subject", "x"], "--sql"),
        (&["rule", "test", "--all", "--message", "{\"subjct\":1}"], "subjct"),
    ] {
        let (_, log) = broker.ends(2, arguments);
        assert!(log.contains(expected), "{arguments:?}: {log}");
    }
}

/// SQL-15, TOP-02, TOP-03: the broker evaluates each rule, and the output shows the compared
/// values.
#[test]
fn rule_test_explains_the_result_of_each_rule() {
    let broker = with_topic();
    broker.ok(&["subscription", "create", "orders", "eu", "--sql", "region = 'eu'"]);
    let dear = ["--sql", "price > 100 AND region = 'eu'", "--action", "SET priority = 'high'"];
    broker.ok(&[&["rule", "add", "orders", "eu", "dear"][..], &dear].concat());
    let test = ["rule", "test", "orders", "eu"];
    let message = ["--property", "price:i32=120", "--property", "region=eu"];
    let out = broker.ok(&[&test[..], &message].concat());
    let expected = "\
rule $Default selects it
  true     region = 'eu'   saw 'eu' and 'eu'
  region is 'eu'

rule dear selects it
  true     price > 100     saw 120 and 100
  true     region = 'eu'   saw 'eu' and 'eu'
  price is 120
  region is 'eu'
  SET priority = 'high'
  SET RuleName = 'dear'

2 copies
";
    assert_eq!(out, expected);
    // `rule test` sends no message.
    assert!(broker.peek("orders/subscriptions/eu").is_empty());

    let (out, _) =
        broker.ends(6, &[&test[..], &["--rule", "DEAR", "--property", "region=us"]].concat());
    assert!(out.starts_with("rule dear does not select it"), "{out}");
    assert!(out.contains("  unknown  price > 100     saw NULL and 100\n"), "{out}");
    assert!(out.contains("  price is not there\n"), "{out}");
    assert!(out.ends_with("no rule selects it: no copy\n"), "{out}");
    broker.ends(4, &[&test[..], &["--rule", "none", "--property", "region=us"]].concat());

    let input = br#"{"applicationProperties":{"region":"eu"},"sequenceNumber":7}"#;
    let ended = broker.program(&[&test[..], &["-o", "ndjson"]].concat()).input(input).run();
    assert_eq!(ended.code, 0, "{}", ended.log);
    let rules: Vec<Value> = ended.out.lines().map(json).collect();
    assert_eq!(rules[0]["verdict"], "matches");
    assert_eq!(rules[1]["verdict"], "unknown");
    assert_eq!(rules[1]["tests"][0]["operands"], serde_json::json!(["NULL", "100"]));
}

/// Without a broker: a filter from the command line.
#[test]
fn rule_test_tries_a_filter_without_a_broker() {
    let test = |arguments: &[&str]| {
        let ended = Program::new(&[&["rule", "test"], arguments].concat())
            .variable("PEEKLOCK_URL", "ws://127.0.0.1:1")
            .run();
        (ended.code, ended.out, ended.log)
    };
    let (code, out, _) = test(&["--sql", "sys.Label LIKE 'or%'", "--subject", "order"]);
    assert_eq!(code, 0);
    let expected = "\
rule given selects it
  true     sys.Label LIKE 'or%'   saw 'order'
  sys.Subject is 'order'

1 copy
";
    assert_eq!(out, expected);
    let (code, out, _) =
        test(&["--correlation", "sys.Label=tea", "--subject", "coffee", "-o", "json"]);
    assert_eq!(code, 6);
    assert_eq!(json(&out)[0]["verdict"], "doesNotMatch");
    let (code, out, _) = test(&["--sql", "a / 0 = 1", "--property", "a:i32=1"]);
    assert_eq!(code, 6);
    assert!(out.contains("rule given fails: "), "{out}");
    let (code, _, log) = test(&["--sql", "a >", "--property", "a:i32=1"]);
    assert_eq!(code, 2);
    assert!(log.contains("line 1, column 4"), "{log}");
    // Values from messages are escaped.
    let (_, out, _) = test(&["--sql", "a = 'b'", "--property", "a=\u{1b}[31mred"]);
    assert!(out.contains("\\x1b[31mred") && !out.contains('\u{1b}'), "{out}");
}

/// FWD-01, CNT-05: `forward` lists sources, destinations and the number of messages that could not
/// be forwarded.
#[test]
fn forward_lists_destinations_and_failures() {
    let broker = with_topic();
    broker.ok(&["subscription", "create", "orders", "eu"]);
    let (out, log) = broker.ends(0, &["forward"]);
    assert_eq!(out, "");
    assert!(log.contains("--forward-to"), "{log}");
    assert_eq!(broker.ok(&["forward", "-o", "json"]), "[]\n");

    broker.ok(&["queue", "create", "archive"]);
    broker.ok(&["queue", "create", "jobs", "--forward-to", "archive"]);
    broker.send("jobs", &["done"]);
    broker.ok(&["receive", "archive", "--wait", "10s"]);
    broker.ok(&["queue", "delete", "archive", "--yes"]);
    broker.send("jobs", &["lost"]);
    let failed = "jobs/$Transfer/$deadletterqueue";
    broker.ok(&["receive", failed, "--wait", "10s", "--settle", "none"]);
    let table = broker.ok(&["forward"]);
    let lines: Vec<_> = table.lines().map(words).collect();
    assert_eq!(lines[0], ["FROM", "KIND", "TO", "WAITING", "FAILED"]);
    assert_eq!(lines[1], ["jobs", "messages", "archive", "0", "1"]);
    let way = json(&broker.ok(&["forward", "-o", "ndjson"]));
    assert_eq!((&way["what"], &way["to"]), (&"messages".into(), &"archive".into()));
    assert_eq!(way["transferDeadLetterMessageCount"], 1);
    let shown = broker.ok(&["queue", "show", "jobs"]);
    assert!(shown.contains("\nforwards to              archive\n"), "{shown}");
}

/// DEL-03, DEL-06, DEL-07: a purge deletes the available messages of one subscription, or its dead
/// letters, and nothing else.
#[test]
fn a_subscription_is_purged_and_the_others_keep_their_copies() {
    let broker = with_topic();
    broker.ok(&["subscription", "create", "orders", "eu", "--max-delivery-count", "1"]);
    broker.ok(&["subscription", "create", "orders", "audit"]);
    broker.send("orders", &["dead", "a", "b"]);
    let (eu, audit) = ("orders/subscriptions/eu", "orders/subscriptions/audit");
    broker.ok(&["receive", eu, "--settle", "abandon"]);
    let (_, log) = broker.ends(2, &["subscription", "purge", "orders", "eu"]);
    assert!(log.contains("--yes"), "{log}");
    assert_eq!(broker.peek(eu).len(), 2);
    let out = broker.ok(&["subscription", "purge", "orders", "eu", "--yes"]);
    assert_eq!(out, "deleted 2 messages of orders/Subscriptions/eu\n");
    assert!(broker.peek(eu).is_empty());
    assert_eq!(broker.peek(audit).len(), 3);
    let dead = ["subscription", "purge", "orders", "eu", "--dead-letter", "--yes", "-o", "json"];
    let told = json(&broker.ok(&dead));
    assert_eq!(told["path"], "orders/Subscriptions/eu/$DeadLetterQueue");
    assert_eq!(told["deleted"], 1);
    broker.ends(4, &["subscription", "purge", "orders", "us", "--yes"]);
    // The path of a subscription is accepted in place of a queue.
    broker.ok(&["queue", "purge", audit, "--yes"]);
    assert!(broker.peek(audit).is_empty());

    broker.ok(&["subscription", "create", "orders", "steps", "--requires-session"]);
    broker.ok(&["send", "orders", "x", "--session", "s"]);
    let out = broker.ok(&["subscription", "purge", "orders", "steps", "--yes"]);
    assert_eq!(out, "deleted 1 message of orders/Subscriptions/steps\n");
}

/// The error names the kind of entity at the path and a suitable remedy.
#[test]
fn a_queue_is_no_topic() {
    let broker = Broker::start();
    broker.ok(&["queue", "create", "coffee"]);
    for arguments in [&["topic", "show", "coffee"][..], &["subscription", "create", "coffee", "eu"]]
    {
        let (_, log) = broker.ends(4, arguments);
        assert!(log.contains("`coffee` is a queue, not a topic"), "{log}");
        assert!(!log.contains("create coffee"), "{log}");
    }
    for more in [&[][..], &["--if-not-exists"]] {
        let (_, log) = broker.ends(5, &[&["topic", "create", "coffee"], more].concat());
        assert!(log.contains("a queue has this path") && !log.contains("if-not-exists"), "{log}");
    }
    let (_, log) = broker.ends(4, &["topic", "show", "nope"]);
    assert!(log.contains("`peeklock topic create nope` creates one"), "{log}");
    broker.ok(&["topic", "create", "sales"]);
    let (_, log) = broker.ends(1, &["receive", "sales"]);
    assert!(log.contains("`peeklock subscription list sales`"), "{log}");
    assert!(log.contains("sales/subscriptions/NAME") && !log.contains("TOPIC"), "{log}");
    assert!(!log.contains("--next-session"), "{log}");
}

/// The hint names a command that does not fail for the same reason.
#[test]
fn a_missing_topic_is_named_in_the_hint() {
    let broker = Broker::start();
    let (_, log) = broker.ends(4, &["rule", "add", "t", "nosub", "dear", "--sql", "a = 1"]);
    assert!(log.contains("there is no topic `t`"), "{log}");
    assert!(log.contains("create it with `peeklock topic create t`"), "{log}");
    broker.ok(&["topic", "create", "t"]);
    let (_, log) = broker.ends(4, &["rule", "add", "t", "nosub", "dear", "--sql", "a = 1"]);
    assert!(log.contains("`peeklock subscription create t nosub` creates one"), "{log}");
    for dlq in [&["list", "t"][..], &["show", "t", "1"], &["resubmit", "t"]] {
        let (_, log) = broker.ends(4, &[&["dlq"][..], dlq].concat());
        assert!(log.contains("`t` is a topic"), "{log}");
        assert!(log.contains("`peeklock subscription list t`"), "{log}");
    }
}
