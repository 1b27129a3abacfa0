//! Topics over the protocol: pushed deliveries of a subscription, and errors for invalid requests.

use serde_json::{Value, json};

use super::server::{Server, run};

/// TOP-01, RCV-16: deliveries of a subscription are pushed over credit and numbered like those from
/// a queue.
#[test]
fn a_subscription_pushes_messages_selected_by_its_rules() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        let topic = client.ask("createTopic", json!({ "path": "t" })).await;
        assert_eq!(topic["topic"]["path"], "t");
        let rule = json!({ "name": "r", "filter": { "type": "sql", "sql": "n > @min",
            "parameters": { "@min": 1 } }, "action": { "sql": "SET seen = TRUE" } });
        let made = json!({ "topic": "t", "name": "s", "rules": [rule] });
        let made = client.ask("createSubscription", made).await;
        assert_eq!(made["subscription"]["path"], "t/Subscriptions/s");
        let receiver =
            json!({ "link": 2, "path": "t/subscriptions/S", "role": "receiver", "credit": 5 });
        assert!(client.ask("attach", receiver).await.get("done").is_some());
        client.ask("attach", json!({ "link": 1, "path": "t", "role": "sender" })).await;
        let messages: Vec<_> = (0..4)
            .map(|n| json!({ "body": n.to_string(), "applicationProperties": { "n": n } }))
            .collect();
        let sent = client.ask("send", json!({ "link": 1, "messages": messages })).await;
        assert_eq!(sent["accepted"]["sequenceNumbers"], json!([[1, 4]]));
        let deliveries = client.deliveries(2).await;
        assert_eq!(deliveries, [(1, "2".to_owned()), (2, "3".to_owned())]);
        let settle = json!({ "link": 2, "decision": "complete", "ranges": [[1, 2]] });
        assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
        let shown = client.ask("getSubscription", json!({ "path": "t/subscriptions/s" })).await;
        assert_eq!(shown["subscription"]["runtime"]["totalMessageCount"], 0);
        assert_eq!(shown["subscription"]["runtime"]["lastSequenceNumber"], 2);

        // A receiver is notified when its entity is deleted (ENT-15).
        client.ask("deleteTopic", json!({ "path": "t" })).await;
        let detached = client.pushed("detached").await;
        assert_eq!(detached["error"]["condition"], "EntityNotFound");
        client.close(Some(1_000)).await;
        server.stop().await;
    });
}

/// TOP-12: an empty list of rules is the same as no list and gives `$Default`. A rule with a false
/// filter selects nothing.
#[test]
fn a_subscription_with_no_rules_in_its_list_has_the_default() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        client.ask("createTopic", json!({ "path": "t" })).await;
        let nothing = json!({ "name": "nothing", "filter": { "type": "false" } });
        for (name, rules, has, takes) in
            [("all", json!([]), "$Default", 1), ("none", json!([nothing]), "nothing", 0)]
        {
            let made = json!({ "topic": "t", "name": name, "rules": rules });
            let made = client.ask("createSubscription", made).await;
            let path = made["subscription"]["path"].as_str().unwrap().to_owned();
            let rules = client.ask("listRules", json!({ "path": path })).await;
            let names: Vec<_> =
                rules["rules"]["rules"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
            assert_eq!(names, [has], "{name}");
            client.ask("attach", json!({ "link": 1, "path": "t", "role": "sender" })).await;
            client.ask("send", json!({ "link": 1, "messages": [{ "body": "x" }] })).await;
            client.ask("detach", json!({ "link": 1 })).await;
            let shown = client.ask("getSubscription", json!({ "path": path })).await;
            assert_eq!(shown["subscription"]["runtime"]["totalMessageCount"], takes, "{name}");
        }
        server.stop().await;
    });
}

async fn refused(client: &mut super::client::Client, operation: &str, body: Value) -> String {
    let answer = client.ask(operation, body.clone()).await;
    let error = &answer["error"];
    assert!(error["trackingId"].is_string(), "{operation} {body}: {answer}");
    error["condition"].as_str().unwrap().to_owned()
}

