//! `peeklock dlq`

use super::broker::{Broker, body};

/// A broker with a queue with dead letters `a` to `d`. Those with odd sequence numbers have
/// expired, the others failed.
fn broker() -> Broker {
    let broker = Broker::with_queue(&[
        "--max-delivery-count",
        "1",
        "--dead-lettering-on-message-expiration",
        "--lock-duration",
        "5m",
    ]);
    for (expiring, failing) in [("a", "b"), ("c", "d")] {
        broker.ok(&["send", "orders", expiring, "--ttl", "1ms", "--id", expiring]);
        while broker.peek("orders/$deadletterqueue").last().map(|m| m["body"] == expiring)
            != Some(true)
        {
            // Messages expire when the queue is read.
            broker.program(&["receive", "orders"]).run();
        }
        broker.ok(&["send", "orders", failing, "--id", failing]);
        broker.ok(&["receive", "orders", "--settle", "abandon"]);
    }
    broker
}

const DLQ: &str = "orders/$DeadLetterQueue";

#[test]
fn dead_letters_are_listed_with_reasons_and_chosen_by_them() {
    let broker = broker();
    let out = broker.ok(&["dlq", "list", "orders"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 5, "{out}");
    assert!(lines[0].contains("REASON") && lines[0].contains("DESCRIPTION"), "{out}");
    assert!(lines[1].contains("TTLExpiredException"), "{out}");
    assert!(lines[2].contains("MaxDeliveryCountExceeded"), "{out}");
    let chosen = |conditions: &[&str]| -> Vec<String> {
        let mut arguments = vec!["dlq", "list", "orders", "-o", "ndjson"];
        conditions.iter().for_each(|condition| arguments.extend(["--where", condition]));
        let out = broker.ok(&arguments);
        let body = |line| -> serde_json::Value { serde_json::from_str(line).unwrap() };
        out.lines().map(|line| body(line)["body"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(chosen(&["reason=TTLExpiredException"]), ["a", "c"]);
    assert_eq!(chosen(&["reason!=TTLExpiredException"]), ["b", "d"]);
    assert_eq!(chosen(&["description~delivery attempts"]), ["b", "d"]);
    assert_eq!(chosen(&["description!~delivery attempts", "id=c"]), ["c"]);
    assert_eq!(chosen(&["property.DeadLetterReason~Exceeded", "id!=b"]), ["d"]);
    assert!(chosen(&["reason=other"]).is_empty());
    let (out, log) = broker.ends(0, &["dlq", "list", "orders", "--where", "reason=other"]);
    assert!(out.is_empty() && log.contains("no such message"), "{log}");
    broker.ends(4, &["dlq", "list", "absent"]);
}

/// Dead letters are counted by reason without being received.
#[test]
fn dead_letters_are_counted_by_reason() {
    let broker = broker();
    let out = broker.ok(&["dlq", "summary", "orders"]);
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["COUNT", "REASON", "OLDEST", "NEWEST", "DESCRIPTION"], "{out}");
    let mut counted = [&lines[1][..2], &lines[2][..2]];
    counted.sort_unstable();
    assert_eq!(counted, [["2", "MaxDeliveryCountExceeded"], ["2", "TTLExpiredException"]]);
    assert!(out.ends_with(&format!("4 messages in {DLQ}\n")), "{out}");
    let out = broker.ok(&["dlq", "summary", "orders", "--where", "id=a", "-o", "json"]);
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&summary["total"], &summary["path"]), (&1.into(), &DLQ.into()));
    assert_eq!(summary["reasons"][0]["reason"], "TTLExpiredException");
    assert_eq!(
        broker.ok(&["dlq", "summary", "orders", "--where", "id=x"]),
        format!("0 messages in {DLQ}\n")
    );
    assert_eq!(broker.peek(DLQ).len(), 4);
    broker.ends(4, &["dlq", "summary", "absent"]);
}

/// DEL-06: `dlq purge` deletes some of the dead letters: those that match a condition, the first
/// ones, or by number. The others are unchanged. Without a terminal the command requires --yes.
#[test]
fn some_dead_letters_are_deleted() {
    let broker = broker();
    let purge = |code: i32, arguments: &[&str]| {
        broker.ends(code, &[&["dlq", "purge", "orders"], arguments].concat())
    };
    let left = || -> Vec<String> {
        let messages = broker.peek(DLQ);
        messages.iter().map(|message| message["body"].as_str().unwrap().to_owned()).collect()
    };
    let (_, log) = purge(2, &[]);
    assert!(log.contains("--yes"), "{log}");
    let counts = |messages: &[serde_json::Value]| -> Vec<serde_json::Value> {
        messages.iter().map(|message| message["deliveryCount"].clone()).collect()
    };
    let before = counts(&broker.peek(DLQ));
    assert_eq!(purge(0, &["--where", "id=c", "--yes"]).0, format!("deleted 1 message of {DLQ}\n"));
    assert_eq!(left(), ["a", "b", "d"]);
    let kept = broker.peek(DLQ);
    assert_eq!(counts(&kept), [before[0].clone(), before[1].clone(), before[3].clone()]);
    purge(0, &["--first", "1", "--yes"]);
    assert_eq!(left(), ["b", "d"]);
    let number = broker.peek(DLQ)[1]["sequenceNumber"].to_string();
    let (out, _) = purge(0, &["--number", &number, "--yes", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told["deleted"], &told["path"]), (&1.into(), &DLQ.into()));
    purge(4, &["--number", "99", "--yes"]);
    assert_eq!(left(), ["b"]);
    purge(0, &["--yes"]);
    assert!(left().is_empty());
}

/// SET-05: a message is dead-lettered by hand, with a reason and a description.
#[test]
fn a_message_is_dead_lettered_by_hand() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b"]);
    let settle = ["receive", "orders", "--settle", "dead-letter", "--body-only"];
    let reason = ["--reason", "Unpaid", "--description", "the card has expired"];
    assert_eq!(broker.ok(&[&settle[..], &reason].concat()), "a\n");
    let letters = broker.peek(DLQ);
    assert_eq!(letters.len(), 1);
    let properties = &letters[0]["applicationProperties"];
    assert_eq!(properties["DeadLetterReason"], "Unpaid");
    assert_eq!(properties["DeadLetterErrorDescription"], "the card has expired");
    assert_eq!(broker.bodies("orders"), [body("b", 0)]);
    let (_, log) = broker.ends(2, &["receive", "orders", "--reason", "x"]);
    assert!(log.contains("--settle dead-letter"), "{log}");
    broker.ends(2, &[&settle[..], &["--dead-letter"]].concat());
}

