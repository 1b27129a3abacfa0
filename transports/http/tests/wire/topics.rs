//! Topics, subscriptions and rules over the JSON API, and on their paths in the REST data plane.

use peeklock_core::contract::Right;
use peeklock_core::time::TimeSpan;
use serde_json::{Value, json};

use super::security::guarded;
use super::server::{Plan, Server};

const TOPIC: &str = "/$api/v1/topics/eu%2Forders";

async fn expect(server: &Server, head: &str, body: Value, status: u16) -> Value {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = server.ask(&format!("{head}\nContent-Type: application/json"), text).await;
    let json = if answer.body.is_empty() { Value::Null } else { answer.json() };
    assert_eq!(answer.status, status, "{head}: {json}");
    json
}

async fn with_subscription(rules: Value) -> Server {
    let server = Server::start().await;
    expect(&server, &format!("PUT {TOPIC}"), json!({}), 201).await;
    let body = if rules.is_null() { json!({}) } else { json!({ "rules": rules }) };
    expect(&server, &format!("PUT {TOPIC}/subscriptions/a"), body, 201).await;
    server
}

/// HTP-10, ENT-17, ENT-31, CNT-04: topics and subscriptions are created, read, listed, updated,
/// deleted.
#[tokio::test]
async fn topics_and_subscriptions_are_managed() {
    let server = Server::start().await;
    let answer = server.ask(&format!("PUT {TOPIC}"), r#"{"userMetadata":"m"}"#).await;
    assert_eq!(answer.status, 201);
    let location = format!("http://{}{TOPIC}", server.address);
    assert_eq!(answer.header("location"), Some(location.as_str()));
    let topic = answer.json();
    assert_eq!((&topic["path"], &topic["supportOrdering"]), (&json!("eu/orders"), &json!(true)));
    assert_eq!(topic["runtime"]["subscriptionCount"], 0);
    let etag = answer.header("etag").unwrap().to_owned();
    server.clock.advance(TimeSpan::from_seconds(1));
    let patch = format!("PATCH {TOPIC}\nIf-Match: {etag}");
    let updated = expect(&server, &patch, json!({ "maxSizeInMegabytes": 5 }), 200).await;
    assert_eq!(
        (&updated["maxSizeInMegabytes"], &updated["userMetadata"]),
        (&json!(5), &json!("m"))
    );
    let conflict = expect(&server, &patch, json!({ "maxSizeInMegabytes": 6 }), 409).await;
    assert_eq!(
        (&conflict["code"], &conflict["retryable"]),
        (&json!("UpdateConflict"), &json!(true))
    );
    assert!(conflict["trackingId"].is_string(), "{conflict}");
    let patch = format!("PATCH {TOPIC}");
    let cleared = expect(&server, &patch, json!({ "userMetadata": null }), 200).await;
    assert_eq!(cleared["userMetadata"], Value::Null);

    let path = format!("{TOPIC}/subscriptions/a%2Db");
    let body = json!({ "maxDeliveryCount": 3, "rules": [{ "name": "r" }] });
    let answer = server.ask(&format!("PUT {path}"), body.to_string()).await;
    let location = format!("http://{}{TOPIC}/subscriptions/a-b", server.address);
    assert_eq!((answer.status, answer.header("location")), (201, Some(location.as_str())));
    let subscription = answer.json();
    assert_eq!(subscription["path"], "eu/orders/Subscriptions/a-b");
    assert_eq!(
        (&subscription["topic"], &subscription["name"]),
        (&json!("eu/orders"), &json!("a-b"))
    );
    let etag = answer.header("etag").unwrap().to_owned();
    let patch = format!("PATCH {path}\nIf-Match: {etag}");
    server.clock.advance(TimeSpan::from_seconds(1));
    expect(&server, &patch, json!({ "lockDuration": "PT5S" }), 200).await;
    expect(&server, &patch, json!({ "lockDuration": "PT6S" }), 409).await;
    let got = expect(&server, &format!("GET {path}"), Value::Null, 200).await;
    assert_eq!((&got["lockDuration"], &got["maxDeliveryCount"]), (&json!("PT5S"), &json!(3)));
    let list = expect(&server, &format!("GET {TOPIC}/subscriptions"), Value::Null, 200).await;
    assert_eq!(list["subscriptions"][0]["name"], "a-b");
    let list = expect(&server, "GET /$api/v1/topics?skip=0&top=1", Value::Null, 200).await;
    assert_eq!((&list["topics"][0]["path"], &list["top"]), (&json!("eu/orders"), &json!(1)));

    // A queue is not a topic, and a topic is not a queue.
    expect(&server, "GET /$api/v1/topics/q", Value::Null, 404).await;
    expect(&server, "GET /$api/v1/queues/eu%2Forders", Value::Null, 404).await;
    expect(&server, "DELETE /$api/v1/queues/eu%2Forders", Value::Null, 404).await;
    expect(&server, &format!("DELETE {path}"), Value::Null, 204).await;
    expect(&server, &format!("GET {path}"), Value::Null, 404).await;
    expect(&server, &format!("DELETE {TOPIC}"), Value::Null, 204).await;
    expect(&server, &format!("GET {TOPIC}"), Value::Null, 404).await;
    server.stop().await;
}

/// TOP-13, TOP-16, TOP-17, TOP-24: rules, and their errors with positions.
#[tokio::test]
async fn rules_are_managed() {
    let server = with_subscription(Value::Null).await;
    let rules = format!("{TOPIC}/subscriptions/a/rules");
    let list = expect(&server, &format!("GET {rules}"), Value::Null, 200).await;
    assert_eq!((&list["rules"][0]["name"], &list["top"]), (&json!("$Default"), &json!(100)));
    assert_eq!(list["rules"][0]["filter"], json!({ "type": "true" }));
    let filter = json!({ "type": "sql", "sql": "a > @b",
        "parameters": { "@b": { "type": "i32", "value": 7 } } });
    let body = json!({ "filter": filter, "action": { "sql": "SET c = 1" } });
    let answer = server.ask(&format!("PUT {rules}/R%2D1"), body.to_string()).await;
    let location = format!("http://{}{rules}/R-1", server.address);
    assert_eq!((answer.status, answer.header("location")), (201, Some(location.as_str())));
    assert_eq!(answer.json()["filter"], filter);
    assert_eq!(answer.json()["createdAt"], "2026-05-01T12:00:00Z");
    expect(&server, &format!("PUT {rules}/r-1"), body.clone(), 409).await;
    let got = expect(&server, &format!("GET {rules}/r-1"), Value::Null, 200).await;
    assert_eq!((&got["name"], &got["action"]["sql"]), (&json!("R-1"), &json!("SET c = 1")));
    // It is replaced as a whole, so the action is removed.
    let new =
        json!({ "filter": { "type": "correlation", "subject": "s", "properties": { "n": 1 } } });
    let updated = expect(&server, &format!("PATCH {rules}/r-1"), new, 200).await;
    assert_eq!(updated["action"], Value::Null);
    assert_eq!(updated["filter"]["properties"], json!({ "n": 1 }));
    expect(&server, &format!("DELETE {rules}/%24Default"), Value::Null, 204).await;
    expect(&server, &format!("DELETE {rules}/%24Default"), Value::Null, 404).await;
    expect(&server, &format!("PATCH {rules}/none"), body.clone(), 404).await;
    expect(&server, &format!("POST {rules}"), body, 405).await;
    for (wrong, part) in [
        (json!({ "filter": { "type": "sql", "sql": "a >" } }), "line 1, column 4"),
        (json!({ "filter": { "type": "sql" } }), "no `sql`"),
        (json!({ "filter": { "type": "true", "sql": "1=1" } }), "true or false"),
        (json!({ "filter": { "type": "correlation" } }), "no property"),
        (json!({ "filters": {} }), "unknown field"),
        (json!({ "name": "other" }), "differs from the name"),
        (
            json!({ "filter": { "type": "sql", "sql": "1=1" }, "action": { "sql": "SET" } }),
            "action",
        ),
        (json!([]), "expected JSON"),
    ] {
        let problem = expect(&server, &format!("PUT {rules}/new"), wrong.clone(), 400).await;
        assert_eq!(problem["code"], "ArgumentError");
        assert!(problem["detail"].as_str().unwrap().contains(part), "{wrong}: {problem}");
    }
    expect(&server, &format!("GET {rules}/new"), Value::Null, 404).await;
    // An invalid rule, or a misspelt property, creates no subscription.
    let other = format!("{TOPIC}/subscriptions/b");
    for wrong in [
        json!({ "rules": [{ "name": "x", "filter": { "type": "sql", "sql": "a >" } }] }),
        json!({ "rules": [{}] }),
        json!({ "rules": {} }),
        json!({ "rulez": [] }),
        json!({ "lockDuration": 5 }),
    ] {
        expect(&server, &format!("PUT {other}"), wrong, 400).await;
        expect(&server, &format!("GET {other}"), Value::Null, 404).await;
    }
    server.stop().await;
}

/// TOP-01, HTP-01, HTP-06, HTP-07: REST sends to a topic, and receives from subscriptions and their
/// sub-queues.
#[tokio::test]
async fn rest_sends_to_a_topic_and_receives_from_a_subscription() {
    let rule = json!({ "name": "eu", "filter": { "type": "correlation",
        "properties": { "region": "eu" } }, "action": { "sql": "SET seen = 1" } });
    let server = with_subscription(json!([rule])).await;
    let send = "POST /eu/orders/messages\nContent-Type: text/plain\nregion: \"eu\"";
    assert_eq!(server.ask(send, "hello").await.status, 201);
    assert_eq!(server.ask("POST /eu/orders/messages\nregion: \"us\"", "no").await.status, 201);
    let entity = "/eu/orders/subscriptions/a";
    let answer = server.ask(&format!("POST {entity}/messages/head?timeout=0"), "").await;
    assert_eq!((answer.status, answer.text()), (201, "hello"));
    assert_eq!((answer.header("seen"), answer.header("rulename")), (Some("1"), Some("\"eu\"")));
    let location = answer.header("location").unwrap().to_owned();
    assert!(location.contains("/eu/orders/Subscriptions/a/messages/1/"), "{location}");
    let place = &location[location.find("/eu/").unwrap()..];
    assert_eq!(server.ask(&format!("POST {place}"), "").await.status, 200);
    assert_eq!(server.ask(&format!("PUT {place}"), "").await.status, 200);
    // A lock of another entity is not found.
    let foreign = place.replace("/eu/orders/Subscriptions/a/", "/q/");
    assert_eq!(server.ask(&format!("DELETE {foreign}"), "").await.status, 404);
    let again = server.ask(&format!("POST {entity}/messages/head?timeout=0"), "").await;
    let api = format!("{TOPIC}/subscriptions/a");
    let token = again.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    let reason = json!({ "reason": "poison" });
    expect(&server, &format!("POST {api}/locks/{token}/dead-letter"), reason, 204).await;
    assert_eq!(
        server.ask(&format!("DELETE {entity}/messages/head?timeout=0"), "").await.status,
        204
    );
    let dead = format!("DELETE {entity}/$deadletterqueue/messages/head?timeout=0");
    let answer = server.ask(&dead, "").await;
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    assert_eq!(answer.header("deadletterreason"), Some("\"poison\""));
    // A topic holds no messages, and no client can send to a subscription.
    let answer = server.ask("POST /eu/orders/messages/head?timeout=0", "").await;
    assert_eq!(answer.error(), (400, "InvalidOperation".to_owned()));
    let answer = server.ask(&format!("POST {entity}/messages"), "x").await;
    assert_eq!(answer.error(), (400, "InvalidOperation".to_owned()));
    let answer = server.ask("POST /eu/orders/subscriptions/none/messages/head?timeout=0", "").await;
    assert_eq!(answer.error(), (410, "EntityNotFound".to_owned()));
    server.stop().await;
}

/// HTP-10: the same over the JSON API, below topic and subscription.
#[tokio::test]
async fn messages_are_below_topics_and_subscriptions() {
    let server = with_subscription(Value::Null).await;
    let batch = json!({ "messages": [{ "body": "1" }, { "body": "2" }] });
    expect(&server, &format!("POST {TOPIC}/messages/batch"), batch, 201).await;
    expect(&server, &format!("POST {TOPIC}/messages"), json!({ "body": "3" }), 201).await;
    let of = format!("{TOPIC}/subscriptions/a");
    let peeked = expect(&server, &format!("GET {of}/messages?count=9"), Value::Null, 200).await;
    assert_eq!(peeked["messages"].as_array().unwrap().len(), 3);
    let received = expect(&server, &format!("POST {of}/messages/receive"), json!({}), 200).await;
    let token = received["messages"][0]["lockToken"].as_str().unwrap().to_owned();
    expect(&server, &format!("POST {of}/locks/{token}/complete"), Value::Null, 204).await;
    server.clock.advance(TimeSpan::from_ms(1));
    let purged = expect(&server, &format!("POST {of}/messages/purge"), json!({}), 200).await;
    assert_eq!(purged, json!({ "deleted": 2 }));
    let dead = format!("{TOPIC}/subscriptions/a%2F$deadletterqueue/messages");
    let peeked = expect(&server, &format!("GET {dead}"), Value::Null, 200).await;
    assert_eq!(peeked, json!({ "messages": [] }));
    expect(&server, &format!("GET {TOPIC}/messages"), Value::Null, 400).await;
    expect(&server, &format!("GET {TOPIC}/rules"), Value::Null, 404).await;
    server.stop().await;
}

/// CON-35, CON-36, CON-37, CON-41: samples of a topic, the results of all its rules for a message,
/// and a trial of a changed rule.
#[tokio::test]
async fn rules_of_a_topic_are_tried_before_they_are_saved() {
    let mut plan = Plan::new();
    plan.samples = true;
    let server = plan.start().await;
    let topic = "/$api/v1/topics/t";
    expect(&server, &format!("PUT {topic}"), json!({}), 201).await;
    let rule = json!({ "name": "r", "filter": { "type": "sql", "sql": "price > 5" } });
    let subscription = format!("PUT {topic}/subscriptions/s");
    expect(&server, &subscription, json!({ "rules": [rule] }), 201).await;
    for price in [3, 7] {
        let message = json!({ "body": "x", "applicationProperties": { "price": price } });
        expect(&server, &format!("POST {topic}/messages"), message, 201).await;
    }
    let samples = server.ask(&format!("GET {topic}/samples?top=1"), "").await.json();
    assert_eq!((&samples["total"], samples["samples"].as_array().unwrap().len()), (&json!(2), 1));
    let sample = &samples["samples"][0];
    assert_eq!((&sample["sequenceNumber"], &sample["copyCount"]), (&json!(2), &json!(1)));
    assert_eq!(sample["message"]["applicationProperties"], json!({ "price": 7 }));
    assert_eq!(sample["message"]["body"], "");
    let explain = format!("POST {topic}/explain");
    let message = json!({ "applicationProperties": { "price": 7 } });
    for question in [json!({ "message": message }), json!({ "sequenceNumber": 2 })] {
        let explained = expect(&server, &explain, question, 200).await;
        let subscription = &explained["subscriptions"][0];
        assert_eq!(subscription["subscription"], "s");
        assert_eq!(subscription["rules"][0]["verdict"], "matches");
        assert_eq!(subscription["copies"][0]["rule"], "r");
    }
    for (question, status) in [
        (json!({}), 400),
        (json!({ "message": { "bodyy": "x" } }), 400),
        (json!({ "message": {}, "sequenceNumber": 1 }), 400),
        (json!({ "sequenceNumber": 9 }), 404),
    ] {
        expect(&server, &explain, question, status).await;
    }
    let what_if = format!("POST {topic}/what-if");
    let rule = json!({ "name": "r", "filter": { "type": "sql", "sql": "price < 5" } });
    let changes = json!({ "changes": [{ "subscription": "s", "rule": rule }] });
    let found = expect(&server, &what_if, changes, 200).await;
    assert_eq!((&found["sampleCount"], &found["messageCount"]), (&json!(2), &json!(0)));
    let counts = json!({
        "subscription": "s", "before": 1, "after": 1, "gained": 1, "lost": 1, "changed": 0,
    });
    assert_eq!(found["subscriptions"], json!([counts]));
    assert_eq!(found["differences"][0]["lost"], json!(["s"]));
    assert_eq!(found["differences"][0]["sample"]["sequenceNumber"], 2);
    for (question, status) in [
        (json!({ "changes": [] }), 400),
        (json!({ "changes": [{ "subscription": "s" }] }), 400),
        (json!({ "changes": [{ "subscription": "s", "remove": "none" }] }), 404),
        (json!({ "changes": [{ "subscription": "s", "remove": "r" }], "messageCount": 1001 }), 400),
    ] {
        expect(&server, &what_if, question, status).await;
    }
    for path in ["/$api/v1/queues/q/samples", "/$api/v1/topics/t/subscriptions/s/samples"] {
        assert_eq!(server.ask(&format!("GET {path}"), "").await.status, 404, "{path}");
    }
    server.stop().await;
}

/// TOP-01, SQL-15: explains why a rule selects a message or not; the message is not stored.
#[tokio::test]
async fn rules_explain_themselves() {
    let rule = json!({ "name": "dear", "filter": { "type": "sql", "sql": "price > 100 AND b = 1" },
        "action": { "sql": "SET priority = 'high'" } });
    let server = with_subscription(json!([rule])).await;
    let explain = format!("POST {TOPIC}/subscriptions/a/explain");
    let message = |properties: Value| json!({ "message": { "applicationProperties": properties } });
    let explained = expect(&server, &explain, message(json!({ "price": 120 })), 200).await;
    assert_eq!(
        explained["rules"][0],
        json!({
            "rule": "dear", "verdict": "unknown",
            "tests": [
                { "text": "price > 100", "operands": ["120", "100"], "result": true },
                { "text": "b = 1", "operands": ["NULL", "1"], "result": null },
            ],
            "reads": [{ "name": "price", "value": "120" }, { "name": "b", "value": null }],
            "changes": [],
        })
    );
    let explained = expect(&server, &explain, message(json!({ "price": 120, "b": 1 })), 200).await;
    assert_eq!(explained["rules"][0]["verdict"], "matches");
    assert_eq!(explained["rules"][0]["changes"][0], "SET priority = 'high'");
    expect(&server, &explain, json!({}), 400).await;
    expect(&server, &explain, json!({ "message": { "bodyy": "x" } }), 400).await;
    let topic = expect(&server, &format!("GET {TOPIC}"), Value::Null, 200).await;
    assert_eq!(topic["runtime"]["lastSequenceNumber"], 0);
    server.stop().await;
}

/// Operations on topics with the right that SEC-05 requires, and the resource for which it is
/// checked.
const OPERATIONS: [(&str, Right, &str); 14] = [
    ("POST /t/messages", Right::Send, "t"),
    ("POST /t/subscriptions/s/messages/head?timeout=0", Right::Listen, "t/Subscriptions/s"),
    ("PUT /$api/v1/topics/t", Right::Manage, "t"),
    ("PATCH /$api/v1/topics/t", Right::Manage, "t"),
    ("DELETE /$api/v1/topics/t", Right::Manage, "t"),
    ("POST /$api/v1/topics/t/messages", Right::Send, "t"),
    ("PUT /$api/v1/topics/t/subscriptions/s", Right::Manage, "t/Subscriptions/s"),
    ("PATCH /$api/v1/topics/t/subscriptions/s", Right::Manage, "t/Subscriptions/s"),
    ("DELETE /$api/v1/topics/t/subscriptions/s", Right::Manage, "t/Subscriptions/s"),
    ("GET /$api/v1/topics/t/subscriptions/s/messages", Right::Listen, "t/Subscriptions/s"),
    ("GET /$api/v1/topics/t/subscriptions/s/sessions", Right::Listen, "t/Subscriptions/s"),
    ("PUT /$api/v1/topics/t/subscriptions/s/rules/r", Right::Manage, "t/Subscriptions/s"),
    ("PATCH /$api/v1/topics/t/subscriptions/s/rules/r", Right::Manage, "t/Subscriptions/s"),
    ("DELETE /$api/v1/topics/t/subscriptions/s/rules/r", Right::Manage, "t/Subscriptions/s"),
];

/// SEC-05, SEC-08: without the right, a refusal reveals nothing about entities.
#[tokio::test]
async fn every_operation_on_topics_asks_for_its_right() {
    let (server, keys) = guarded().await;
    for (operation, right, resource) in OPERATIONS {
        let all = [Right::Send, Right::Listen, Right::Manage];
        let others: Vec<_> =
            all.iter().filter(|other| **other != right).map(|other| other.name()).collect();
        keys.asked.lock().unwrap().clear();
        let head = format!("{operation}\nAuthorization: {}", others.join(","));
        assert_eq!(
            server.ask(&head, "{}").await.error(),
            (401, "Unauthorized".to_owned()),
            "{head}"
        );
        assert_eq!(*keys.asked.lock().unwrap(), [resource.to_owned()], "{head}");
        let head = format!("{operation}\nAuthorization: {}", right.name());
        assert_ne!(server.ask(&head, "{}").await.status, 401, "{head}");
    }
    // Rules, descriptions and counts can be read with Listen or Manage (CON-73).
    let subscription = "/$api/v1/topics/t/subscriptions/s";
    for operation in [
        "GET {}/rules",
        "GET {}/rules/r",
        "POST {}/explain",
        "GET {}",
        "GET /$api/v1/topics/t/subscriptions",
        "GET /$api/v1/topics/t",
        "GET /$api/v1/topics",
        "GET /$api/v1/queues",
        "GET /$api/v1/queues/absent",
    ] {
        let operation = operation.replace("{}", subscription);
        for (token, is_let_in) in [("Send", false), ("Listen", true), ("Manage", true)] {
            let head = format!("{operation}\nAuthorization: {token}");
            let status = server.ask(&head, r#"{"message":{}}"#).await.status;
            assert_eq!(status != 401, is_let_in, "{head}");
        }
    }
    server.stop().await;
}

/// CNT-10, SEC-05: name, tier and instants of the namespace, with Manage or Listen.
#[tokio::test]
async fn the_namespace_is_returned_by_the_json_api() {
    let (server, keys) = guarded().await;
    let head = "GET /$api/v1/namespace\nAuthorization: ";
    let refused = server.ask(&format!("{head}Send"), "").await;
    assert_eq!(refused.error(), (401, "Unauthorized".to_owned()));
    keys.asked.lock().unwrap().clear();
    let answer = server.ask(&format!("{head}Manage"), "").await;
    assert_eq!(*keys.asked.lock().unwrap(), [String::new()], "the whole namespace is asked for");
    let namespace = server.broker.namespace();
    let told = json!({
        "name": &*namespace.name,
        "tier": "Premium",
        "createdAt": "2026-05-01T12:00:00Z",
        "modifiedAt": "2026-05-01T12:00:00Z",
    });
    assert_eq!((answer.status, answer.json()), (200, told));
    let head = "PUT /$api/v1/namespace\nAuthorization: Manage";
    assert_eq!(server.ask(head, "{}").await.status, 405);
    server.stop().await;
}
