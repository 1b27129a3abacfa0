//! Tests of management nodes: each operation with its statuses, and the encodings that clients
//! require.

use bytes::Bytes;
use peeklock_amqp::codec::value::Raw;
use peeklock_amqp::performative::{Performative, SenderSettleMode};
use peeklock_amqp::state::DeliveryState;
use peeklock_core::command::Command;
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Content, Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_words::amqp::{Reader, Scalar, descriptor};

use crate::client::Client;
use crate::request::{Reply, list, longs, map, request, uuids, value};
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;

async fn managing(texts: &[&str]) -> (Server, Client) {
    let server = Server::start().await;
    server.put(texts).await;
    let mut client = server.client().await;
    client.manager(0, "q").await;
    (server, client)
}

/// Returns the lock token in a delivery tag, which has the byte order of .NET (AMQP-54).
pub fn token(tag: &[u8]) -> u128 {
    let mut bytes: [u8; 16] = tag.try_into().unwrap();
    bytes[0..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    u128::from_be_bytes(bytes)
}

/// Receives a message of the queue on handle 2; returns its lock token.
async fn locked(client: &mut Client) -> u128 {
    client.receiver(2, "q", LOCKED).await.unwrap();
    client.credit(2, 0, 1, false).await;
    let (Performative::Transfer(transfer), message) = client.next_frame().await else { panic!() };
    let token = token(transfer.delivery_tag.unwrap().as_slice());
    let delivery = section(&message, descriptor::DELIVERY_ANNOTATIONS);
    let shown = annotation_of(delivery, "x-opt-lock-token").unwrap();
    assert_eq!(shown.scalar(), Ok(Scalar::Uuid(token)));
    token
}

pub fn annotation(content: &Content, name: &str) -> Option<Raw> {
    let section = content.sections().message_annotations;
    annotation_of(section, name)
}

/// Returns a section of a message.
fn section(message: &[u8], wanted: u8) -> &[u8] {
    let mut reader = Reader::new(message);
    loop {
        let before = reader;
        let found = reader.section().unwrap();
        reader.raw().unwrap();
        if found == wanted {
            return before.up_to(&reader).unwrap();
        }
    }
}

fn annotation_of(section: &[u8], name: &str) -> Option<Raw> {
    let mut reader = Reader::new(section);
    reader.section().ok()?;
    let raw = Raw::encoded(|bytes| bytes.extend_from_slice(reader.rest()));
    peeklock_amqp::codec::value::Map::from_raw(raw).unwrap().get(name)
}

/// AMQP-15, AMQP-54, AMQP-82, SET-18, AMQ-09: a lock is renewed by its token, which the delivery
/// has in its tag and, in plain order, in an annotation. The reply has an array of timestamps.
#[tokio::test]
async fn a_lock_is_renewed() {
    let (server, mut client) = managing(&["a"]).await;
    let token = locked(&mut client).await;
    server.clock.advance(TimeSpan::from_seconds(20));
    let reply = client.ask(0, "renew-lock", &[("lock-tokens", uuids(&[token]))]).await;
    assert_eq!(reply.status(), 200);
    let until = server.broker.now().plus(TimeSpan::from_seconds(60)).unix_ms();
    assert_eq!(reply.numbers("expirations"), [until]);
    assert_eq!(reply.get("expirations").as_bytes()[9], 0x83, "of timestamps");
    let reply = client.ask(0, "renew-lock", &[("lock-tokens", uuids(&[1]))]).await;
    assert_eq!((reply.status(), &*reply.condition()), (410, "com.microsoft:message-lock-lost"));
    server.stop().await;
}

/// AMQP-56, AMQP-83, PEK-01: peeked messages have header and annotations, and come in a single
/// list. An empty result has status 204.
#[tokio::test]
async fn messages_are_peeked() {
    let (server, mut client) = managing(&["a", "b", "c"]).await;
    let body = |from: i64, count: i32| {
        [("from-sequence-number", value(from)), ("message-count", value(count))]
    };
    let reply = client.ask(0, "peek-message", &body(2, 10)).await;
    assert_eq!(reply.status(), 200);
    let messages = reply.messages();
    let bodies: Vec<Bytes> = messages.iter().map(Content::body_bytes).collect();
    assert_eq!(bodies, ["b", "c"]);
    assert!(messages[0].sections().header.starts_with(&[0x00, 0x53, 0x70]));
    let number = annotation(&messages[0], "x-opt-sequence-number").unwrap();
    assert_eq!(number.scalar(), Ok(Scalar::I64(2)));
    // PEK-05: no lock is shown. Some clients require the annotation.
    let until = annotation(&messages[0], "x-opt-locked-until").unwrap();
    assert_eq!(until.scalar(), Ok(Scalar::Timestamp(-62_135_596_800_000)));
    assert_eq!(client.ask(0, "peek-message", &body(0, 1)).await.messages().len(), 1);
    let nothing = client.ask(0, "peek-message", &body(9, 1)).await;
    assert_eq!(nothing.status(), 204);
    // Numbers of any integer type, and no bodies.
    let entries = [
        ("from-sequence-number", value(1_u32)),
        ("message-count", value(1_i64)),
        ("omit-message-body", value(true)),
    ];
    let reply = client.ask(0, "peek-message", &entries).await;
    assert!(reply.messages()[0].sections().body.is_empty());
    server.stop().await;
}

/// AMQP-62: a client that settles after the detach of the link does not see the answer, and settles
/// again by lock token, on this connection or another. The same outcome is a success, another one
/// is refused. While the link exists, a second settlement is refused.
#[tokio::test]
async fn the_same_outcome_behind_a_detach_is_a_success() {
    let (server, mut client) = managing(&["a", "b"]).await;
    client.receiver(2, "q", LOCKED).await.unwrap();
    client.credit(2, 0, 2, false).await;
    let mut delivered = Vec::new();
    for _ in 0..2 {
        let (transfer, _) = client.message().await;
        let token = token(transfer.delivery_tag.unwrap().as_slice());
        delivered.push((transfer.delivery_id.unwrap(), token));
    }
    let settle = |status: &str, token: u128| {
        [("disposition-status", value(status)), ("lock-tokens", uuids(&[token]))]
    };
    let lost = (410, "com.microsoft:message-lock-lost".to_owned());
    let [(first, seen), (second, unseen)] = delivered[..] else { panic!() };
    assert_eq!(client.settle(first, DeliveryState::accepted()).await, DeliveryState::accepted());
    let again = client.ask(0, "update-disposition", &settle("completed", seen)).await;
    assert_eq!((again.status(), again.condition().to_string()), lost);
    client.detach(2).await;
    assert_eq!(client.settle(second, DeliveryState::accepted()).await, DeliveryState::accepted());
    let mut other = server.client().await;
    other.manager(0, "q").await;
    for client in [&mut client, &mut other] {
        let again = client.ask(0, "update-disposition", &settle("completed", unseen)).await;
        assert_eq!(again.status(), 200);
        let differs = client.ask(0, "update-disposition", &settle("abandoned", unseen)).await;
        assert_eq!((differs.status(), differs.condition().to_string()), lost);
    }
    server.stop().await;
}

/// AMQP-83: a peek returns at most as many messages as fit into the client's maximum size.
#[tokio::test]
async fn a_reply_is_no_larger_than_is_taken() {
    let server = Server::start().await;
    let text = "x".repeat(30_000);
    server.put(&[&text, &text, &text]).await;
    let mut client = server.client().await;
    client.sender(0, "q/$management").await.unwrap();
    let attach = Client::receiver_of(1, "q/$management", LOCKED);
    let attach = peeklock_amqp::performative::Attach { max_message_size: Some(65_536), ..attach };
    client.attach_receiver(attach).await.unwrap();
    client.credit(1, 0, 100, false).await;
    let body = [("from-sequence-number", value(0_i64)), ("message-count", value(3_i32))];
    assert_eq!(client.ask(0, "peek-message", &body).await.messages().len(), 2);
    server.stop().await;
}

fn scheduled(text: &str, at: Timestamp) -> Vec<u8> {
    let message = Message::new(text.to_owned()).with_scheduled_enqueue_time(at);
    map(&[
        ("message-id", value("m")),
        ("message", value(Value::Binary(message.encode().as_bytes().clone()))),
    ])
}

/// SCH-01, SCH-02, SCH-04, SCH-05: messages are scheduled, which returns their numbers, and
/// cancelled, all or none.
#[tokio::test]
async fn messages_are_scheduled_and_cancelled() {
    let (server, mut client) = managing(&[]).await;
    let at = server.broker.now().plus(TimeSpan::from_minutes(5));
    let one = [("messages", list(&[scheduled("a", at)]))];
    let reply = client.ask(0, "schedule-message", &one).await;
    assert_eq!(reply.status(), 200);
    let first = reply.numbers("sequence-numbers");
    let two = [("messages", list(&[scheduled("b", at), scheduled("c", at)]))];
    let numbers = client.ask(0, "schedule-message", &two).await.numbers("sequence-numbers");
    assert_eq!((first.len(), numbers.len()), (1, 2));
    assert_eq!(server.counts().await.scheduled, 3);
    let cancel = |numbers: &[i64]| [("sequence-numbers", longs(numbers))];
    let reply = client.ask(0, "cancel-scheduled-message", &cancel(&[first[0], 99])).await;
    assert_eq!((reply.status(), &*reply.condition()), (404, "com.microsoft:message-not-found"));
    assert_eq!(server.counts().await.scheduled, 3, "all or none");
    let reply = client.ask(0, "cancel-scheduled-message", &cancel(&[first[0], numbers[1]])).await;
    assert_eq!(reply.status(), 200);
    assert_eq!(server.counts().await.scheduled, 1);
    // A message that is due is delivered.
    client.receiver(2, "q", LOCKED).await.unwrap();
    client.credit(2, 0, 1, false).await;
    server.clock.advance(TimeSpan::from_minutes(5));
    assert_eq!(client.message().await.1.body_bytes(), "b");
    server.stop().await;
}

/// Defers the only message; returns its number.
pub async fn deferred(client: &mut Client) -> i64 {
    client.receiver(2, "q", LOCKED).await.unwrap();
    client.credit(2, 0, 1, false).await;
    let (transfer, content) = client.message().await;
    let number = annotation(&content, "x-opt-sequence-number").unwrap();
    let Ok(Scalar::I64(number)) = number.scalar() else { panic!() };
    let defer = crate::receiving::modified(true);
    assert_eq!(client.settle(transfer.delivery_id.unwrap(), defer.clone()).await, defer);
    number
}

/// AMQP-84, AMQP-93, DEF-02, DEF-05: a deferred message is received by number with a lock, whose
/// token is returned in two places. It stays deferred when it is abandoned.
#[tokio::test]
async fn a_deferred_message_is_received_by_number() {
    let (server, mut client) = managing(&["a"]).await;
    let number = deferred(&mut client).await;
    let entries = [("sequence-numbers", longs(&[number])), ("receiver-settle-mode", value(1_u32))];
    let reply = client.ask(0, "receive-by-sequence-number", &entries).await;
    assert_eq!(reply.status(), 200);
    let maps = reply.maps("messages");
    let Ok(Scalar::Uuid(token)) = maps[0].get("lock-token").unwrap().scalar() else { panic!() };
    let content = &reply.messages()[0];
    assert_eq!(content.body_bytes(), "a");
    let message = maps[0].get("message").unwrap();
    let Ok(Scalar::Binary(message)) = message.scalar() else { panic!() };
    let delivery = section(message, descriptor::DELIVERY_ANNOTATIONS);
    let shown = annotation_of(delivery, "x-opt-lock-token").unwrap();
    assert_eq!(shown.scalar(), Ok(Scalar::Uuid(token)));
    let state = annotation(content, "x-opt-message-state").unwrap();
    assert_eq!(state.scalar(), Ok(Scalar::I32(1)));
    assert!(annotation(content, "x-opt-locked-until").is_some());
    let locked = client.ask(0, "receive-by-sequence-number", &entries).await;
    assert_eq!((locked.status(), &*locked.condition()), (404, "com.microsoft:message-not-found"));
    let abandon =
        |status: &str| [("disposition-status", value(status)), ("lock-tokens", uuids(&[token]))];
    let reply = client.ask(0, "update-disposition", &abandon("abandoned")).await;
    assert_eq!(reply.status(), 200);
    let entries =
        [("sequence-numbers", list(&[value(number)])), ("receiver-settle-mode", value(0_u8))];
    let reply = client.ask(0, "receive-by-sequence-number", &entries).await;
    assert_eq!(reply.messages().len(), 1, "it stayed deferred");
    assert!(reply.maps("messages")[0].get("lock-token").is_none());
    assert_eq!(server.total().await, 0, "and is gone for good");
    server.stop().await;
}

/// RTY-27, RTY-10, AMQP-82: `update-disposition` takes the delay of an abandon from a property,
/// which is not stored; the abandon counts as a failure. With another settlement the property is
/// refused, and the lock is unchanged.
#[tokio::test]
async fn an_update_of_a_disposition_takes_a_delay() {
    let (server, mut client) = managing(&["a"]).await;
    let token = locked(&mut client).await;
    let decide = |status: &str, delay: Value| {
        let changes = map(&[("peeklock-delay-ms", value(delay)), ("tried", value(true))]);
        [
            ("disposition-status", value(status)),
            ("lock-tokens", uuids(&[token])),
            ("properties-to-modify", changes),
        ]
    };
    for status in ["completed", "defered", "suspended", "unlocked"] {
        let entries = decide(status, Value::I32(5_000));
        let reply = client.ask(0, "update-disposition", &entries).await;
        let answer = (reply.status(), &*reply.condition());
        assert_eq!(answer, (400, "com.microsoft:argument-error"), "{status}");
    }
    for wrong in [Value::I64(-1), Value::I64(604_800_001), Value::from("soon")] {
        let reply = client.ask(0, "update-disposition", &decide("abandoned", wrong)).await;
        let answer = (reply.status(), &*reply.condition());
        assert_eq!(answer, (400, "com.microsoft:argument-out-of-range"));
    }
    let counts = server.counts().await;
    assert_eq!((counts.active, counts.deferred, counts.dead_letter, counts.delayed), (1, 0, 0, 0));
    let entries = decide("abandoned", Value::from("5000"));
    assert_eq!(client.ask(0, "update-disposition", &entries).await.status(), 200);
    let counts = server.counts().await;
    assert_eq!((counts.active, counts.delayed), (1, 1));
    client.credit(2, 1, 1, false).await;
    // A request is answered before anything is delivered, and no message is due.
    let peek = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    assert_eq!(client.ask(0, "peek-message", &peek).await.messages().len(), 1);
    server.clock.advance(TimeSpan::from_seconds(5));
    let (_, content) = client.message().await;
    let properties: Vec<_> = content.application_properties().collect();
    assert_eq!(properties, [("tried", Value::Bool(true))]);
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// AMQP-22: a request that waits for credit is not carried out if the link for its reply is
/// detached.
#[tokio::test]
async fn request_without_reply_link_is_not_carried_out() {
    let (server, mut client) = managing(&["a"]).await;
    let number = deferred(&mut client).await;
    let mut other = server.client().await;
    other.sender(0, "q/$management").await.unwrap();
    other.receiver(1, "q/$management", LOCKED).await.unwrap();
    let entries = [("sequence-numbers", longs(&[number])), ("receiver-settle-mode", value(0_u32))];
    let operation = "com.microsoft:receive-by-sequence-number";
    let asked = request(1, operation, &[], &map(&entries));
    other.send(0, 0, true, asked.as_bytes()).await;
    other.detach(1).await;
    // Later requests are answered later.
    other.manager(2, "q").await;
    let peek = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    assert_eq!(other.ask(2, "peek-message", &peek).await.messages().len(), 1);
    assert_eq!(server.total().await, 1);
    server.stop().await;
}

/// AMQP-80: a request whose time-out passed while it waited is not carried out, and gets an error.
/// The time-out is an integer of any type, under either name.
#[tokio::test]
async fn expired_request_is_not_carried_out() {
    let (server, mut client) = managing(&[]).await;
    let mut other = server.client().await;
    other.sender(0, "q/$management").await.unwrap();
    other.receiver(1, "q/$management", LOCKED).await.unwrap();
    let at = server.broker.now().plus(TimeSpan::from_minutes(5));
    let long = "com.microsoft:server-timeout";
    let waits = [
        (long, Value::U32(9_999), 408),
        (long, Value::I64(9_999), 408),
        ("server-timeout", Value::U64(9_999), 408),
        (long, Value::I32(10_000), 408),
        ("server-timeout", Value::U64(10_001), 200),
        // None of these values is a time-out.
        (long, Value::String("1".into()), 200),
        (long, Value::U32(0), 200),
        ("server-timeout", Value::U64(u64::MAX), 200),
    ];
    for (name, wait, _) in &waits {
        let body = map(&[("messages", list(&[scheduled("a", at)]))]);
        let asked = request(1, "com.microsoft:schedule-message", &[], &body);
        let mut message = asked.decode().unwrap();
        message.application_properties.push(((*name).to_owned(), wait.clone()));
        other.send(0, 0, true, message.encode().as_bytes()).await;
    }
    // The answer to this flow comes after all requests have arrived, which wait for credit.
    other.credit(1, 0, 0, true).await;
    assert!(matches!(other.next_frame().await, (Performative::Flow(_), _)));
    server.clock.advance(TimeSpan::from_seconds(10));
    other.credit(1, 0, 100, false).await;
    for (name, wait, status) in &waits {
        let reply = Reply { content: other.message().await.1 };
        assert_eq!(reply.status(), *status, "{name} {wait:?}");
        if *status == 408 {
            assert_eq!(reply.condition(), "com.microsoft:timeout");
        }
    }
    assert_eq!(server.counts().await.scheduled, 4);
    // A request that is answered immediately has not waited.
    let entries = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    assert_eq!(client.ask(0, "peek-message", &entries).await.status(), 200);
    server.stop().await;
}

/// AMQP-102, MSG-03: a null id of a scheduled message is no id: the broker generates one.
#[tokio::test]
async fn a_schedule_may_have_null_for_an_id() {
    let (server, mut client) = managing(&[]).await;
    let at = server.broker.now().plus(TimeSpan::from_minutes(5));
    let message = Message::new("a").with_scheduled_enqueue_time(at).encode();
    let message = Value::Binary(message.as_bytes().clone());
    let nulls = ["message-id", "session-id", "partition-key", "via-partition-key"];
    let mut entries = nulls.map(|name| (name, value(Value::Null))).to_vec();
    entries.push(("message", value(message)));
    let body = [("messages", list(&[map(&entries)]))];
    let reply = client.ask(0, "schedule-message", &body).await;
    assert_eq!(reply.status(), 200);
    let entries = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    let reply = client.ask(0, "peek-message", &entries).await;
    let message = reply.messages()[0].decode().unwrap();
    assert!(message.message_id.is_some_and(|id| id.to_string().len() == 32));
    assert_eq!(message.session_id, None);
    server.stop().await;
}

/// SET-21, SET-24: with `release_on_connection_loss`, messages received by number are locked while
/// the connection exists. Its loss releases and counts them.
#[tokio::test]
async fn locks_of_messages_by_number_end_with_the_connection() {
    let server = Server::start_releasing().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.manager(0, "q").await;
    let number = deferred(&mut client).await;
    let entries = [("sequence-numbers", longs(&[number]))];
    assert_eq!(client.ask(0, "receive-by-sequence-number", &entries).await.status(), 200);
    drop(client);
    let mut other = server.client().await;
    other.manager(0, "q").await;
    loop {
        // The loss of the connection is noticed a moment later.
        let reply = other.ask(0, "receive-by-sequence-number", &entries).await;
        if reply.status() == 200 {
            break;
        }
        tokio::task::yield_now().await;
    }
    // It was deferred once, and once not settled.
    assert_eq!(server.delivery_counts().await, [2]);
    server.stop().await;
}

/// AMQP-82, AMQ-25: messages are settled by lock token with each outcome; a lost lock has status
/// 410.
#[tokio::test]
async fn messages_are_settled_by_token() {
    let (server, mut client) = managing(&["a", "b", "c", "d", "e", "f"]).await;
    client.receiver(2, "q", LOCKED).await.unwrap();
    client.credit(2, 0, 6, false).await;
    let mut tokens = Vec::new();
    for _ in 0..6 {
        tokens.push(token(client.message().await.0.delivery_tag.unwrap().as_slice()));
    }
    let settle = |status: &str, token: u128| {
        [("disposition-status", value(status)), ("lock-tokens", uuids(&[token]))]
    };
    let statuses = ["completed", "abandoned", "defered", "suspended", "unlocked", "deferred"];
    for (status, token) in statuses.into_iter().zip(&tokens) {
        let mut entries = settle(status, *token).to_vec();
        if status == "suspended" {
            entries.push(("deadletter-reason", value("bad")));
            entries.push(("properties-to-modify", map(&[("more", value("x"))])));
        }
        assert_eq!(client.ask(0, "update-disposition", &entries).await.status(), 200, "{status}");
    }
    let counts = server.counts().await;
    assert_eq!((counts.active, counts.dead_letter, counts.deferred), (2, 1, 2));
    assert_eq!(server.total().await, 5, "one completed");
    let dead = server.dead_letters().await;
    assert_eq!(dead[0].application_property("DeadLetterReason"), Some(&Value::from("bad")));
    assert_eq!(dead[0].application_property("more"), Some(&Value::from("x")));
    let gone = client.ask(0, "update-disposition", &settle("completed", tokens[0])).await;
    assert_eq!((gone.status(), &*gone.condition()), (410, "com.microsoft:message-lock-lost"));
    // Its delivery is settled too: a later disposition gets a lost lock (AMQP-62).
    let answer = client.settle(0, DeliveryState::accepted()).await;
    assert_eq!(crate::sending::condition(&answer), "com.microsoft:message-lock-lost");
    let wrong = client.ask(0, "update-disposition", &settle("eaten", tokens[0])).await;
    assert_eq!((wrong.status(), &*wrong.condition()), (400, "com.microsoft:argument-error"));
    server.stop().await;
}

/// DEL-01, DEL-03: available messages are deleted; an empty result has status 204.
#[tokio::test]
async fn messages_are_deleted() {
    let (server, mut client) = managing(&["a", "b", "c"]).await;
    server.clock.advance(TimeSpan::from_seconds(1));
    let now = Value::Timestamp(server.broker.now().unix_ms());
    let entries = [("message-count", value(2_i32)), ("enqueued-time-utc", value(now))];
    let reply = client.ask(0, "batch-delete-messages", &entries).await;
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.get("message-count").scalar(), Ok(Scalar::I32(2)));
    assert_eq!(client.ask(0, "batch-delete-messages", &entries).await.status(), 200);
    assert_eq!(client.ask(0, "batch-delete-messages", &entries).await.status(), 204);
    let much = client.ask(0, "batch-delete-messages", &[("message-count", value(4_001_i32))]).await;
    assert_eq!((much.status(), &*much.condition()), (400, "com.microsoft:argument-out-of-range"));
    server.stop().await;
}

/// AMQP-86, AMQP-87, AMQ-24, TOP-13: rules are added, listed in the encoding that clients decode,
/// and removed.
#[tokio::test]
async fn rules_are_managed() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    let mut client = server.client().await;
    client.manager(0, "t/Subscriptions/s").await;
    let expression = |text: &str| map(&[("expression", value(text))]);
    let sql = map(&[
        ("sql-filter", expression("a = 1")),
        ("sql-rule-action", expression("SET b = 2")),
        ("correlation-filter", value(Value::Null)),
        ("rule-name", value("by-sql")),
    ]);
    let add = |name: &str, rule: Vec<u8>| [("rule-name", value(name)), ("rule-description", rule)];
    assert_eq!(client.ask(0, "add-rule", &add("by-sql", sql.clone())).await.status(), 200);
    let again = client.ask(0, "add-rule", &add("by-sql", sql)).await;
    assert_eq!((again.status(), &*again.condition()), (409, "com.microsoft:entity-already-exists"));
    let correlation = map(&[(
        "correlation-filter",
        map(&[("label", value("l")), ("properties", map(&[("p", value(7_i32))]))]),
    )]);
    assert_eq!(client.ask(0, "add-rule", &add("by-id", correlation)).await.status(), 200);
    // A filter with too many properties is refused by their number, before they are compared
    // (QUO-01).
    let names: Vec<String> = (0..30_000).map(|number| format!("p{number}")).collect();
    let properties: Vec<(&str, Vec<u8>)> =
        names.iter().map(|name| (name.as_str(), value(7_i32))).collect();
    let many = map(&[("correlation-filter", map(&[("properties", map(&properties))]))]);
    let refused = client.ask(0, "add-rule", &add("many", many)).await;
    assert_eq!(
        (refused.status(), &*refused.condition()),
        (400, "com.microsoft:argument-out-of-range")
    );
    let told = refused.property("statusDescription").unwrap();
    assert!(
        format!("{told:?}").contains("more properties than the limit `rule_property_count_max`"),
        "{told:?}"
    );
    let entries = [("top", value(i32::MAX)), ("skip", value(0_i32))];
    let rules = client.ask(0, "enumerate-rules", &entries).await.maps("rules");
    let rules: Vec<(u64, Vec<Raw>)> =
        rules.iter().map(|map| described(&map.get("rule-description").unwrap())).collect();
    assert_eq!(rules.len(), 3);
    for (descriptor, items) in &rules {
        assert_eq!((*descriptor, items.len()), (1_335_734_829_060, 4));
    }
    let names: Vec<&str> = rules.iter().map(|(_, items)| text(&items[2])).collect();
    assert_eq!(names, ["$Default", "by-id", "by-sql"]);
    let (filter, items) = described(&rules[0].1[0]);
    assert_eq!((filter, items.len()), (0x13_7000_0007, 0));
    let (action, items) = described(&rules[0].1[1]);
    assert_eq!((action, items.len()), (0x137_0000_0005, 0), "never null");
    let (filter, items) = described(&rules[1].1[0]);
    assert_eq!((filter, items.len()), (0x13_7000_0009, 9));
    assert_eq!(text(&items[4]), "l");
    assert_eq!(items[0].scalar(), Ok(Scalar::Null));
    let (filter, items) = described(&rules[2].1[0]);
    assert_eq!((filter, text(&items[0])), (83_483_426_822, "a = 1"));
    assert!(matches!(items[1].scalar(), Ok(Scalar::I32(_))));
    let (action, items) = described(&rules[2].1[1]);
    assert_eq!((action, text(&items[0])), (0x137_0000_0006, "SET b = 2"));
    let remove = |name: &str| [("rule-name", value(name))];
    assert_eq!(client.ask(0, "remove-rule", &remove("by-sql")).await.status(), 200);
    let gone = client.ask(0, "remove-rule", &remove("by-sql")).await;
    assert_eq!((gone.status(), &*gone.condition()), (404, "amqp:not-found"));
    let entries = [("top", value(5_i32)), ("skip", value(2_i32))];
    assert_eq!(client.ask(0, "enumerate-rules", &entries).await.status(), 204);
    server.stop().await;
}

