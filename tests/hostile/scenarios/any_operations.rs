//! Any request over WebSocket, drawn by name from the transport's table of operations.

use std::sync::LazyLock;

use peeklock_websocket::testing::{in_binary, operations};
use serde_json::{Value as Json, json};

use super::super::random::Random;
use super::any_values::{ABSENT, FULL_MESSAGES, TOPIC, Values};

/// The operation that is not drawn: the first request of a connection.
const OPENS: &str = "hello";

/// Maximum time in which a connection may resume, in seconds.
pub const GRACE_SECONDS: usize = 4;

/// Link with which a connection peeks large messages. Its other links have smaller numbers.
pub const LOOKING: usize = 7;

/// Names of all other operations.
static DRAWN: LazyLock<Vec<&str>> =
    LazyLock::new(|| operations().filter(|name| *name != OPENS).collect());

/// Name of an operation, and a body for it.
pub fn draw(values: &mut Values) -> (&'static str, Json) {
    // Half of the requests send, receive, settle or peek.
    let name = match values.random.one_in(2) {
        true => values.random.of(&["send", "receive", "settle", "peek", "peek"]),
        false => values.random.of(&DRAWN),
    };
    (name, body(name, values))
}

/// The request with the largest answers compared with its own size.
pub fn draw_large(values: &mut Values) -> (&'static str, Json) {
    ("peek", json!({ "link": LOOKING, "from": values.below(FULL_MESSAGES), "maxCount": 100 }))
}

/// First request of a connection, sometimes with the wish to be able to resume.
pub fn hello(values: &mut Values) -> Json {
    match values.below(2) {
        0 => json!({}),
        _ => json!({ "graceSeconds": values.below(1 + GRACE_SECONDS), "client": values.text(200) }),
    }
}