/// TOP-16, TOP-17, TOP-18, MAT-01: each mistake gets its error and changes nothing.
#[test]
fn mistakes_are_refused_and_change_nothing() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        client.ask("createTopic", json!({ "path": "t" })).await;
        client.ask("createSubscription", json!({ "topic": "t", "name": "s" })).await;
        let s = "t/subscriptions/s";
        let sql = |text: &str| json!({ "name": "r", "filter": { "type": "sql", "sql": text } });
        let many: Vec<_> = (0..5_000).map(|n| json!({ "name": format!("r{n}") })).collect();
        let too_many = vec![json!({ "name": "x" }); 2];
        for (operation, body, condition) in [
            ("createTopic", json!({ "path": "t" }), "EntityAlreadyExists"),
            ("createTopic", json!({ "path": "q" }), "EntityAlreadyExists"),
            ("createTopic", json!({ "path": "a//b" }), "ArgumentError"),
            (
                "createTopic",
                json!({ "path": "a", "properties": { "lockDuration": "PT1M" } }),
                "ArgumentError",
            ),
            (
                "createTopic",
                json!({ "path": "a", "properties": { "status": "ReceiveDisabled" } }),
                "ArgumentError",
            ),
            ("getTopic", json!({ "path": "q" }), "EntityNotFound"),
            ("getQueue", json!({ "path": "t" }), "EntityNotFound"),
            ("deleteQueue", json!({ "path": "t" }), "EntityNotFound"),
            ("deleteTopic", json!({ "path": s }), "EntityNotFound"),
            ("deleteSubscription", json!({ "path": "t" }), "EntityNotFound"),
            ("listSubscriptions", json!({ "path": "q" }), "EntityNotFound"),
            ("createSubscription", json!({ "topic": "none", "name": "s" }), "EntityNotFound"),
            ("createSubscription", json!({ "topic": "q", "name": "s" }), "EntityNotFound"),
            ("createSubscription", json!({ "topic": "t", "name": "S" }), "EntityAlreadyExists"),
            (
                "createSubscription",
                json!({ "topic": "t", "name": "u", "rules": [sql("n >")] }),
                "ArgumentError",
            ),
            (
                "createSubscription",
                json!({ "topic": "t", "name": "u", "rules": [{}] }),
                "ArgumentError",
            ),
            (
                "createSubscription",
                json!({ "topic": "t", "name": "u", "rules": too_many }),
                "EntityAlreadyExists",
            ),
            (
                "createSubscription",
                json!({ "topic": "t", "name": "u", "rules": many }),
                "ArgumentError",
            ),
            ("getSubscription", json!({ "path": "t/subscriptions/u" }), "EntityNotFound"),
            (
                "getSubscription",
                json!({ "path": "t/subscriptions/s/$deadletterqueue" }),
                "InvalidOperation",
            ),
            ("createRule", json!({ "path": s, "rule": sql("n >") }), "ArgumentError"),
            (
                "createRule",
                json!({ "path": s, "rule": sql(&"n".repeat(1_025)) }),
                "ArgumentOutOfRange",
            ),
            (
                "createRule",
                json!({ "path": s, "rule": { "name": "r", "filter": { "type": "correlation" } } }),
                "ArgumentError",
            ),
            (
                "createRule",
                json!({ "path": s, "rule": { "name": "$default" } }),
                "EntityAlreadyExists",
            ),
            ("createRule", json!({ "path": "q", "rule": sql("1=1") }), "InvalidOperation"),
            ("createRule", json!({ "path": "t", "rule": sql("1=1") }), "InvalidOperation"),
            ("updateRule", json!({ "path": s, "rule": sql("1=1") }), "EntityNotFound"),
            ("deleteRule", json!({ "path": s, "name": "r" }), "EntityNotFound"),
            ("getRule", json!({ "path": s, "name": "r" }), "EntityNotFound"),
            ("explain", json!({ "path": "t/subscriptions/u", "message": {} }), "EntityNotFound"),
            ("explain", json!({ "path": s, "message": { "bodyy": "x" } }), "ArgumentError"),
            ("explain", json!({ "path": s }), "ArgumentError"),
            (
                "attach",
                json!({ "link": 9, "path": "t/subscriptions/u", "role": "receiver" }),
                "EntityNotFound",
            ),
        ] {
            assert_eq!(
                refused(&mut client, operation, body.clone()).await,
                condition,
                "{operation} {body}"
            );
        }
        // Directions that topics and subscriptions do not have (SND-20, RCV-30).
        client.ask("attach", json!({ "link": 1, "path": s, "role": "sender" })).await;
        let sent = client.ask("send", json!({ "link": 1, "messages": [{ "body": "x" }] })).await;
        assert_eq!(sent["accepted"]["failed"][0]["error"]["condition"], "InvalidOperation");
        client.ask("attach", json!({ "link": 2, "path": "t", "role": "receiver" })).await;
        let receive = json!({ "link": 2, "maxCount": 1, "waitSeconds": 0 });
        assert_eq!(refused(&mut client, "receive", receive).await, "InvalidOperation");

        let rules = client.ask("listRules", json!({ "path": s })).await;
        let names: Vec<_> = rules["rules"]["rules"].as_array().unwrap().iter().collect();
        assert_eq!((names.len(), &names[0]["name"]), (1, &json!("$Default")));
        let topic = client.ask("getTopic", json!({ "path": "t" })).await;
        assert_eq!(topic["topic"]["runtime"]["subscriptionCount"], 1);
        assert_eq!(topic["topic"]["runtime"]["lastSequenceNumber"], 0);
        client.close(Some(1_000)).await;
        server.stop().await;
    });
}
