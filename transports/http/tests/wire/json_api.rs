//! The JSON API under `/$api/v1` (HTP-10).

use peeklock_core::description::Settings;
use peeklock_core::limits::Tier;
use serde_json::{Value, json};

use super::atom::{VERSION, entry, text};
use super::server::{Plan, Server};

async fn ask(server: &Server, head: &str, body: Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = server.ask(&format!("{head}\nContent-Type: application/json"), text).await;
    let json = if answer.body.is_empty() { Value::Null } else { answer.json() };
    (answer.status, json)
}

async fn expect(server: &Server, head: &str, body: Value, status: u16) -> Value {
    let (found, json) = ask(server, head, body).await;
    assert_eq!(found, status, "{head}: {json}");
    json
}

const Q: &str = "/$api/v1/queues/q";

async fn receive(server: &Server) -> Value {
    let head = format!("POST {Q}/messages/receive");
    expect(server, &head, json!({}), 200).await["messages"][0].clone()
}

async fn lock(
    server: &Server,
    operation: &str,
    message: &Value,
    body: Value,
    status: u16,
) -> Value {
    let token = message["lockToken"].as_str().unwrap();
    expect(server, &format!("POST {Q}/locks/{token}/{operation}"), body, status).await
}

/// HTP-10, ENT-31, CNT-01: queues are created, read, listed, updated, deleted.
#[tokio::test]
async fn queues_are_managed() {
    let server = Server::start().await;
    let path = "/$api/v1/queues/eu%2FOrders";
    let properties = json!({ "lockDuration": "PT30S", "maxDeliveryCount": 3, "userMetadata": "m" });
    let answer = server.ask(&format!("PUT {path}"), properties.to_string()).await;
    assert_eq!(answer.status, 201);
    let location = format!("http://{}{path}", server.address);
    assert_eq!(answer.header("location"), Some(location.as_str()));
    let queue = answer.json();
    assert_eq!(queue["path"], "eu/Orders");
    assert_eq!(queue["lockDuration"], "PT30S");
    assert_eq!(queue["autoDeleteOnIdle"], "P10675199DT2H48M5.4775807S");
    assert_eq!(queue["runtime"]["totalMessageCount"], 0);
    let etag = answer.header("etag").unwrap().to_owned();

    // An update changes only the given properties, and null clears.
    let patch = format!("PATCH {path}\nIf-Match: {etag}");
    server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(1));
    let updated = expect(&server, &patch, json!({ "maxDeliveryCount": 4 }), 200).await;
    assert_eq!((&updated["maxDeliveryCount"], &updated["userMetadata"]), (&json!(4), &json!("m")));
    assert_eq!(updated["lockDuration"], "PT30S");
    expect(&server, &patch, json!({ "maxDeliveryCount": 5 }), 409).await;
    let cleared = expect(
        &server,
        &format!("PATCH {path}\nIf-Match: *"),
        json!({ "userMetadata": null, "status": "SendDisabled" }),
        200,
    )
    .await;
    assert_eq!(
        (&cleared["userMetadata"], &cleared["status"]),
        (&Value::Null, &json!("SendDisabled"))
    );
    // A backslash counts as a slash, and paths are case-insensitive.
    let read = expect(&server, "GET /$api/v1/queues/EU%5Corders", Value::Null, 200).await;
    assert_eq!(read, cleared);

    let page = expect(&server, "GET /$api/v1/queues?skip=0&top=1", Value::Null, 200).await;
    assert_eq!(page["queues"].as_array().unwrap().len(), 1);
    assert_eq!(page["queues"][0]["path"], "eu/Orders");
    let page = expect(&server, "GET /$api/v1/queues?skip=1", Value::Null, 200).await;
    assert_eq!(page["queues"][0]["path"], "q");
    expect(&server, "GET /$api/v1/queues?top=x", Value::Null, 400).await;

    assert_eq!(expect(&server, &format!("DELETE {path}"), Value::Null, 204).await, Value::Null);
    expect(&server, &format!("GET {path}"), Value::Null, 404).await;
    server.stop().await;
}

