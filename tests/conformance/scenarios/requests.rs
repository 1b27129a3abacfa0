//! Guarantees of HTTP in addition to the operations: requests that are cut off, and the REST data
//! plane next to the JSON API (file 22). Only that transport has them.

use crate::support::http::{Response, request};

use super::*;

async fn ask(s: &Stage, method: &str, target: &str, body: &[u8]) -> Response {
    ask_with(s, method, target, &[], body).await
}

async fn ask_with(
    s: &Stage,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    request(s.address().unwrap(), method, target, headers, body).await.unwrap()
}

fn broker_properties(response: &Response) -> serde_json::Value {
    serde_json::from_str(response.header("BrokerProperties").unwrap()).unwrap()
}

/// RCV-14, HTP-11
pub async fn a_receive_on_a_cut_connection_takes_nothing(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(seconds(1)).await;
    {
        let mut waiting = s.receive(ORDERS, ReceiveMode::PeekLock, 1, minutes(1));
        tokio::select! {
            answer = &mut waiting => panic!("the receive did not wait: {answer:?}"),
            () = s.until_used(ORDERS) => {}
        }
        // The end of the wait is its last use; the clock moves before it.
        s.clock.advance(seconds(1));
    }
    s.until_used(ORDERS).await;
    s.put(ORDERS, "a").await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 1);
}

/// HTP-01, HTP-06, MSG-02, SET-24: the JSON API receives and settles messages that REST sent and
/// locked.
pub async fn rest_and_the_json_api_see_the_same_messages(s: &Stage) {
    s.open_queue(ORDERS).await;
    let properties = r#"{"MessageId":"id","Label":"subject","TimeToLive":60}"#;
    let headers = [("BrokerProperties", properties), ("colour", "\"blue\""), ("size", "7")];
    let sent = ask_with(s, "POST", "/orders/messages", &headers, b"hello").await;
    assert_eq!(sent.status, 201);
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.text(), "hello");
    assert_eq!(seen.message.message_id, Some("id".into()));
    assert_eq!(seen.message.subject.as_deref(), Some("subject"));
    assert_eq!(seen.message.time_to_live, Some(minutes(1)));
    assert_eq!(seen.text_of("colour"), Some("blue"));
    assert_eq!(seen.property("size"), Some(&Value::I64(7)));
    s.abandon(ORDERS, &seen).await;

    let locked = ask(s, "POST", "/orders/messages/head?timeout=0", b"").await;
    assert_eq!((locked.status, &*locked.body), (201, &b"hello"[..]));
    let properties = broker_properties(&locked);
    assert_eq!(properties["DeliveryCount"], 2);
    let token = properties["LockToken"].as_str().unwrap();
    s.settle(ORDERS, token, Decision::Complete).await.unwrap();
    let location = locked.header("Location").unwrap();
    let path = &location[location.find("/orders").unwrap()..];
    assert_eq!(ask(s, "DELETE", path, b"").await.status, 404);
    assert_eq!(ask(s, "POST", "/orders/messages/head?timeout=0", b"").await.status, 204);
}

/// HTP-01, SET-01, SET-03, SET-18, RCV-02: the rows of the table on one message.
pub async fn the_rest_operations_lock_renew_unlock_complete_and_delete(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b"] {
        s.put(ORDERS, text).await;
    }
    let locked = ask(s, "POST", "/orders/messages/head?timeout=0", b"").await;
    let location = locked.header("Location").unwrap();
    let path = &location[location.find("/orders").unwrap()..];
    s.advance(seconds(30)).await;
    assert_eq!(ask(s, "POST", path, b"").await.status, 200);
    s.advance(seconds(45)).await;
    assert_eq!(ask(s, "PUT", path, b"").await.status, 200);
    assert_eq!(ask(s, "PUT", path, b"").await.status, 404);
    let locked = ask(s, "POST", "/orders/messages/head?timeout=0", b"").await;
    assert_eq!(&*locked.body, b"a");
    let location = locked.header("Location").unwrap();
    let path = &location[location.find("/orders").unwrap()..];
    assert_eq!(ask(s, "DELETE", path, b"").await.status, 200);
    let removed = ask(s, "DELETE", "/orders/messages/head?timeout=0", b"").await;
    assert_eq!((removed.status, &*removed.body), (200, &b"b"[..]));
    assert_eq!(ask(s, "DELETE", "/orders/messages/head?timeout=0", b"").await.status, 204);
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// MSG-11, MSG-17: values that a sender sets for properties of the broker are ignored.
pub async fn properties_of_the_broker_are_ignored_on_send(s: &Stage) {
    s.open_queue(ORDERS).await;
    let claims = r#"{"SequenceNumber":99,"DeliveryCount":9,"EnqueuedSequenceNumber":5,
        "EnqueuedTimeUtc":"Fri, 01 May 2020 12:00:00 GMT","State":"Deferred",
        "LockToken":"9b3f1c52-0f6e-4cf1-9d0e-7f1d0a8e2b11"}"#
        .replace('\n', "");
    let headers = [("BrokerProperties", claims.as_str())];
    assert_eq!(ask_with(s, "POST", "/orders/messages", &headers, b"a").await.status, 201);
    let seen = s.take(ORDERS).await;
    assert_eq!((seen.sequence, seen.delivery_count, seen.enqueued_sequence), (1, 1, 0));
    assert_eq!((seen.enqueued_at, seen.state), (s.now(), MessageState::Active));
}

/// MSG-21: a list, map or array is refused as a property value.
pub async fn a_list_is_no_property_value(s: &Stage) {
    s.open_queue(ORDERS).await;
    let json = [("Content-Type", "application/json")];
    for value in ["[1]", "{\"a\":1}", "{\"type\":\"list\",\"value\":1}"] {
        let body = format!("{{\"applicationProperties\":{{\"k\":{value}}}}}");
        let target = "/$api/v1/queues/orders/messages";
        let answer = ask_with(s, "POST", target, &json, body.as_bytes()).await;
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, problem["code"].as_str()), (400, Some("ArgumentError")));
    }
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}