#[test]
fn one_dead_letter_is_shown_whole() {
    let broker = broker();
    let out = broker.ok(&["dlq", "show", "orders", "2"]);
    assert!(out.contains("DeadLetterReason            MaxDeliveryCountExceeded\n"), "{out}");
    assert!(out.ends_with("\nb\n"), "{out}");
    assert_eq!(broker.ok(&["dlq", "show", "orders", "2", "--raw"]), "b");
    let out = broker.ok(&["dlq", "show", "orders", "2", "-o", "json"]);
    let message: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(message["messageId"], "b");
    let (_, log) = broker.ends(4, &["dlq", "show", "orders", "99"]);
    assert!(log.contains("`peeklock dlq list orders`"), "{log}");
}

#[test]
fn resubmit_ends_with_code_6_if_no_dead_letter_matches() {
    let broker = broker();
    let none = ["dlq", "resubmit", "orders", "--where", "reason=none"];
    let (out, _) = broker.ends(6, &none);
    assert_eq!(out, "resubmitted 0 messages to orders\n");
    let (_, log) = broker.ends(6, &[&none[..], &["--dry-run"]].concat());
    assert_eq!(log, "dry run: 0 messages would be sent to `orders`\n");
    assert_eq!(broker.peek(DLQ).len(), 4);
    broker.ok(&["queue", "create", "empty"]);
    broker.ends(6, &["dlq", "resubmit", "empty"]);
}