/// HTP-10, MSG-02, MSG-20: a message keeps its properties with their exact types, whichever
/// interface it was sent through.
#[tokio::test]
async fn a_message_keeps_its_types() {
    let server = Server::start().await;
    let properties = json!({
        "plain": "text", "flag": true, "none": null, "whole": -7, "real": 1.0,
        "id": { "type": "uuid", "value": "01234567-89ab-cdef-0123-456789abcdef" },
        "small": { "type": "i8", "value": -1 }, "big": { "type": "u64", "value": u64::MAX },
        "span": { "type": "timeSpan", "value": "PT1.5S" },
        "bytes": { "type": "binary", "value": "AP8=" },
    });
    let message = json!({
        "bodyBase64": "AP8=", "messageId": "m", "subject": "s", "correlationId": "c", "to": "t",
        "replyTo": "r", "replyToSessionId": "rs", "contentType": "a/b", "timeToLive": "PT1M30S",
        "partitionKey": "p", "forcePersistence": true, "applicationProperties": properties,
    });
    let head = format!("POST {Q}/messages");
    let accepted = expect(&server, &head, message.clone(), 201).await;
    assert_eq!(accepted, json!({ "sequenceNumber": 1, "messageId": "m" }));
    let head = format!("GET {Q}/messages?from=0&count=10");
    let peeked = expect(&server, &head, Value::Null, 200).await["messages"][0].clone();
    assert_eq!(peeked["applicationProperties"], properties);
    for (name, value) in message.as_object().unwrap() {
        assert_eq!(&peeked[name], value, "{name}");
    }
    assert_eq!(peeked["state"], "Active");
    assert_eq!((&peeked["deliveryCount"], peeked.get("lockToken")), (&json!(0), None));

    // A received message can be sent again unchanged.
    let received = receive(&server).await;
    assert_eq!(received["deliveryCount"], 1);
    assert_eq!(received["lockedUntilUtc"], "2026-05-01T12:01:00Z");
    assert_eq!(received["enqueuedTimeUtc"], "2026-05-01T12:00:00Z");
    let accepted = expect(&server, &format!("POST {Q}/messages"), received.clone(), 201).await;
    assert_eq!(accepted["sequenceNumber"], 2);
    let answer = server.receive().await;
    assert_eq!(answer.body, [0, 255]);
    assert_eq!(answer.header("whole"), Some("-7"));
    server.stop().await;
}

/// RTY-26, RTY-12, RTY-16: the delay of an abandon, its effect on views, and setting and clearing a
/// policy.
#[tokio::test]
async fn an_abandon_takes_a_delay() {
    let server = Server::start().await;
    let head = format!("POST {Q}/messages");
    expect(&server, &head, json!({ "body": "1" }), 201).await;
    let message = receive(&server).await;
    for wrong in [json!(-1), json!(604_800_001)] {
        let answer = lock(&server, "abandon", &message, json!({ "delayMilliseconds": wrong }), 400);
        assert_eq!(answer.await["code"], "ArgumentOutOfRange");
    }
    lock(&server, "defer", &message, json!({ "delayMilliseconds": 1 }), 400).await;
    // It takes precedence over the property with the same meaning.
    let both = json!({
        "delayMilliseconds": 5000,
        "applicationProperties": { "peeklock-delay-ms": 1, "tried": true },
    });
    lock(&server, "abandon", &message, both, 204).await;
    let shown = expect(&server, &format!("GET {Q}/messages"), Value::Null, 200).await["messages"]
        [0]
    .clone();
    assert_eq!(
        (&shown["state"], &shown["delayedUntilUtc"]),
        (&json!("Delayed"), &json!("2026-05-01T12:00:05Z"))
    );
    assert_eq!(shown["applicationProperties"], json!({ "tried": true }));
    let runtime = expect(&server, &format!("GET {Q}"), Value::Null, 200).await["runtime"].clone();
    assert_eq!(
        (&runtime["activeMessageCount"], &runtime["delayedMessageCount"]),
        (&json!(1), &json!(1))
    );
    let patch = format!("PATCH {Q}\nIf-Match: *");
    let policy =
        json!({ "kind": "exponential", "delay": "PT1S", "delayMax": "PT5M", "jitter": 0.2 });
    let with = json!({ "retryPolicy": policy, "sessionRetryOrder": "pass" });
    let updated = expect(&server, &patch, with, 200).await;
    assert_eq!((&updated["retryPolicy"], &updated["sessionRetryOrder"]), (&policy, &json!("pass")));
    for wrong in [
        json!({ "kind": "random", "delay": "PT1S" }),
        json!({ "kind": "fixed", "delay": "PT1S", "jitter": 1.5 }),
        json!({ "kind": "fixed", "delay": "P8D" }),
    ] {
        let refused = expect(&server, &patch, json!({ "retryPolicy": wrong }), 400).await;
        assert_eq!(refused["code"], "ArgumentOutOfRange");
    }
    let cleared = expect(&server, &patch, json!({ "retryPolicy": null }), 200).await;
    assert_eq!(
        (&cleared["retryPolicy"], &cleared["sessionRetryOrder"]),
        (&Value::Null, &json!("pass"))
    );
    server.stop().await;
}

