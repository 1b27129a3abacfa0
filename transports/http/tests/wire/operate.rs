//! Operators act on locks, sessions and clients of others over the JSON API.

use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::description::QueueUpdate;
use peeklock_core::inspect::ClientQuery;
use peeklock_core::time::TimeSpan;
use serde_json::json;

use super::server::Server;

const Q: &str = "/$api/v1/queues/q";

/// CON-26: a lock is broken by sequence number, uncounted or counted, and the settlement with its
/// token fails.
#[tokio::test]
async fn locks_are_broken_by_number() {
    let server = Server::start().await;
    server.send("a").await;
    for (counted, deliveries) in [(false, 1), (true, 1), (false, 2)] {
        let receive = server.ask(&format!("POST {Q}/messages/receive"), "{}").await.json();
        let message = &receive["messages"][0];
        assert_eq!(message["deliveryCount"], deliveries);
        let body = json!({ "sequenceNumbers": [1, 7], "counted": counted }).to_string();
        let broken = server.ask(&format!("POST {Q}/locks/break"), &body).await;
        assert_eq!((broken.status, broken.json()), (200, json!({ "broken": 1 })));
        let token = message["lockToken"].as_str().unwrap();
        let settled = server.ask(&format!("POST {Q}/locks/{token}/complete"), "").await;
        assert_eq!(settled.json()["code"], "MessageLockLost");
    }
    for body in [
        json!({}),
        json!({ "sequenceNumbers": [-1] }),
        json!({ "sequenceNumbers": [1], "other": 1 }),
        json!({ "sequenceNumbers": vec![1; 501] }),
    ] {
        let refused = server.ask(&format!("POST {Q}/locks/break"), &body.to_string()).await;
        assert_eq!(refused.status, 400, "{body}");
    }
    let allowed = server.ask(&format!("GET {Q}/locks/break"), "").await;
    assert_eq!((allowed.status, allowed.header("allow")), (405, Some("POST, OPTIONS")));
    server.stop().await;
}

