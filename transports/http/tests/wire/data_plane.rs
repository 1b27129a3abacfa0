//! The REST data plane (HTP-01 to HTP-09).

use peeklock_core::command::{Command, Outcome};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{ClientQuery, Found, Holder, LockOrder, LockQuery, Question};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Message, Value};
use peeklock_core::time::TimeSpan;
use serde_json::json;

use super::server::Server;

/// Returns the messages that the broker holds in a queue.
async fn stored(server: &Server, path: &str) -> Vec<Message> {
    let command = Command::Peek { from: SequenceNumber(0), count_max: 100 };
    let Outcome::Peeked(messages) =
        server.broker.entity(path).unwrap().call(command).await.unwrap()
    else {
        panic!("no peek");
    };
    let mut stored = Vec::new();
    for message in messages {
        let bytes = message.content.load().await.unwrap();
        stored.push(peeklock_core::message::Content::parse(bytes).unwrap().decode().unwrap());
    }
    stored
}

fn path_of(location: &str) -> &str {
    let (_, rest) = location.split_once("://").unwrap();
    &rest[rest.find('/').unwrap()..]
}

/// HTP-01, HTP-03, HTP-04, HTP-05, MSG-23: send.
#[tokio::test]
async fn a_message_is_sent_with_its_properties() {
    let server = Server::start().await;
    let answer = server
        .ask(
            "POST /q/messages
             Content-Type: text/plain
             BrokerProperties: {\"MessageId\":\"m1\",\"Label\":\"l\",\"TimeToLive\":90,\"SequenceNumber\":5}
             priority: \"high\"
             count: 3
             User-Agent: test
             Accept: */*",
            "hello",
        )
        .await;
    assert_eq!((answer.status, answer.body.len()), (201, 0));
    let stored = stored(&server, "q").await;
    let [message] = stored.as_slice() else { panic!("{stored:?}") };
    assert_eq!(message.body.as_bytes(), "hello");
    assert_eq!(message.message_id, Some("m1".into()));
    assert_eq!(message.subject.as_deref(), Some("l"));
    assert_eq!(message.content_type.as_deref(), Some("text/plain"));
    assert_eq!(message.time_to_live, Some(TimeSpan::from_seconds(90)));
    assert_eq!(message.application_property("priority"), Some(&Value::from("high")));
    assert_eq!(message.application_property("count"), Some(&Value::I64(3)));
    assert_eq!(message.application_properties.len(), 2);
    server.stop().await;
}

/// HTP-05, HTP-09, MSG-22: header names are case-insensitive, so names of properties sent as
/// headers become lower case. A batch and the JSON API preserve them.
#[tokio::test]
async fn names_of_properties_are_in_lower_case_as_headers_only() {
    let server = Server::start().await;
    let sent = server.ask("POST /q/messages\nX-Priority: 1", "a").await;
    assert_eq!(sent.status, 201);
    let head = "POST /q/messages\nContent-Type: application/vnd.microsoft.servicebus.json";
    let batch = json!([{ "Body": "b", "UserProperties": { "X-Priority": 2 } }]);
    assert_eq!(server.ask(head, batch.to_string()).await.status, 201);
    let names: Vec<String> = stored(&server, "q")
        .await
        .iter()
        .map(|message| message.application_properties[0].0.clone())
        .collect();
    assert_eq!(names, ["x-priority", "X-Priority"]);
    let peeked = server.ask("GET /$api/v1/queues/q/messages?from=2", "").await.json();
    assert_eq!(peeked["messages"][0]["applicationProperties"], json!({ "X-Priority": 2 }));
    for value in ["1", "2"] {
        assert_eq!(server.receive().await.header("x-priority"), Some(value));
    }
    server.stop().await;
}

/// HTP-05, HTP-09: the number of headers is limited; a message with more properties is sent in a
/// batch.
#[tokio::test]
async fn more_properties_than_a_head_has_room_for_are_sent_in_a_batch() {
    let server = Server::start().await;
    let headers = |count| (0..count).map(|number| format!("p{number}: 1\n")).collect::<String>();
    let head = |count| format!("POST /q/messages\n{}", headers(count));
    // Host and Content-Length count as headers too.
    assert_eq!(server.ask(&head(94), "a").await.status, 201);
    assert_eq!(server.ask(&head(95), "a").await.status, 431);
    let properties: serde_json::Map<String, serde_json::Value> =
        (0..2_000).map(|number| (format!("p{number}"), number.into())).collect();
    let head = "POST /q/messages\nContent-Type: application/vnd.microsoft.servicebus.json";
    let batch = json!([{ "UserProperties": properties }]);
    assert_eq!(server.ask(head, batch.to_string()).await.status, 201);
    let counts: Vec<usize> = stored(&server, "q")
        .await
        .iter()
        .map(|message| message.application_properties.len())
        .collect();
    assert_eq!(counts, [94, 2_000]);
    server.stop().await;
}

/// FWD-26, HTP-03: the BrokerProperties of a forwarded dead letter contain its dead-letter source.
#[tokio::test]
async fn a_forwarded_dead_letter_has_its_source() {
    let server = Server::start().await;
    let forwards = json!({ "forwardDeadLetteredMessagesTo": "q", "maxDeliveryCount": 1 });
    assert_eq!(server.ask("PUT /$api/v1/queues/Src", forwards.to_string()).await.status, 201);
    assert_eq!(server.ask("POST /src/messages", "a").await.status, 201);
    let received = server.ask("POST /src/messages/head?timeout=0", "").await;
    assert!(!received.header("brokerproperties").unwrap().contains("DeadLetterSource"));
    let location = received.header("location").unwrap().to_owned();
    assert_eq!(server.ask(&format!("PUT {}", path_of(&location)), "").await.status, 200);
    let arrived = server.ask("POST /q/messages/head?timeout=20", "").await;
    let properties = arrived.header("brokerproperties").unwrap();
    let properties: serde_json::Value = serde_json::from_str(properties).unwrap();
    assert_eq!(properties["DeadLetterSource"], "Src");
    assert_eq!(arrived.header("deadlettersource"), None);
    server.stop().await;
}

/// HTP-01, HTP-09: send batch.
#[tokio::test]
async fn a_batch_is_sent_as_one() {
    let server = Server::start().await;
    let head = "POST /q/messages\nContent-Type: application/vnd.microsoft.servicebus.json";
    let batch = json!([
        { "Body": "text", "BrokerProperties": { "MessageId": "a", "TimeToLiveTimeSpan": "00:01:00" },
          "UserProperties": { "n": 1, "id": { "type": "u8", "value": 7 } } },
        { "BodyBase64": "AP8=" },
        {},
    ]);
    assert_eq!(server.ask(head, batch.to_string()).await.status, 201);
    let messages = stored(&server, "q").await;
    let [first, second, third] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!(first.body.as_bytes(), "text");
    assert_eq!(first.time_to_live, Some(TimeSpan::from_minutes(1)));
    assert_eq!(first.application_property("n"), Some(&Value::I64(1)));
    assert_eq!(first.application_property("id"), Some(&Value::U8(7)));
    assert_eq!(second.body.as_bytes().as_ref(), [0, 255]);
    assert!(third.body.as_bytes().is_empty() && third.message_id.is_some());

    // One invalid message refuses the whole batch.
    let long = "x".repeat(129);
    let batch = json!([{ "Body": "good" }, { "BrokerProperties": { "MessageId": long } }]);
    let answer = server.ask(head, batch.to_string()).await;
    assert_eq!(answer.error(), (400, "ArgumentOutOfRange".to_owned()));
    assert_eq!(stored(&server, "q").await.len(), 3);
    assert_eq!(server.ask(head, "[]").await.status, 201);
    for wrong in ["", "{}", "[1]", "[{\"Body\":1}]", "[{\"BodyBase64\":\"*\"}]", "[{}"] {
        assert_eq!(server.ask(head, wrong).await.error().1, "ArgumentError", "{wrong}");
    }
    server.stop().await;
}

/// HTP-01, HTP-03, HTP-05, HTP-06: peek-lock, then complete by its Location.
#[tokio::test]
async fn a_locked_message_is_completed_by_its_location() {
    let server = Server::start().await;
    let head =
        "POST /q/messages\nContent-Type: a/b\nBrokerProperties: {\"MessageId\":\"m/1\"}\nk: true";
    assert_eq!(server.ask(head, "body").await.status, 201);
    let answer = server.receive().await;
    assert_eq!((answer.status, answer.text()), (201, "body"));
    assert_eq!(answer.header("content-type"), Some("a/b"));
    assert_eq!(answer.header("k"), Some("true"));
    let properties = answer.properties();
    assert_eq!(properties["MessageId"], "m/1");
    assert_eq!(properties["SequenceNumber"], 1);
    assert_eq!(properties["EnqueuedSequenceNumber"], 0);
    assert_eq!(properties["DeliveryCount"], 1);
    assert_eq!(properties["State"], "Active");
    assert_eq!(properties["EnqueuedTimeUtc"], "Fri, 01 May 2026 12:00:00 GMT");
    assert_eq!(properties["LockedUntilUtc"], "Fri, 01 May 2026 12:01:00 GMT");
    let token = properties["LockToken"].as_str().unwrap();
    let location = answer.header("location").unwrap();
    assert_eq!(location, format!("http://{}/q/messages/1/{token}", server.address));
    assert_eq!(server.receive().await.status, 204);
    let path = path_of(location);
    assert_eq!(server.ask(&format!("DELETE {path}"), "").await.status, 200);
    assert!(stored(&server, "q").await.is_empty());
    let again = server.ask(&format!("DELETE {path}"), "").await;
    assert_eq!(again.error(), (404, "MessageLockLost".to_owned()));
    server.stop().await;
}

/// HTP-01, HTP-06: abandon and renew, also by MessageId.
#[tokio::test]
async fn a_lock_is_abandoned_and_renewed() {
    let server = Server::start().await;
    let head = "POST /q/messages\nBrokerProperties: {\"MessageId\":\"a/b 7\"}";
    assert_eq!(server.ask(head, "x").await.status, 201);
    let answer = server.receive().await;
    let path = path_of(answer.header("location").unwrap()).to_owned();
    server.clock.advance(TimeSpan::from_seconds(30));
    let renewed = server.ask(&format!("POST {path}"), "").await;
    assert_eq!(renewed.status, 200);
    assert_eq!(renewed.properties()["LockedUntilUtc"], "Fri, 01 May 2026 12:01:30 GMT");
    assert_eq!(server.ask(&format!("PUT {path}"), "").await.status, 200);
    let answer = server.receive().await;
    assert_eq!(answer.properties()["DeliveryCount"], 2);
    let token = answer.properties()["LockToken"].as_str().unwrap().to_owned();
    let path = format!("/Q/messages/a%2Fb%207/{token}");
    assert_eq!(server.ask(&format!("POST {path}"), "").await.status, 200);
    assert_eq!(server.ask(&format!("DELETE {path}"), "").await.status, 200);
    server.stop().await;
}

/// RTY-26, RTY-10, RTY-02: an abandon, whose body is empty, has its delay in a header; other
/// settlements have none.
#[tokio::test]
async fn an_abandon_has_its_delay_in_a_header() {
    let server = Server::start().await;
    server.send("x").await;
    let answer = server.receive().await;
    let path = path_of(answer.header("location").unwrap()).to_owned();
    for method in ["DELETE", "POST"] {
        let answer = server.ask(&format!("{method} {path}\nPeeklock-Delay-Ms: 5000"), "").await;
        assert_eq!(answer.error(), (400, "ArgumentError".to_owned()), "{method}");
    }
    for wrong in ["-1", "5s", "", "604800001"] {
        let answer = server.ask(&format!("PUT {path}\nPeeklock-Delay-Ms: {wrong}"), "").await;
        assert_eq!(answer.error(), (400, "ArgumentOutOfRange".to_owned()), "{wrong}");
    }
    let answer = server.ask(&format!("PUT {path}\nPeeklock-Delay-Ms: 5000"), "").await;
    assert_eq!(answer.status, 200);
    let counts = server.broker.describe_queue("q").await.unwrap().counts;
    assert_eq!((counts.active, counts.delayed), (1, 1));
    server.clock.advance(TimeSpan::from_seconds(5));
    assert_eq!(server.receive().await.properties()["DeliveryCount"], 2);
    server.stop().await;
}

/// HTP-07
#[tokio::test]
async fn a_reference_that_is_not_of_the_token_is_not_found() {
    let server = Server::start().await;
    server.send("one").await;
    server.send("two").await;
    let answer = server.receive().await;
    let token = answer.properties()["LockToken"].as_str().unwrap().to_owned();
    for reference in ["2", "0", "01", "other", "%20", "99999999999999999999999"] {
        for method in ["DELETE", "PUT", "POST"] {
            let answer = server.ask(&format!("{method} /q/messages/{reference}/{token}"), "").await;
            assert_eq!(answer.error(), (404, "MessageLockLost".to_owned()), "{reference}");
        }
    }
    for token in ["x", "00000000-0000-0000-0000-000000000000", &"f".repeat(32)] {
        let answer = server.ask(&format!("DELETE /q/messages/1/{token}"), "").await;
        assert_eq!(answer.error(), (404, "MessageLockLost".to_owned()), "{token}");
    }
    assert_eq!(server.ask(&format!("DELETE /q/messages/1/{token}"), "").await.status, 200);
    server.stop().await;
}

/// HTP-01: receive and delete, none available, empty bodies (MSG-01).
#[tokio::test]
async fn a_message_is_received_and_deleted() {
    let server = Server::start().await;
    server.send("").await;
    let answer = server.ask("DELETE /q/messages/head?timeout=0", "").await;
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert_eq!(answer.header("location"), None);
    let properties = answer.properties();
    assert_eq!(properties["DeliveryCount"], 0);
    assert!(properties.get("LockToken").is_none() && properties.get("LockedUntilUtc").is_none());
    let answer = server.ask("DELETE /q/messages/head?timeout=0", "").await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    server.stop().await;
}

/// A locked message with an empty body stays locked after its answer has begun.
#[tokio::test]
async fn an_empty_message_stays_locked() {
    let server = Server::start().await;
    server.send("").await;
    assert_eq!(server.receive().await.status, 201);
    assert_eq!(server.receive().await.status, 204);
    server.stop().await;
}

/// HTP-01, RCV-09: sub-queues, in any case and encoding.
#[tokio::test]
async fn sub_queues_are_received_from_under_every_spelling() {
    let server = Server::start().await;
    for spelling in [
        "/q/$deadletterqueue",
        "/Q/$DeadLetterQueue",
        "/q/%24deadLETTERqueue",
        "/q%2F%24DeadLetterQueue",
    ] {
        server.send(spelling).await;
        let token = server.receive().await.properties()["LockToken"].as_str().unwrap().to_owned();
        let path = format!("POST /$api/v1/queues/q/locks/{token}/dead-letter");
        assert_eq!(server.ask(&path, "{\"reason\":\"r\"}").await.status, 204);
        let head = format!("POST {spelling}/messages/head?timeout=0\nContent-Length: 0");
        let answer = server.ask(&head, "").await;
        assert_eq!((answer.status, answer.text()), (201, spelling));
        assert_eq!(answer.header("deadletterreason"), Some("\"r\""));
        let location = path_of(answer.header("location").unwrap()).to_owned();
        assert!(location.starts_with("/q/$deadletterqueue/messages/"), "{location}");
        assert_eq!(server.ask(&format!("DELETE {location}"), "").await.status, 200);
    }
    let head = "POST /q/$Transfer/$DeadLetterQueue/messages/head?timeout=0";
    assert_eq!(server.ask(head, "").await.status, 204);
    server.stop().await;
}

/// HTP-08, RCV-10
#[tokio::test]
async fn a_wait_of_zero_returns_at_once_and_a_wrong_one_is_refused() {
    let server = Server::start().await;
    assert_eq!(server.receive().await.status, 204);
    assert_eq!(server.ask("POST /q/messages/head?TIMEOUT=0", "").await.status, 204);
    for wrong in ["x", "-1", "NaN", ""] {
        let answer = server.ask(&format!("POST /q/messages/head?timeout={wrong}"), "").await;
        assert_eq!(answer.error(), (400, "ArgumentError".to_owned()), "{wrong}");
        assert!(answer.text().contains("timeout"));
    }
    server.stop().await;
}

/// RCV-11: a waiting receive gets a message that is sent meanwhile.
#[tokio::test]
async fn a_waiting_receive_gets_a_sent_message() {
    let server = Server::start().await;
    let mut waiting = server.connect().await;
    waiting.write(&server.request("POST /q/messages/head?timeout=60", "")).await;
    server.in_progress(2).await;
    server.send("late").await;
    let answer = waiting.read().await.unwrap();
    assert_eq!((answer.status, answer.text()), (201, "late"));
    server.stop().await;
}

/// SND-10: requests on one connection are answered one by one, in order.
#[tokio::test]
async fn requests_that_overlap_are_answered_in_order() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let mut bytes = Vec::new();
    for number in 1..=5 {
        bytes.extend(server.request("POST /q/messages", format!("{number}")));
    }
    bytes.extend(server.request("DELETE /q/messages/head?timeout=0", ""));
    client.write(&bytes).await;
    for _ in 1..=5 {
        assert_eq!(client.read().await.unwrap().status, 201);
    }
    assert_eq!(client.read().await.unwrap().text(), "1");
    let stored = stored(&server, "q").await;
    let bodies: Vec<_> = stored.iter().map(|message| message.body.as_bytes().clone()).collect();
    assert_eq!(bodies, ["2", "3", "4", "5"]);
    server.stop().await;
}

/// A chunked body, and a body after `Expect: 100-continue`, are accepted like others.
#[tokio::test]
async fn bodies_come_in_every_framing() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.write(&server.request("POST /q/messages\nTransfer-Encoding: chunked", "")).await;
    client.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").await;
    assert_eq!(client.read().await.unwrap().status, 201);
    client.write(&server.request("POST /q/messages\nExpect: 100-continue", "later")).await;
    assert_eq!(client.read().await.unwrap().status, 201);
    let stored = stored(&server, "q").await;
    let bodies: Vec<_> = stored.iter().map(|message| message.body.as_bytes().clone()).collect();
    assert_eq!(bodies, ["abcde", "later"]);
    server.stop().await;
}

/// A body of very many chunks arrives complete, however it is split on the way, and ends before the
/// next request.
#[tokio::test]
async fn a_body_may_have_very_many_chunks() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let head = server.request("POST /q/messages\nTransfer-Encoding: chunked", "");
    let chunks: String =
        (0..50_000).map(|number| format!("1;n={number}\r\n{}\r\n", number % 7)).collect();
    let last = "7\r\nthe end\r\n000\r\n\r\n";
    let next = server.request("POST /q/messages", "next");
    client.write(&[&head, chunks.as_bytes(), last.as_bytes(), &next].concat()).await;
    assert_eq!(client.read().await.unwrap().status, 201);
    assert_eq!(client.read().await.unwrap().status, 201);
    let stored = stored(&server, "q").await;
    let bodies: Vec<_> = stored.iter().map(|message| message.body.as_bytes().clone()).collect();
    let expected: String = (0..50_000).map(|number| (number % 7).to_string()).collect();
    assert!(bodies.len() == 2 && bodies[0] == expected + "the end" && bodies[1] == "next");
    server.stop().await;
}

/// CON-24, CON-25, SET-23: a lock over HTTP names its client, and outlives the connection.
#[tokio::test]
async fn lock_names_its_client_and_outlives_the_connection() {
    let server = Server::start().await;
    server.send("a").await;
    let mut client = server.connect().await;
    let receive = "POST /q/messages/head?timeout=0\nUser-Agent: curl/8";
    client.write(&server.request(receive, "")).await;
    assert_eq!(client.read().await.unwrap().status, 201);
    let holder = lock_holder(&server).await;
    assert_eq!((&*holder.transport, holder.name.as_deref()), ("http", Some("curl/8")));
    assert!(holder.peer.is_some() && holder.is_connected);
    drop(client);
    let query = ClientQuery { count_max: 10, ..ClientQuery::default() };
    while server.broker.clients(&query).await.total > 0 {
        tokio::task::yield_now().await;
    }
    let holder = lock_holder(&server).await;
    assert_eq!((holder.name.as_deref(), holder.is_connected), (Some("curl/8"), false));
    server.stop().await;
}

/// Holder of the only lock.
async fn lock_holder(server: &Server) -> Holder {
    let query = LockQuery { order: LockOrder::Age, from: 0, after: None, count_max: 10 };
    let question = Management::Inspect(Box::new(Question::Locks(query)));
    let found = server.broker.full_access().manage("q", question).await.unwrap();
    let Managed::Findings(findings) = found else { panic!("no findings") };
    let Found::Locks(page) = findings.found else { panic!("no locks") };
    assert_eq!(page.total, 1);
    page.locks[0].lock.holder.clone().unwrap()
}