/// RTY-10, RTY-26: only the body of an abandon accepts a delay. In the body of other operations,
/// and in the header for abandons with an empty body, a delay is refused, and the lock stays
/// unchanged.
#[tokio::test]
async fn only_the_body_of_an_abandon_takes_a_delay() {
    let server = Server::start().await;
    expect(&server, &format!("POST {Q}/messages"), json!({ "body": "1" }), 201).await;
    let message = receive(&server).await;
    for operation in ["complete", "release", "renew", "defer", "dead-letter"] {
        let body = json!({ "delayMilliseconds": 5000 });
        let refused = lock(&server, operation, &message, body, 400).await;
        assert_eq!(refused["code"], "ArgumentError", "{operation}");
        let body = json!({ "applicationProperties": { "peeklock-delay-ms": 5000 } });
        let refused = lock(&server, operation, &message, body, 400).await;
        assert_eq!(refused["code"], "ArgumentError", "{operation}");
    }
    for operation in ["complete", "release", "renew", "defer", "dead-letter", "abandon"] {
        let operation = format!("{operation}\nPeeklock-Delay-Ms: 5000");
        let refused = lock(&server, &operation, &message, Value::Null, 400).await;
        assert_eq!(refused["code"], "ArgumentError", "{operation}");
    }
    assert_eq!(receive(&server).await, Value::Null, "it is locked");
    // An empty object contains no delay.
    lock(&server, "renew", &message, json!({}), 200).await;
    lock(&server, "complete", &message, json!({}), 204).await;
    server.stop().await;
}

/// HTP-10, SET-14: settlement and renewal of locks.
#[tokio::test]
async fn locks_are_settled() {
    let server = Server::start().await;
    let batch = json!({ "messages": [{ "body": "1" }, { "body": "2" }] });
    let numbers = expect(&server, &format!("POST {Q}/messages/batch"), batch, 201).await;
    assert_eq!(numbers, json!({ "sequenceNumbers": [1, 2] }));

    let message = receive(&server).await;
    lock(&server, "release", &message, Value::Null, 204).await;
    let message = receive(&server).await;
    assert_eq!(message["deliveryCount"], 1);
    let set = json!({ "applicationProperties": { "tried": { "type": "i32", "value": 1 } } });
    lock(&server, "abandon", &message, set, 204).await;
    let message = receive(&server).await;
    assert_eq!((&message["deliveryCount"], &message["body"]), (&json!(2), &json!("1")));
    assert_eq!(message["applicationProperties"]["tried"], json!({ "type": "i32", "value": 1 }));
    server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(30));
    let renewed = lock(&server, "renew", &message, Value::Null, 200).await;
    assert_eq!(renewed, json!({ "lockedUntilUtc": "2026-05-01T12:01:30Z" }));
    lock(&server, "defer", &message, json!({}), 204).await;

    let numbers = json!({ "sequenceNumbers": [1] });
    let head = format!("POST {Q}/messages/receive-deferred");
    let deferred = expect(&server, &head, numbers, 200).await["messages"][0].clone();
    assert_eq!(deferred["state"], "Deferred");
    let why = json!({ "reason": "r", "description": "d", "applicationProperties": { "k": 1 } });
    lock(&server, "dead-letter", &deferred, why, 204).await;
    let head = "GET /$api/v1/queues/q%2F$DeadLetterQueue/messages";
    let dead = expect(&server, head, Value::Null, 200).await["messages"][0].clone();
    assert_eq!(dead["applicationProperties"]["DeadLetterReason"], "r");
    assert_eq!(dead["applicationProperties"]["DeadLetterErrorDescription"], "d");
    assert_eq!(dead["applicationProperties"]["k"], 1);

    let message = receive(&server).await;
    assert_eq!(message["body"], "2");
    lock(&server, "complete", &message, Value::Null, 204).await;
    let lost = lock(&server, "complete", &message, Value::Null, 404).await;
    assert_eq!(lost["code"], "MessageLockLost");
    let runtime = expect(&server, &format!("GET {Q}"), Value::Null, 200).await["runtime"].clone();
    assert_eq!(runtime["activeMessageCount"], 0);
    assert_eq!(runtime["deadLetterMessageCount"], 1);
    assert_eq!(runtime["totalMessageCount"], 1);
    let long = json!({ "reason": "x".repeat(4_097) });
    lock(&server, "dead-letter", &message, long, 400).await;
    server.stop().await;
}