/// CON-26, CON-27: the lock of a session is broken, and its state is set and cleared while nobody
/// holds it.
#[tokio::test]
async fn session_is_broken_and_its_state_is_set() {
    let server = Server::start().await;
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    server.broker.create_queue("steps", sessions).await.unwrap();
    let path = "/$api/v1/queues/steps/sessions/c%2Fd";
    let set = async |body: &str| server.ask(&format!("PUT {path}/state"), body).await;
    let read = async || server.ask(&format!("GET {path}/state"), "").await;
    assert_eq!(set(r#"{"state": "step 3"}"#).await.status, 204);
    assert_eq!(read().await.text(), "step 3");
    let entity = server.broker.entity("steps").unwrap();
    let accept = Command::AcceptSession {
        session: Some("c/d".into()),
        receiver: server.broker.receiver_id(),
        mode: ReceiveMode::PeekLock,
        wait: TimeSpan::ZERO,
    };
    let accepted = entity.call(accept).await.unwrap();
    assert!(matches!(accepted, Outcome::SessionAccepted { .. }));
    let held = set(r#"{"stateBase64": "/wA="}"#).await;
    assert_eq!(held.json()["code"], "SessionCannotBeLocked");
    for count in [1, 0] {
        let broken = server.ask(&format!("POST {path}/break"), "{}").await;
        assert_eq!((broken.status, broken.json()), (200, json!({ "broken": count })));
    }
    assert_eq!(set(r#"{"stateBase64": "/wA="}"#).await.status, 204);
    assert_eq!(read().await.body, [0xff, 0x00].as_slice());
    for body in ["{}", r#"{"state": "a", "stateBase64": "YQ=="}"#, r#"{"stateBase64": "?"}"#] {
        assert_eq!(set(body).await.status, 400, "{body}");
    }
    assert_eq!(server.ask(&format!("DELETE {path}/state"), "").await.status, 204);
    assert_eq!(read().await.status, 204);
    let other = server.ask(&format!("POST {Q}/sessions/a/break"), "{}").await;
    assert_eq!(other.json()["code"], "InvalidOperation");
    server.stop().await;
}

/// CON-12, CON-15: messages are deleted, dead-lettered, undeferred and rescheduled by number. A
/// repeated step of a job changes nothing until the job is forgotten.
#[tokio::test]
async fn messages_are_acted_on_by_number() {
    let server = Server::start().await;
    for body in ["a", "b", "c"] {
        server.send(body).await;
    }
    let act = async |numbers: &[u64], deed: serde_json::Value, more: serde_json::Value| {
        let mut body = json!({ "sequenceNumbers": numbers, "deed": deed });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        server.ask(&format!("POST {Q}/messages/act"), &body.to_string()).await
    };
    let messages = |results: &[(u64, &str)]| {
        let message =
            |(number, result): &(u64, &str)| json!({ "sequenceNumber": number, "result": result });
        json!({ "messages": results.iter().map(message).collect::<Vec<_>>() })
    };
    let job = "0000000000000000000000000000000b";
    let step = json!({ "step": { "job": job, "number": 1 } });
    for _ in 0..2 {
        let dead = json!({ "deadLetter": { "reason": "wrong" } });
        let done = act(&[1, 7], dead, step.clone()).await;
        let expected = messages(&[(1, "done"), (7, "notFound")]);
        assert_eq!((done.status, done.json()), (200, expected));
    }
    let other = act(&[2], json!({ "delete": {} }), step).await;
    assert_eq!(other.json()["code"], "InvalidOperation");
    let forgotten = server.ask(&format!("DELETE {Q}/receipts/{job}"), "").await;
    assert_eq!(forgotten.status, 204);
    let receive = server.ask(&format!("POST {Q}/messages/receive"), "{}").await.json();
    let token = receive["messages"][0]["lockToken"].as_str().unwrap();
    let locked = act(&[2], json!({ "delete": {} }), json!({})).await;
    assert_eq!(locked.json(), messages(&[(2, "locked")]));
    let broken = act(&[2], json!({ "delete": {} }), json!({ "breakLocks": true })).await;
    assert_eq!(broken.json(), messages(&[(2, "done")]));
    let settled = server.ask(&format!("POST {Q}/locks/{token}/complete"), "").await;
    assert_eq!(settled.json()["code"], "MessageLockLost");
    let wrong = act(&[3], json!({ "undefer": {} }), json!({})).await;
    assert_eq!(wrong.json(), messages(&[(3, "wrongState")]));
    let moved = act(&[3], json!({ "reschedule": { "later": "PT1H" } }), json!({})).await;
    assert_eq!(moved.json(), messages(&[(3, "wrongState")]));
    for deed in [
        json!({ "reschedule": { "later": "PT1H", "earlier": "PT1H" } }),
        json!({ "reschedule": { "by": "PT1H" } }),
        json!({ "purge": {} }),
        json!({ "deadLetter": { "reason": "x".repeat(5_000) } }),
    ] {
        assert_eq!(act(&[3], deed.clone(), json!({})).await.status, 400, "{deed}");
    }
    let many: Vec<u64> = (1..=257).collect();
    assert_eq!(act(&many, json!({ "delete": {} }), json!({})).await.status, 400);
    let refused = server.ask(&format!("DELETE {Q}/receipts/job"), "").await;
    assert_eq!(refused.status, 400);
    server.stop().await;
}

/// CON-24: an idle connection is closed at once; a number without a client is not found.
#[tokio::test]
async fn client_over_http_is_closed() {
    let server = Server::start().await;
    let mut idle = server.connect().await;
    idle.write(&server.request("GET /livez", "")).await;
    assert_eq!(idle.read().await.unwrap().status, 200);
    let query = ClientQuery { count_max: 10, ..ClientQuery::default() };
    let id = server.broker.clients(&query).await.clients[0].id.0;
    for (client, status) in [(id, 204), (id + 1_000, 404)] {
        let closed = server.ask(&format!("DELETE /$api/v1/clients/{client}"), "").await;
        assert_eq!(closed.status, status, "{}", closed.text());
    }
    assert!(idle.read_to_end().await.is_empty());
    let refused = server.ask("DELETE /$api/v1/clients/x", "").await;
    assert_eq!(refused.status, 400);
    server.stop().await;
}