/// Random body for an operation.
///
/// # Panics
/// If the operation is unknown: add a body for each new operation.
fn body(name: &str, values: &mut Values) -> Json {
    let link = values.below(LOOKING);
    let session = 20 + values.below(8);
    let count = 1 + values.below(5_000);
    let transaction = values.below(40);
    let decisions = ["complete", "abandon", "defer", "deadLetter", "release"];
    let settle = |values: &mut Values| {
        let decision = values.random.of(&decisions);
        let mut settle = json!({ "link": link, "decision": decision, "ranges": values.ranges() });
        if values.random.one_in(4) {
            settle["properties"] = json!({ "k": true });
        }
        settle
    };
    let send = |values: &mut Values| json!({ "link": link, "messages": values.messages() });
    match name {
        OPENS => hello(values),
        "authenticate" => json!({ "token": values.text(2_000) }),
        "attach" => {
            let role = values.random.of(&["receiver", "receiver", "sender"]);
            json!({ "link": link, "path": values.entity(), "role": role, "credit": count })
        }
        "attachVia" => {
            json!({ "link": link, "path": values.queue(), "destination": values.queue() })
        }
        "detach" => json!({ "link": link, "release": values.random.one_in(2) }),
        "credit" => json!({ "link": link, "upTo": count }),
        "drain" => json!({ "link": link }),
        "send" | "sendBatch" => send(values),
        "cancelScheduled" | "receiveDeferred" => {
            json!({ "link": link, "sequenceNumbers": values.numbers() })
        }
        "receive" => {
            json!({ "link": link, "maxCount": count, "waitSeconds": values.below(3) })
        }
        "withdraw" => json!({ "request": 10 + values.below(5_000) }),
        "settle" => settle(values),
        "settleDelayed" => {
            let mut settle = settle(values);
            settle["decision"] = "abandon".into();
            json!({ "delayMilliseconds": values.below(100_000), "settle": settle })
        }
        "renew" => json!({ "link": link, "ranges": values.ranges() }),
        "peek" => {
            let link = if values.random.one_in(4) { link } else { LOOKING };
            json!({ "link": link, "from": values.below(FULL_MESSAGES), "maxCount": count })
        }
        "deleteBatch" => json!({ "link": link, "maxCount": count }),
        "purge" => json!({ "link": link }),
        "deleteDeferred" => json!({ "link": link, "sequenceNumber": count }),
        "createQueue" => {
            let (path, properties) = values.new_queue();
            json!({ "path": path, "properties": properties })
        }
        "getQueue" => json!({ "path": values.queue() }),
        "updateQueue" => {
            json!({ "path": values.queue(), "properties": values.description(false) })
        }
        "deleteQueue" => json!({ "path": values.name("any-", 400, 260) }),
        "listQueues" | "listTopics" => {
            json!({ "skip": values.below(50), "top": values.below(200) })
        }
        "heartbeat" => json!({}),
        "acceptSession" => json!({ "link": session, "path": "any-session" }),
        "renewSession" | "getSessionState" => json!({ "link": session }),
        "setSessionState" => json!({ "link": session, "state": "s".repeat(count) }),
        "peekSession" => {
            json!({ "link": link, "sessionId": values.text(128), "from": 0, "maxCount": count })
        }
        "listSessions" => json!({ "path": "any-session", "top": 100 }),
        "inspect" => {
            let number = values.below(FULL_MESSAGES);
            let question = match values.below(19) {
                0 => json!({ "heads": { "from": number, "count": 500 } }),
                1 => json!({ "heads": { "sort": "expiry", "descending": true } }),
                2 => json!({ "locks": { "sort": "age", "top": 500 } }),
                3 => json!({ "body": { "sequenceNumber": number, "from": count } }),
                4 if number.is_multiple_of(2) => json!({ "series": { "resolutionSeconds": 60 } }),
                4 => json!({ "timeline": { "of": "expiring", "slots": 240 } }),
                5 => {
                    json!({ "entities": { "path": values.text(20), "sort": "totalMessageCount" } })
                }
                6 => json!({ "clients": { "name": values.text(20), "top": 500 } }),
                7 => {
                    let text = values.text(20);
                    json!({ "search": { "begin": { "where": text, "groupBy": "subject" } } })
                }
                9 => json!({ "jobs": { "list": { "top": 1 + values.below(120) } } }),
                10 => {
                    let job = format!("{count:032x}");
                    match number % 3 {
                        0 => json!({ "jobs": { "samples": { "job": job } } }),
                        1 => json!({ "jobs": { "export": { "job": job, "from": count } } }),
                        _ => json!({ "jobs": { "failures": { "job": job, "skip": count } } }),
                    }
                }
                11 => {
                    let hops = values.below(20);
                    json!({ "topology": { "around": values.queue(), "hops": hops } })
                }
                12 => {
                    json!({ "checks": { "path": values.text(20), "muted": number.is_multiple_of(2) } })
                }
                13 => json!({ "journey": { "sequenceNumber": number } }),
                14 => json!({ "journey": { "messageId": values.text(200) } }),
                15 => json!({ "samples": { "top": values.below(600) } }),
                16 => match number % 2 {
                    0 => json!({ "explain": { "sequenceNumber": number } }),
                    _ => json!({ "explain": { "message": { "subject": values.text(200) } } }),
                },
                17 => {
                    let rule = match number % 2 {
                        0 => json!({ "subscription": "s", "rule": values.rule() }),
                        _ => json!({ "subscription": "s", "remove": values.text(50) }),
                    };
                    json!({ "whatIf": { "changes": [rule], "messageCount": count } })
                }
                8 => json!({ "audit": { "resource": values.text(20), "top": 500 } }),
                _ => json!({ "tap": {} }),
            };
            let path = match question.get("explain").or_else(|| question.get("whatIf")) {
                Some(_) => TOPIC,
                None => values.queue(),
            };
            json!({ "path": path, "question": question })
        }
        "deleteUnlocked" => json!({ "path": "any-session", "maxCount": count }),
        "createTopic" => {
            json!({ "path": values.new_topic(), "properties": values.description(true) })
        }
        "getTopic" => json!({ "path": values.new_topic() }),
        "updateTopic" => json!({ "path": TOPIC, "properties": values.description(true) }),
        "deleteTopic" => json!({ "path": values.name("any-topic-", 30, 260) }),
        "createSubscription" => {
            let rules: Vec<Json> = (0..values.below(4)).map(|_| values.rule()).collect();
            let (name, properties) = (values.name("u", 30, 50), values.description(false));
            json!({ "topic": TOPIC, "name": name, "properties": properties, "rules": rules })
        }
        "getSubscription" => json!({ "path": values.subscription() }),
        "updateSubscription" => {
            json!({ "path": values.subscription(), "properties": values.description(false) })
        }
        "deleteSubscription" => {
            json!({ "path": format!("{TOPIC}/subscriptions/{}", values.name("u", 30, 50)) })
        }
        "listSubscriptions" => json!({ "path": TOPIC, "top": values.below(200) }),
        "createRule" | "updateRule" => {
            json!({ "path": values.subscription(), "rule": values.rule() })
        }
        "getRule" | "deleteRule" => {
            json!({ "path": values.subscription(), "name": values.name("r", 400, 50) })
        }
        "listRules" => json!({ "path": values.subscription(), "top": values.below(200) }),
        "explain" => {
            let message = json!({ "body": "x", "applicationProperties": { "p": "aaa" } });
            json!({ "path": values.subscription(), "message": message })
        }
        "forward" => {
            let entity = values.below(100);
            let source = json!({
                "broker": "00000000-0000-0000-0000-0000000000b0",
                "entity": entity,
                "forwarding": "messages",
            });
            let messages: Vec<Json> = values
                .messages()
                .into_iter()
                .map(|message| {
                    let number = 1 + values.below(5_000);
                    json!({
                        "sequenceNumber": number,
                        "enqueuedSequenceNumber": number,
                        "enqueuedTimeUtc": "2026-05-01T12:00:00Z",
                        "hops": 1,
                        "message": message,
                    })
                })
                .collect();
            json!({ "link": link, "source": source, "messages": messages })
        }
        "beginTransaction" => json!({ "crossEntity": values.random.one_in(2) }),
        "sendIn" => json!({ "transaction": transaction, "send": send(values) }),
        "settleIn" => json!({ "transaction": transaction, "settle": settle(values) }),
        "renewIn" => {
            let renew = json!({ "link": link, "ranges": values.ranges() });
            json!({ "transaction": transaction, "renew": renew })
        }
        "cancelScheduledIn" => {
            let cancel = json!({ "link": link, "sequenceNumbers": [count] });
            json!({ "transaction": transaction, "cancelScheduled": cancel })
        }
        "setSessionStateIn" => {
            let set = json!({ "link": session, "state": "s".repeat(count) });
            json!({ "transaction": transaction, "setSessionState": set })
        }
        "commit" | "rollBack" => json!({ "transaction": transaction }),
        // An existing policy, or a key of one, would end the access of all clients without a token.
        "createPolicy" | "updatePolicy" => {
            let name = values.name("p", 20, 256);
            json!({ "path": ABSENT, "name": name, "properties": { "rights": ["Send"] } })
        }
        "getPolicy" | "deletePolicy" | "getPolicyKeys" => {
            json!({ "path": ABSENT, "name": values.name("p", 20, 256) })
        }
        "listPolicies" => json!({ "path": values.queue() }),
        "regeneratePolicyKey" => {
            json!({ "path": ABSENT, "name": values.name("p", 20, 256), "key": "primary" })
        }
        "planDeclaration" => json!({ "declaration": values.declaration() }),
        "carryOutDeclaration" => {
            json!({ "declaration": values.declaration(), "digest": "0123456789abcdef" })
        }
        "breakLocks" => json!({
            "path": values.queue(),
            "sequenceNumbers": values.numbers(),
            "counted": values.random.one_in(2),
        }),
        "breakSession" => {
            json!({ "path": "any-session", "sessionId": values.name("s", 30, 128) })
        }
        "setStateOfSession" => {
            let session = values.name("s", 30, 128);
            json!({ "path": "any-session", "sessionId": session, "state": "s".repeat(count) })
        }
        "act" => json!({ "path": values.queue(), "act": values.act() }),
        "forgetJob" => json!({ "path": values.queue(), "job": format!("{count:032x}") }),
        "createJob" => json!({ "path": values.queue(), "draft": values.job() }),
        "controlJob" => {
            let digest = format!("{:032x}", values.below(9));
            let control = match values.below(5) {
                0 => json!({ "start": { "digest": digest } }),
                1 => json!({ "pause": {} }),
                2 => json!({ "resume": {} }),
                3 => json!({ "undo": {} }),
                _ => json!({ "cancel": {} }),
            };
            json!({ "job": format!("{count:032x}"), "control": control })
        }
        "muteFinding" => {
            let (kind, reason) = (values.finding(), values.text(300));
            json!({ "path": values.queue(), "kind": kind, "reason": reason })
        }
        "unmuteFinding" => json!({ "path": values.queue(), "kind": values.finding() }),
        // An existing client would be one of the test.
        "closeClient" => json!({ "client": u64::MAX }),
        unknown => panic!("`{unknown}` can be asked over WebSocket, and is not drawn here"),
    }
}

/// JSON frame with these requests, from a client that has confirmed `seen` frames.
pub fn frame(seen: u64, requests: &[(u64, &str, &Json)]) -> String {
    let one = |request: &(u64, &str, &Json)| {
        let (id, name, body) = *request;
        json!({ "id": id, name: body }).to_string()
    };
    let requests: Vec<String> = requests.iter().map(one).collect();
    format!(r#"{{"seen":{seen},"requests":[{}]}}"#, requests.join(","))
}

/// Every operation of the table is drawn, with bodies that decode. A malformed body would test only
/// the parser.
#[test]
fn every_operation_is_drawn() {
    let mut values = Values { random: Random::new(7) };
    assert!(operations().count() > 60);
    for name in operations() {
        for _ in 0..50 {
            let body = body(name, &mut values);
            let frame = frame(0, &[(1, name, &body)]);
            assert!(in_binary(&frame).is_some(), "{name} cannot be read: {frame:.2000}");
        }
    }
}