/// HTP-10, SCH-02, SCH-04: schedule and cancel.
#[tokio::test]
async fn messages_are_scheduled_and_cancelled() {
    let server = Server::start().await;
    let schedule = json!({
        "scheduledEnqueueTimeUtc": "2026-05-01T13:00:00Z",
        "messages": [{ "body": "a" }, { "body": "b" }],
    });
    let numbers = expect(&server, &format!("POST {Q}/messages/schedule"), schedule, 201).await;
    assert_eq!(numbers, json!({ "sequenceNumbers": [1, 2] }));
    assert_eq!(receive(&server).await, Value::Null);
    let cancel = format!("POST {Q}/messages/cancel-scheduled");
    expect(&server, &cancel, json!({ "sequenceNumbers": [1] }), 204).await;
    expect(&server, &cancel, json!({ "sequenceNumbers": [1] }), 404).await;
    server.clock.advance(peeklock_core::time::TimeSpan::from_minutes(60));
    // A peek waits until due messages are durable; only then are they offered (SCH-03).
    expect(&server, &format!("GET {Q}/messages"), Value::Null, 200).await;
    assert_eq!(receive(&server).await["body"], "b");
    let wrong = json!({ "scheduledEnqueueTimeUtc": "soon", "messages": [] });
    expect(&server, &format!("POST {Q}/messages/schedule"), wrong, 400).await;
    server.stop().await;
}

/// HTP-10, DEL-01, DEL-06, DEL-09: deletes.
#[tokio::test]
async fn messages_are_deleted_without_being_received() {
    let server = Server::start().await;
    for body in ["1", "2", "3", "4"] {
        server.send(body).await;
    }
    let message = receive(&server).await;
    lock(&server, "defer", &message, Value::Null, 204).await;
    // Only messages enqueued before the call are deleted.
    server.clock.advance(peeklock_core::time::TimeSpan::from_ms(1));
    let head = format!("POST {Q}/messages/delete-batch");
    let deleted = expect(&server, &head, json!({ "maxCount": 1 }), 200).await;
    assert_eq!(deleted, json!({ "deleted": 1 }));
    let purged = expect(&server, &format!("POST {Q}/messages/purge"), json!({}), 200).await;
    assert_eq!(purged, json!({ "deleted": 2 }));
    expect(&server, &format!("POST {Q}/messages/purge"), json!({ "maxCount": 1 }), 400).await;
    expect(&server, &format!("DELETE {Q}/messages/1"), Value::Null, 204).await;
    expect(&server, &format!("DELETE {Q}/messages/1"), Value::Null, 404).await;
    let runtime = expect(&server, &format!("GET {Q}"), Value::Null, 200).await["runtime"].clone();
    assert_eq!(runtime["totalMessageCount"], 0);
    server.stop().await;
}