/// Messages that do not match the conditions stay unlocked and keep their counts.
#[test]
fn matching_dead_letters_are_resubmitted_and_others_unchanged() {
    let broker = broker();
    let before = broker.peek(DLQ);
    let arguments = ["dlq", "resubmit", "orders", "--where", "reason=MaxDeliveryCountExceeded"];
    let dry = broker.program(&[&arguments[..], &["--dry-run", "-o", "ndjson"]].concat()).run();
    assert_eq!(dry.code, 0);
    assert_eq!(dry.log, "dry run: 2 messages would be sent to `orders`\n");
    let would: Vec<serde_json::Value> =
        dry.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(would[0]["message"], serde_json::json!({"body": "b", "messageId": "b"}));
    assert_eq!(would[0]["sequenceNumber"], 2);
    assert_eq!(would[0]["reason"], "MaxDeliveryCountExceeded");
    let changed = ["--dry-run", "--set", "retried:i32=1", "--ttl", "2h"];
    let table = broker.ok(&[&arguments[..], &changed].concat());
    assert!(table.contains("retried=1") && table.contains("2h"), "{table}");
    assert_eq!(broker.peek(DLQ), before);
    assert!(broker.peek("orders").is_empty());

    let set = ["--set", "retried:i32=1"];
    let out = broker.ok(&[&arguments[..], &set].concat());
    assert_eq!(out, "resubmitted 2 messages to orders\n");
    let sent = broker.peek("orders");
    assert_eq!(sent.len(), 2);
    for (message, id) in sent.iter().zip(["b", "d"]) {
        assert_eq!(message["messageId"], id);
        let properties = &message["applicationProperties"];
        assert_eq!(*properties, serde_json::json!({"retried": {"type": "i32", "value": 1}}));
        assert_eq!(message["deliveryCount"], 0);
    }
    let left: Vec<_> = [&before[0], &before[2]].into_iter().cloned().collect();
    assert_eq!(broker.peek(DLQ), left);
    // They are not locked.
    let out = broker.ok(&["receive", "orders", "--dead-letter", "--all", "--body-only"]);
    assert_eq!(out, "a\nc\n");
    let (out, _) = broker.ends(6, &["dlq", "resubmit", "orders", "-o", "json"]);
    assert!(out.contains("\"resubmitted\":0"), "{out}");
}

#[test]
fn count_number_target_and_properties_are_chosen() {
    let broker = broker();
    broker.ok(&["queue", "create", "others"]);
    let resubmit = |arguments: &[&str]| {
        let given = ["dlq", "resubmit", "orders", "--to", "others"];
        broker.ok(&[&given[..], arguments].concat())
    };
    resubmit(&["--number", "3", "--ttl", "2h", "--new-id"]);
    let sent = broker.peek("others").remove(0);
    assert_eq!((&sent["body"], &sent["timeToLive"]), (&"c".into(), &"PT2H".into()));
    assert_ne!(sent["messageId"], "c");
    assert_eq!(sent["messageId"].as_str().unwrap().len(), 36);
    resubmit(&["-n", "1"]);
    resubmit(&["-n", "1"]);
    // `a` lives for a millisecond and may have expired again.
    let bodies = broker.bodies("others");
    assert!(bodies.contains(&body("b", 0)) && !bodies.contains(&body("d", 0)), "{bodies:?}");
    assert_eq!(broker.bodies(DLQ), [body("d", 1)]);
}

/// CON-17, DUP-02: a message whose id the queue had stays in the dead-letter queue.
#[test]
fn an_original_stays_if_its_copy_is_a_duplicate() {
    let broker =
        Broker::with_queue(&["--max-delivery-count", "1", "--requires-duplicate-detection"]);
    broker.ok(&["send", "orders", "a", "--id", "a"]);
    broker.ok(&["receive", "orders", "--settle", "abandon"]);
    let (out, log) = broker.ends(8, &["dlq", "resubmit", "orders"]);
    assert_eq!(out, "resubmitted 0 messages to orders\n");
    assert!(log.contains("--new-id"), "{log}");
    assert_eq!(broker.bodies(DLQ), [body("a", 1)]);
    broker.ok(&["dlq", "resubmit", "orders", "--new-id"]);
    assert!(broker.peek(DLQ).is_empty());
    assert_eq!(broker.bodies("orders"), [body("a", 0)]);
}

#[test]
fn an_original_stays_if_its_copy_is_refused() {
    let broker = broker();
    let (_, log) = broker.ends(4, &["dlq", "resubmit", "orders", "--to", "absent"]);
    assert!(log.contains("EntityNotFound"), "{log}");
    assert_eq!(broker.peek(DLQ).len(), 4);
    broker.ok(&["queue", "update", "orders", "--status", "SendDisabled"]);
    let (_, log) = broker.ends(8, &["dlq", "resubmit", "orders", "--number", "2"]);
    assert!(log.contains("1 message left") && log.contains("forbids sending"), "{log}");
    broker.ok(&["queue", "update", "orders", "--status", "Active"]);
    assert_eq!(
        broker.ok(&["receive", "orders", "--dead-letter", "--all", "--body-only"]),
        "a\nb\nc\nd\n"
    );
}