fn described(value: &Raw) -> (u64, Vec<Raw>) {
    let (descriptor, list) = value.described().expect("is not described");
    let Ok(Scalar::U64(descriptor)) = descriptor.scalar() else { panic!() };
    (descriptor, list.raw_items().unwrap().collect())
}

fn text(value: &Raw) -> &str {
    match value.scalar() {
        Ok(Scalar::Text(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// AMQP-88, AMQP-92, ERR-05, AMQ-22, AMQ-23: the status reports the error of a request.
#[tokio::test]
async fn invalid_request_gets_error_status() {
    let (server, mut client) = managing(&[]).await;
    let unknown = client.ask(0, "make-coffee", &[]).await;
    assert_eq!((unknown.status(), &*unknown.condition()), (501, "amqp:not-implemented"));
    let wrong = client.ask(0, "renew-lock", &[("lock-tokens", value("x"))]).await;
    assert_eq!((wrong.status(), &*wrong.condition()), (400, "com.microsoft:argument-error"));
    let missing = client.ask(0, "cancel-scheduled-message", &[]).await;
    assert_eq!((missing.status(), &*missing.condition()), (400, "com.microsoft:argument-error"));
    // The entity is deleted.
    server.broker.delete_entity("q").await.unwrap();
    let entries = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    let gone = client.ask(0, "peek-message", &entries).await;
    assert_eq!((gone.status(), &*gone.condition()), (404, "amqp:not-found"));
    server.stop().await;
}

/// AMQP-33, ADR-13: sub-queues and subscriptions have management nodes; missing entities have none.
#[tokio::test]
async fn sub_queues_have_management_nodes() {
    let (server, mut client) = managing(&["a"]).await;
    let entity = server.broker.entity("q").unwrap();
    let token = server.lock_one().await;
    let settlement = peeklock_core::command::Settlement::DeadLetter { properties: None };
    entity.call(Command::Settle { token: LockToken(token), settlement }).await.unwrap();
    client.manager(2, "q/$DeadLetterQueue").await;
    let entries = [("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))];
    assert_eq!(client.ask(2, "peek-message", &entries).await.messages().len(), 1);
    assert_eq!(client.ask(0, "peek-message", &entries).await.status(), 204);
    let refused = client.sender(9, "none/$management").await;
    assert_eq!(refused, Err("amqp:not-found".to_owned()));
    server.stop().await;
}

/// AMQP-81, AMQP-32: an unsettled request is accepted first, and then gets its reply. A request
/// whose reply has no credit waits for credit.
#[tokio::test]
async fn a_request_waits_for_credit_of_its_reply() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    server.clock.advance(TimeSpan::from_seconds(1));
    let mut client = server.client().await;
    client.sender(0, "q/$management").await.unwrap();
    client.receiver(1, "q/$management", LOCKED).await.unwrap();
    let entries = map(&[("message-count", value(1_i32))]);
    let delete = request(1, "com.microsoft:batch-delete-messages", &[], &entries);
    client.send(0, 0, false, delete.as_bytes()).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    assert_eq!(server.total().await, 1, "nothing was done whose answer nobody takes");
    client.credit(1, 0, 1, false).await;
    let (Performative::Transfer(transfer), payload) = client.next_frame().await else { panic!() };
    assert_eq!(transfer.handle, 1);
    // AMQP-19: the first frame has all of these.
    assert!(transfer.delivery_id.is_some() && transfer.delivery_tag.is_some());
    assert_eq!(transfer.message_format, Some(0));
    assert_eq!(Reply { content: Content::parse(payload).unwrap() }.status(), 200);
    assert_eq!(server.total().await, 0);
    server.stop().await;
}