/// HTP-10, RCV-12: a receive takes the available messages, up to the count.
#[tokio::test]
async fn several_messages_are_received_at_once() {
    let server = Server::start().await;
    for body in ["1", "2", "3"] {
        server.send(body).await;
    }
    let head = format!("POST {Q}/messages/receive");
    let request = json!({ "mode": "receiveAndDelete", "maxCount": 2, "waitSeconds": 60 });
    let messages = expect(&server, &head, request, 200).await["messages"].clone();
    let bodies: Vec<&Value> =
        messages.as_array().unwrap().iter().map(|message| &message["body"]).collect();
    assert_eq!(bodies, [&json!("1"), &json!("2")]);
    for wrong in [
        json!({ "maxCount": 0 }),
        json!({ "maxCount": 5_000 }),
        json!({ "waitSeconds": -1 }),
        json!({ "mode": "steal" }),
        json!([]),
    ] {
        expect(&server, &head, wrong, 400).await;
    }
    let both = json!({ "body": "a", "bodyBase64": "YQ==" });
    expect(&server, &format!("POST {Q}/messages"), both, 400).await;
    let document = expect(&server, "GET /$api/v1/openapi.json", Value::Null, 200).await;
    assert_eq!(document["servers"][0]["url"], "/$api/v1");
    server.stop().await;
}

/// TXN-16: no operation over HTTP belongs to a transaction.
#[tokio::test]
async fn no_transaction_is_offered() {
    let server = Server::start().await;
    let document = expect(&server, "GET /$api/v1/openapi.json", Value::Null, 200).await;
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert!(paths.len() > 10, "{paths:?}");
    // A message may have a partition key for transactions, which is only a property.
    let rest = document.to_string().replace("transactionPartitionKey", "");
    assert!(!rest.to_lowercase().contains("transaction"), "{rest}");
    expect(&server, "POST /$api/v1/transactions", json!({}), 404).await;
    server.stop().await;
}

/// SES-29, HTP-10: sessions are listed in pages, with at most one filter.
#[tokio::test]
async fn sessions_are_listed_in_pages() {
    let server = Server::start().await;
    let steps = "/$api/v1/queues/steps";
    expect(&server, &format!("PUT {steps}"), json!({ "requiresSession": true }), 201).await;
    let messages: Vec<Value> =
        ["b", "a", "c"].map(|id| json!({ "body": "x", "sessionId": id })).to_vec();
    let batch = json!({ "messages": messages });
    expect(&server, &format!("POST {steps}/messages/batch"), batch, 201).await;
    let list = async |query: &str, status| {
        expect(&server, &format!("GET {steps}/sessions{query}"), Value::Null, status).await
    };
    let all = json!({ "sessionIds": ["a", "b", "c"], "skip": 0, "top": 100 });
    assert_eq!(list("", 200).await, all);
    assert_eq!(list("?withActiveMessages=false", 200).await, all);
    let page = json!({ "sessionIds": ["b"], "skip": 1, "top": 1 });
    assert_eq!(list("?skip=1&top=1&withActiveMessages=true", 200).await, page);
    let capped = list("?top=100000", 200).await;
    assert_eq!(capped["top"], 100);
    let none = list("?stateSetAfterUtc=2026-05-01T00:00:00Z", 200).await;
    assert_eq!(none["sessionIds"], json!([]));
    for wrong in [
        "?withActiveMessages=yes",
        "?stateSetAfterUtc=yesterday",
        "?withActiveMessages=true&stateSetAfterUtc=2026-05-01T00:00:00Z",
        "?top=-1",
    ] {
        assert_eq!(list(wrong, 400).await["code"], "ArgumentError", "{wrong}");
    }
    let plain = expect(&server, &format!("GET {Q}/sessions"), Value::Null, 400).await;
    assert_eq!(plain["code"], "InvalidOperation");
    let absent = "GET /$api/v1/queues/absent/sessions";
    assert_eq!(expect(&server, absent, Value::Null, 404).await["code"], "EntityNotFound");
    expect(&server, &format!("POST {steps}/sessions"), json!({}), 405).await;
    server.stop().await;
}