/// More messages than one group of requests and than one peek.
#[test]
fn many_dead_letters_are_resubmitted_once_in_order() {
    let broker = Broker::with_queue(&["--max-delivery-count", "1"]);
    let bodies: Vec<String> = (0..700).map(|number| format!("m{number}")).collect();
    broker.send("orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    broker.ok(&["receive", "orders", "-n", "700", "--settle", "abandon", "--body-only"]);
    assert_eq!(broker.peek(DLQ).len(), 700);
    let ended = broker.program(&["dlq", "resubmit", "orders"]).run();
    assert_eq!(ended.out, "resubmitted 700 messages to orders\n");
    assert_eq!((ended.code, ended.log.as_str()), (0, ""));
    let expected: Vec<_> = bodies.iter().map(|text| body(text, 0)).collect();
    assert_eq!(broker.bodies("orders"), expected);
    assert!(broker.peek(DLQ).is_empty());
}

/// Messages that another client has locked stay, and the command reports them.
#[test]
fn dead_letters_locked_by_another_client_are_reported() {
    let broker = broker();
    let receive = ["receive", "orders", "--dead-letter", "--settle", "none", "--body-only"];
    assert_eq!(broker.ok(&receive), "a\n");
    let (out, log) = broker.ends(8, &["dlq", "resubmit", "orders", "--to", "orders"]);
    assert_eq!(out, "resubmitted 3 messages to orders\n");
    assert!(log.contains("1 message left in `orders/$DeadLetterQueue`, such as 1:"), "{log}");
    let (out, _) = broker.ends(8, &["dlq", "resubmit", "orders", "--where", "id=a", "-o", "json"]);
    let sum: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&sum["resubmitted"], &sum["lockedByOthers"]), (&0.into(), &1.into()));
}

#[test]
fn an_absent_number_is_reported() {
    let broker = broker();
    for arguments in [&["--number", "99"][..], &["--number", "99", "--dry-run"]] {
        let (_, log) = broker.ends(4, &[&["dlq", "resubmit", "orders"], arguments].concat());
        assert!(log.contains("no message 99") && log.contains("dlq list orders"), "{log}");
    }
    let arguments = ["dlq", "resubmit", "orders", "--number", "2", "--number", "99"];
    let (out, log) = broker.ends(8, &arguments);
    assert_eq!(out, "resubmitted 1 message to orders\n");
    assert!(log.contains("no message 99"), "{log}");
}

/// CON-16: dead letters of failed transfers and of subscriptions are resubmitted too, the latter
/// to their subscription only.
#[test]
fn dead_letters_of_transfers_and_subscriptions_are_resubmitted() {
    let broker = Broker::start();
    broker.ok(&["queue", "create", "out"]);
    broker.ok(&["queue", "create", "in", "--forward-to", "out"]);
    broker.ok(&["queue", "delete", "out", "--yes"]);
    broker.ok(&["send", "in", "lost on its way"]);
    broker.ok(&["queue", "create", "out"]);
    let path = "in/$Transfer";
    assert_eq!(broker.ok(&["dlq", "resubmit", path]), "resubmitted 1 message to in\n");
    assert_eq!(broker.ok(&["receive", "out", "--wait", "10s", "--body-only"]), "lost on its way\n");

    broker.ok(&["topic", "create", "sales"]);
    broker.ok(&["subscription", "create", "sales", "eu", "--max-delivery-count", "1"]);
    broker.ok(&["send", "sales", "nobody wants it"]);
    let eu = "sales/subscriptions/eu";
    broker.ok(&["receive", eu, "--settle", "abandon"]);
    broker.ok(&["subscription", "create", "sales", "us"]);
    let out = broker.ok(&["dlq", "resubmit", eu]);
    assert_eq!(out, format!("resubmitted 1 message to {eu}\n"));
    assert!(broker.peek("sales/subscriptions/us").is_empty());
    broker.ok(&["receive", eu, "--settle", "abandon"]);
    let out = broker.ok(&["dlq", "resubmit", eu, "--to", "out"]);
    assert_eq!(out, "resubmitted 1 message to out\n");
    assert_eq!(broker.ok(&["receive", "out", "--body-only"]), "nobody wants it\n");
}
