//! How long a request waits for the broker.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::store::Shard;
use peeklock_store_testing::{Fate, FaultStore};
use tokio::time::Instant;

use super::client::Answer;
use super::security::OPERATIONS;
use super::server::{Plan, Server};

/// Longer than any answer takes.
const NEVER: Duration = Duration::from_secs(30);
/// Operations that are not in the table of rights.
const MORE: &[(&str, &str)] = &[
    ("PUT /$api/v1/queues/fresh", "{}"),
    ("GET /$api/v1/topics", ""),
    ("PUT /$api/v1/topics/fresh", "{}"),
    ("GET /$api/v1/topics/t", ""),
    ("PATCH /$api/v1/topics/t", "{}"),
    ("GET /$api/v1/topics/t/subscriptions", ""),
    ("PUT /$api/v1/topics/t/subscriptions/fresh", "{}"),
    ("GET /$api/v1/topics/t/subscriptions/s", ""),
    ("PATCH /$api/v1/topics/t/subscriptions/s", "{}"),
    ("GET /$api/v1/topics/t/subscriptions/s/rules", ""),
    ("PUT /$api/v1/topics/t/subscriptions/s/rules/r", r#"{"filter": {"sql": "1 = 1"}}"#),
    ("DELETE /$api/v1/topics/t/subscriptions/s/rules/r", ""),
    ("POST /$api/v1/topics/t/subscriptions/s/explain", r#"{"message": {"body": "a"}}"#),
    ("POST /$api/v1/topics/t/explain", r#"{"message": {"body": "a"}}"#),
    (
        "POST /$api/v1/topics/t/what-if",
        r#"{"changes": [{"subscription": "s", "rule": {"name": "r"}}]}"#,
    ),
    ("DELETE /$api/v1/topics/t/subscriptions/s", ""),
    ("DELETE /$api/v1/topics/t", ""),
    ("POST /$api/v1/declaration", r#"{"queues": [{"path": "q"}]}"#),
    ("GET /q?api-version=2021-05", ""),
    ("GET /$Resources/queues?api-version=2021-05", ""),
    ("GET /t/Subscriptions?api-version=2021-05", ""),
    ("DELETE /q?api-version=2021-05", ""),
];

async fn ask(server: &Server, head: &str, body: &str) -> Answer {
    let answer = tokio::time::timeout(NEVER, server.ask(head, body)).await;
    answer.unwrap_or_else(|_| panic!("{head} waits for good"))
}

/// Returns a listener that waits only briefly for its broker, and the store of the broker.
async fn hasty() -> (Arc<FaultStore>, Server) {
    let store = FaultStore::at_once(1, u64::MAX);
    let mut plan = Plan::new();
    plan.store = Some(Arc::clone(&store) as _);
    plan.config.operation_timeout = Duration::from_millis(50);
    plan.settings.limits.broker_inbound_bytes_max = 1 << 20;
    (store, plan.start().await)
}

/// ERR-06, DESIGN D6: each operation that waits for the store, or for the room of management, is
/// answered in time with an error that leaves the outcome open. Everything continues when the store
/// does.
#[tokio::test]
async fn every_operation_is_answered_in_time() {
    let (store, server) = hasty().await;
    // Not over HTTP, whose time is short here.
    let (topic, subscription) = (TopicUpdate::default(), SubscriptionUpdate::default());
    server.broker.create_topic("t", topic).await.unwrap();
    server.broker.create_subscription("t", "s", subscription, vec![]).await.unwrap();
    store.complete_at_once(false);
    for (head, body) in
        [("POST /q/messages", "a"), ("PATCH /$api/v1/queues/q", r#"{"maxDeliveryCount": 3}"#)]
    {
        let answer = ask(&server, head, body).await;
        assert_eq!(answer.error(), (408, "ServiceTimeout".to_owned()), "{head}");
        assert_eq!(answer.json()["retryable"], true, "{head}");
        assert!(answer.text().contains("http.operation_timeout"), "{head}");
    }
    // Changes that are not stored hold the room of management.
    let updates: Vec<_> = (0..200)
        .map(|count| {
            let broker = server.broker.clone();
            let update =
                QueueUpdate { max_delivery_count: Some(count + 1), ..QueueUpdate::default() };
            tokio::spawn(async move { broker.update_queue("q", update, None).await })
        })
        .collect();
    while ask(&server, "GET /$api/v1/queues/q", "").await.status == 200 {}
    for head in ["GET /$api/v1/queues/q", "PUT /$api/v1/queues/other", "DELETE /$api/v1/queues/q"] {
        let answer = ask(&server, head, "").await;
        assert_eq!(answer.error(), (408, "ServiceTimeout".to_owned()), "{head}");
    }
    for (head, _) in OPERATIONS {
        ask(&server, &head.replace("{}", "q"), "{}").await;
    }
    for (head, body) in MORE {
        ask(&server, head, body).await;
    }
    store.complete_at_once(true);
    while store.complete_next(Shard(0), Fate::Store) {}
    while ask(&server, "PUT /$api/v1/queues/next", "").await.status == 408 {}
    for update in updates {
        update.abort();
    }
    server.stop().await;
}

/// HTP-08, HTP-09: neither the arrival of a body nor the requested wait of a receive counts as
/// waiting for the broker.
#[tokio::test]
async fn the_time_of_a_client_does_not_count() {
    let (_, server) = hasty().await;
    let begun = Instant::now();
    let mut slow = server.connect().await;
    let request = server.request("POST /q/messages", "late");
    let (most, rest) = request.split_at(request.len() - 1);
    slow.write(most).await;
    let mut waiting = server.connect().await;
    waiting.write(&server.request("POST /q/messages/head?timeout=20", "")).await;
    while begun.elapsed() < Duration::from_millis(300) {
        server.in_progress(3).await;
    }
    slow.write(rest).await;
    assert_eq!(slow.read().await.unwrap().status, 201);
    assert_eq!(waiting.read().await.unwrap().status, 201);
    server.stop().await;
}