/// PEK-07, DEL-07, HTP-10: a session can be peeked at without holding it. A client that manages the
/// queue can delete messages of unlocked sessions; a purge works only for queues without sessions.
#[tokio::test]
async fn sessions_are_looked_into_and_emptied() {
    let server = Server::start().await;
    let steps = "/$api/v1/queues/steps";
    expect(&server, &format!("PUT {steps}"), json!({ "requiresSession": true }), 201).await;
    let messages: Vec<Value> =
        ["b", "a", "b"].map(|id| json!({ "body": id, "sessionId": id })).to_vec();
    let batch = json!({ "messages": messages });
    expect(&server, &format!("POST {steps}/messages/batch"), batch, 201).await;
    let head = format!("GET {steps}/messages?count=10&sessionId=b");
    let seen = expect(&server, &head, Value::Null, 200).await;
    let numbers: Vec<&Value> =
        seen["messages"].as_array().unwrap().iter().map(|one| &one["sequenceNumber"]).collect();
    assert_eq!(numbers, [1, 3]);
    for operation in ["purge", "delete-batch"] {
        let head = format!("POST {steps}/messages/{operation}");
        let refused = expect(&server, &head, json!({}), 400).await;
        assert_eq!(refused["code"], "InvalidOperation");
        let detail = refused["detail"].as_str().unwrap();
        for way_out in ["`steps`", "delete-unlocked", "accept a session"] {
            assert!(detail.contains(way_out), "{operation}: {detail}");
        }
    }
    // Only messages enqueued before now (DEL-03).
    server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(1));
    let head = format!("POST {steps}/messages/delete-unlocked");
    let some = expect(&server, &head, json!({ "maxCount": 2 }), 200).await;
    assert_eq!(some, json!({ "deleted": 2 }));
    assert_eq!(expect(&server, &head, Value::Null, 200).await, json!({ "deleted": 1 }));
    server.stop().await;
}

/// A query parameter that an operation does not have is refused by name, for each method.
#[tokio::test]
async fn unknown_query_parameters_are_refused() {
    let server = Server::start().await;
    for (head, name) in [
        (format!("GET {Q}/messages?form=1"), "form"),
        (format!("GET {Q}?skip=1"), "skip"),
        ("GET /$api/v1/queues?skip=0&filter=a".to_owned(), "filter"),
        (format!("POST {Q}/messages?sessionId=a"), "sessionId"),
        (format!("DELETE {Q}?force"), "force"),
    ] {
        let refused = expect(&server, &head, json!({}), 400).await;
        assert_eq!(refused["code"], "ArgumentError", "{head}");
        assert!(refused["detail"].as_str().unwrap().contains(&format!("`{name}`")), "{refused}");
    }
    expect(&server, "GET /$api/v1/queues?SKIP=0&&top=1", Value::Null, 200).await;
    server.stop().await;
}

/// An unencoded slash separates segments; the refusal explains that.
#[tokio::test]
async fn a_slash_in_the_name_of_a_queue_is_encoded() {
    let server = Server::start().await;
    expect(&server, "PUT /$api/v1/queues/a%2Fb", json!({}), 201).await;
    expect(&server, "GET /$api/v1/queues/a%2Fb", Value::Null, 200).await;
    let refused = expect(&server, "GET /$api/v1/queues/a/b", Value::Null, 404).await;
    assert!(refused["detail"].as_str().unwrap().contains("%2F"), "{refused}");
    server.stop().await;
}

/// DEC-09, DEC-10, DEC-12, DEC-13: a declaration is planned, and carried out in parts by digest. It
/// is refused when the steps have changed, and unknown properties are refused.
#[tokio::test]
async fn a_declaration_is_planned_and_carried_out() {
    const PATH: &str = "POST /$api/v1/declaration";
    let server = Server::start().await;
    let body = json!({
        "queues": [{ "path": "a", "properties": { "maxDeliveryCount": 5 } }, { "path": "b" }],
        "topics": [{ "path": "t", "subscriptions": [{ "name": "s", "rules": [{ "name": "r" }] }] }],
    });
    let plan = expect(&server, &format!("{PATH}?dryRun=true"), body.clone(), 200).await;
    let step = json!({
        "kind": "create", "entity": "queue", "path": "a",
        "changes": [{ "property": "max_delivery_count", "after": "5" }],
    });
    assert_eq!((plan["steps"].as_array().unwrap().len(), &plan["steps"][1]), (4, &step));
    expect(&server, "GET /$api/v1/queues/a", Value::Null, 404).await;
    let digest = |plan: &Value| plan["digest"].as_str().unwrap().to_owned();
    let head = format!("{PATH}?digest={}&stepsMax=3", digest(&plan));
    let part = expect(&server, &head, body.clone(), 200).await;
    assert_eq!((&part["done"], part["rest"]["steps"].as_array().unwrap().len()), (&json!(3), 1));
    let conflict = expect(&server, &head, body.clone(), 409).await;
    assert_eq!(conflict["code"], "UpdateConflict");
    let head = format!("{PATH}?digest={}", digest(&part["rest"]));
    let rest = expect(&server, &head, body.clone(), 200).await;
    assert_eq!((&rest["done"], &rest["rest"]["unchangedCount"]), (&json!(1), &json!(4)));
    for wrong in ["", "?digest=zz", "?dryRun=true&digest=0123456789abcdef", "?dryrunn=true"] {
        expect(&server, &format!("{PATH}{wrong}"), body.clone(), 400).await;
    }
    let twice = json!({ "queues": [{ "path": "a" }, { "path": "A" }] });
    let refused = expect(&server, &format!("{PATH}?dryRun=true"), twice, 400).await;
    assert!(refused["detail"].as_str().unwrap().starts_with("queues[1]: "), "{refused}");
    let unknown = json!({ "queues": [{ "path": "a", "propertys": {} }] });
    expect(&server, &format!("{PATH}?dryRun=true"), unknown, 400).await;
    server.stop().await;
}

/// ADM-68, ENT-31: below Premium, a creation over Atom gives the size of each of 16 partitions;
/// from then on, description and quota have the total size. The JSON API takes the total size.
#[tokio::test]
async fn a_partitioned_entity_has_the_size_of_its_partitions() {
    let asked = |kind: &str, size: &str| {
        let properties = format!("{size}<EnablePartitioning>true</EnablePartitioning>");
        entry(kind, &properties)
    };
    let size = |megabytes: u64| format!("<MaxSizeInMegabytes>{megabytes}</MaxSizeInMegabytes>");
    for (tier, factor) in [(Tier::Basic, 16), (Tier::Standard, 16), (Tier::Premium, 1)] {
        let mut plan = Plan::new();
        plan.settings = Settings::new("shop", tier);
        let server = plan.start().await;
        for (kind, path) in [("QueueDescription", "a"), ("TopicDescription", "t")] {
            if (tier, path) == (Tier::Basic, "t") {
                continue;
            }
            let put = format!("PUT /{path}?{VERSION}");
            let read = async || {
                text(&server.ask(&format!("GET /{path}?{VERSION}"), "").await, "MaxSizeInMegabytes")
            };
            let created = server.ask(&put, asked(kind, &size(2))).await;
            assert_eq!(created.status, 201, "{}", created.text());
            assert_eq!(read().await, (2 * factor).to_string());
            // An update gives the size that was read; without a size it resets to the default of a
            // creation.
            let change = format!("{put}\nIf-Match: *");
            for (given, expected) in [(size(2 * factor), 2), (String::new(), 1_024)] {
                let changed = server.ask(&change, asked(kind, &given)).await;
                assert_eq!(changed.status, 200, "{tier:?}: {}", changed.text());
                assert_eq!(read().await, (expected * factor).to_string());
            }
        }
        let refused =
            server.ask(&format!("PUT /b?{VERSION}"), asked("QueueDescription", &size(5_121))).await;
        assert_eq!(refused.status, if factor == 1 { 201 } else { 400 });
        let body = json!({ "maxSizeInMegabytes": 2, "enablePartitioning": true });
        let queue = expect(&server, "PUT /$api/v1/queues/c", body, 201).await;
        assert_eq!(queue["maxSizeInMegabytes"], 2);
        assert_eq!(
            server
                .ask(&format!("PUT /d?{VERSION}"), asked("QueueDescription", &size(1)))
                .await
                .status,
            201
        );
        let half = "x".repeat(200 << 10);
        let mut taken = 0;
        while server.ask("POST /d/messages", half.as_str()).await.status == 201 {
            taken += 1;
        }
        assert_eq!(taken, 5 * factor + if factor == 16 { 1 } else { 0 });
        server.stop().await;
    }
}
