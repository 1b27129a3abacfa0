//! Tests of receivers of sessions: named and next sessions, their locks and states.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::performative::{Attach, Detach, End, Performative, SenderSettleMode};
use peeklock_amqp::state::DeliveryState;
use peeklock_amqp::terminus::Source;
use peeklock_core::message::Value;
use peeklock_core::time::TimeSpan;
use peeklock_words::amqp::Scalar;

use crate::client::Client;
use crate::request::{uuids, value};
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
const FILTER: &str = "com.microsoft:session-filter";

pub fn raw(value: impl Into<Value>) -> Raw {
    Raw::encoded(|bytes| value.into().encode_to(bytes))
}

/// The `attach` of a receiver with this value of the session filter.
pub fn of_session(handle: u32, address: &str, filter: Raw) -> Attach {
    let attach = Client::receiver_of(handle, address, LOCKED);
    let source =
        Source { filter: Some(Map::of_symbols([(FILTER, filter)])), ..Source::at(address) };
    // Maximum wait for a session, in milliseconds.
    let properties = Map::of_symbols([("com.microsoft:timeout", raw(5_000_u32))]);
    Attach { source: Some(source), properties: Some(properties), ..attach }
}

fn described(descriptor: u64, value: Raw) -> Raw {
    Raw::encoded(|bytes| {
        bytes.extend([0x00, 0x80]);
        bytes.extend(descriptor.to_be_bytes());
        bytes.extend_from_slice(value.as_bytes());
    })
}

/// Waits until all earlier requests have reached the queue, which answers this one after them.
async fn arrived(client: &mut Client) {
    client.ask(10, "peek-message", &[("message-count", value(1_i32))]).await;
}

fn filter_of(attach: &Attach) -> Raw {
    attach.source.as_ref().unwrap().filter.as_ref().unwrap().get(FILTER).unwrap()
}

/// AMQP-71, AMQP-34, SES-10: the answer has the session's name in the form of the request,
/// unchanged addresses, and the end of the lock in ticks.
#[tokio::test]
async fn a_named_session_is_accepted() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a"), ("two", "b"), ("one", "c")]).await;
    let mut client = server.client().await;
    let address = "amqps://localhost:5672/S";
    let answer = client.attach_receiver(of_session(0, address, raw("one"))).await.unwrap();
    assert_eq!(filter_of(&answer).scalar(), Ok(Scalar::Text("one")));
    assert_eq!(answer.source.as_ref().unwrap().address(), Some(address));
    let until = answer.properties.as_ref().unwrap().get("com.microsoft:locked-until-utc").unwrap();
    let end = server.broker.now().plus(TimeSpan::from_seconds(60)).unix_ms();
    assert_eq!(until.scalar(), Ok(Scalar::I64(621_355_968_000_000_000 + end * 10_000)));
    assert_eq!(until.as_bytes()[0], 0x81);
    // AMQP-75: the messages of this session, in order, several at a time.
    client.credit(0, 0, 10, false).await;
    let bodies = [client.message().await.1.body_bytes(), client.message().await.1.body_bytes()];
    assert_eq!(bodies, [Bytes::from_static(b"a"), Bytes::from_static(b"c")]);
    // AMQP-72: no other receiver can lock it.
    let refused = client.attach_receiver(of_session(1, "s", raw("one"))).await;
    assert_eq!(refused.unwrap_err(), "com.microsoft:session-cannot-be-locked");
    // A session without messages can be locked, and a described filter gets a described answer.
    let filter = described(0x13_7000_000c, raw("empty"));
    let answer = client.attach_receiver(of_session(2, "s", filter.clone())).await.unwrap();
    assert_eq!(filter_of(&answer), filter);
    server.stop().await;
}

/// AMQP-70, AMQP-76: filters that do not fit a session are refused.
#[tokio::test]
async fn filters_without_a_session_are_refused() {
    let server = Server::start().await;
    server.put_in_sessions(&[]).await;
    let mut client = server.client().await;
    let attach = Client::receiver_of(0, "s", LOCKED);
    client.send_frame(&Performative::Attach(Box::new(attach))).await;
    let (Performative::Attach(answer), _) = client.next_frame().await else { panic!() };
    assert!(answer.source.is_none());
    let (Performative::Detach(Detach { error: Some(error), .. }), _) = client.next_frame().await
    else {
        panic!()
    };
    assert_eq!(error.condition(), "amqp:not-allowed");
    assert!(error.description().contains("session"), "{error}");
    let refused = client.attach_receiver(of_session(1, "q", raw("one"))).await;
    assert_eq!(refused.unwrap_err(), "amqp:not-allowed");
    let shared = described(0x13_7000_000e, raw("one"));
    let refused = client.attach_receiver(of_session(2, "s", shared)).await;
    assert_eq!(refused.unwrap_err(), "amqp:not-implemented");
    server.stop().await;
}

/// AMQP-73, AMQ-10, SES-07, SES-08: the next session is the session of the first message. A client
/// waits for it at most for its time-out.
#[tokio::test]
async fn the_next_session_is_waited_for() {
    let server = Server::start().await;
    server.put_in_sessions(&[("two", "a"), ("one", "b")]).await;
    let mut client = server.client().await;
    client.manager(10, "s").await;
    let next = |handle| of_session(handle, "s", raw(Value::Null));
    let answer = client.attach_receiver(next(0)).await.unwrap();
    assert_eq!(filter_of(&answer).scalar(), Ok(Scalar::Text("two")));
    let filter = described(0x13_7000_000c, raw(Value::Null));
    let answer = client.attach_receiver(of_session(1, "s", filter)).await.unwrap();
    assert_eq!(filter_of(&answer), described(0x13_7000_000c, raw("one")));
    client.send_frame(&Performative::Attach(Box::new(next(2)))).await;
    arrived(&mut client).await;
    server.clock.advance(TimeSpan::from_ms(5_000));
    let (Performative::Attach(answer), _) = client.next_frame().await else { panic!() };
    assert!(answer.source.is_none());
    assert_eq!(client.detached().await, "com.microsoft:timeout");
    server.stop().await;
}

/// AMQP-73: a client that detached while waiting gets no session.
#[tokio::test]
async fn detached_client_gets_no_session() {
    let server = Server::start().await;
    server.put_in_sessions(&[]).await;
    let mut client = server.client().await;
    client.manager(10, "s").await;
    client.send_frame(&Performative::Attach(Box::new(of_session(0, "s", raw(Value::Null))))).await;
    arrived(&mut client).await;
    client.send_frame(&Performative::Detach(Detach { handle: 0, closed: true, error: None })).await;
    assert!(matches!(client.next_frame().await, (Performative::Attach(_), _)));
    assert!(matches!(client.next_frame().await, (Performative::Detach(_), _)));
    server.put_message("s", "one", "a").await;
    let answer = client.attach_receiver(of_session(1, "s", raw("one"))).await;
    assert!(answer.is_ok(), "{answer:?}");
    server.stop().await;
}

/// AMQP-73: a client that ended its AMQP session while waiting gets no session.
#[tokio::test]
async fn client_with_ended_session_gets_no_session() {
    let server = Server::start().await;
    server.put_in_sessions(&[]).await;
    let mut client = server.client().await;
    client.manager(10, "s").await;
    client.begin_on(1).await;
    client.send_frame(&Performative::Attach(Box::new(of_session(0, "s", raw(Value::Null))))).await;
    client.on(0);
    arrived(&mut client).await;
    client.on(1);
    client.send_frame(&Performative::End(End::default())).await;
    assert!(matches!(client.next_frame().await, (Performative::End(_), _)));
    client.on(0);
    arrived(&mut client).await;
    server.put_message("s", "one", "a").await;
    let answer = client.attach_receiver(of_session(1, "s", raw("one"))).await;
    assert!(answer.is_ok(), "{answer:?}");
    server.stop().await;
}

/// AMQP-73: a client without a time-out waits for a minute.
#[tokio::test]
async fn client_without_timeout_waits_a_minute() {
    let server = Server::start().await;
    server.put_in_sessions(&[]).await;
    let mut client = server.client().await;
    client.manager(10, "s").await;
    let attach = Attach { properties: None, ..of_session(0, "s", raw(Value::Null)) };
    client.send_frame(&Performative::Attach(Box::new(attach))).await;
    arrived(&mut client).await;
    server.clock.advance(TimeSpan::from_ms(59_999));
    // The answer to this is the first frame.
    arrived(&mut client).await;
    server.clock.advance(TimeSpan::from_ms(1));
    let (Performative::Attach(answer), _) = client.next_frame().await else { panic!() };
    assert!(answer.source.is_none());
    assert_eq!(client.detached().await, "com.microsoft:timeout");
    server.stop().await;
}

/// AMQP-74, AMQ-15, SES-15: a session lock that expires detaches the link with this condition, and
/// later settlements get the same condition.
#[tokio::test]
async fn a_lapsed_session_lock_ends_the_link() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a")]).await;
    let mut client = server.client().await;
    client.attach_receiver(of_session(0, "s", raw("one"))).await.unwrap();
    client.manager(1, "s").await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    server.clock.advance(TimeSpan::from_seconds(61));
    assert_eq!(client.detached().await, "com.microsoft:session-lock-lost");
    let answer = client.settle(transfer.delivery_id.unwrap(), DeliveryState::accepted()).await;
    assert_eq!(crate::sending::condition(&answer), "com.microsoft:session-lock-lost");
    let reply = client.ask(1, "renew-session-lock", &[("session-id", value("one"))]).await;
    assert_eq!((reply.status(), &*reply.condition()), (410, "com.microsoft:session-lock-lost"));
    // AMQP-62: a settlement by lock token gets it too; the Java SDK sends it after the detach.
    let token = crate::management::token(transfer.delivery_tag.unwrap().as_slice());
    let completed = [
        ("disposition-status", value("completed")),
        ("lock-tokens", uuids(&[token])),
        ("session-id", value("one")),
    ];
    let reply = client.ask(1, "update-disposition", &completed).await;
    assert_eq!((reply.status(), &*reply.condition()), (410, "com.microsoft:session-lock-lost"));
    server.stop().await;
}

/// AMQP-74: a receive-and-delete link of a session has nothing to settle when the session lock
/// expires. A client that waits until the lock ends gets the end of its drain, and is detached when
/// it grants new credit.
#[tokio::test]
async fn a_lapsed_session_lock_ends_no_wait_for_good() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a")]).await;
    let mut client = server.client().await;
    let attach = of_session(0, "s", raw("one"));
    let attach = Attach { snd_settle_mode: Some(SenderSettleMode::Settled), ..attach };
    client.attach_receiver(attach).await.unwrap();
    client.credit(0, 0, 2, false).await;
    assert_eq!(client.message().await.1.body_bytes(), Bytes::from_static(b"a"));
    server.clock.advance(TimeSpan::from_seconds(61));
    // Another client can lock the session, so the lock has expired.
    let mut other = server.client().await;
    other.attach_receiver(of_session(0, "s", raw("one"))).await.unwrap();
    client.credit(0, 1, 1, true).await;
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    assert_eq!((flow.link_credit, flow.drain, flow.delivery_count), (Some(0), true, Some(2)));
    client.credit(0, 2, 1, false).await;
    assert_eq!(client.detached().await, "com.microsoft:session-lock-lost");
    server.stop().await;
}

/// SES-31, AMQP-39: a detach gives deliveries back without counting. AMQP-89, SES-12, SES-24: the
/// holder renews the lock and sets the state, which the next holder can read.
#[tokio::test]
async fn the_holder_has_state_and_lock() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a")]).await;
    let mut client = server.client().await;
    client.attach_receiver(of_session(0, "s", raw("one"))).await.unwrap();
    client.manager(1, "s").await;
    let session = || ("session-id", value("one"));
    let state = client.ask(1, "get-session-state", &[session()]).await;
    assert_eq!(state.status(), 200);
    assert_eq!(state.get("session-state").scalar(), Ok(Scalar::Null));
    let binary = |bytes: &'static [u8]| value(Value::Binary(Bytes::from_static(bytes)));
    let set = [session(), ("session-state", binary(b"here"))];
    assert_eq!(client.ask(1, "set-session-state", &set).await.status(), 200);
    let state = client.ask(1, "get-session-state", &[session()]).await;
    assert_eq!(state.get("session-state").scalar(), Ok(Scalar::Binary(b"here")));
    server.clock.advance(TimeSpan::from_seconds(30));
    let renewed = client.ask(1, "renew-session-lock", &[session()]).await;
    let end = server.broker.now().plus(TimeSpan::from_seconds(60)).unix_ms();
    assert_eq!(renewed.get("expiration").scalar(), Ok(Scalar::Timestamp(end)));
    let other = [("session-id", value("two"))];
    let refused = client.ask(1, "get-session-state", &other).await;
    assert_eq!((refused.status(), &*refused.condition()), (410, "com.microsoft:session-lock-lost"));
    client.credit(0, 0, 1, false).await;
    client.message().await;
    client.detach(0).await;
    client.attach_receiver(of_session(3, "s", raw("one"))).await.unwrap();
    client.credit(3, 0, 1, false).await;
    let (_, content) = client.message().await;
    assert_eq!(
        content.sections().header,
        [0x00, 0x53, 0x70, 0xc0, 6, 5, 0x40, 0x40, 0x40, 0x40, 0x43]
    );
    let cleared = [session(), ("session-state", binary(b""))];
    assert_eq!(client.ask(1, "set-session-state", &cleared).await.status(), 200);
    let state = client.ask(1, "get-session-state", &[session()]).await;
    assert_eq!(state.get("session-state").scalar(), Ok(Scalar::Null), "nothing is no state");
    server.stop().await;
}

/// AMQP-82, DEF-08, SES-14: messages of a session are deferred, received by number and settled by
/// token by its holder. A single message lock cannot be renewed.
#[tokio::test]
async fn deferred_messages_of_a_session_are_its_holders() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a")]).await;
    let mut client = server.client().await;
    client.attach_receiver(of_session(0, "s", raw("one"))).await.unwrap();
    client.manager(1, "s").await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let defer = crate::receiving::modified(true);
    client.settle(transfer.delivery_id.unwrap(), defer).await;
    let entries = [
        ("sequence-numbers", crate::request::longs(&[1])),
        ("session-id", value("one")),
        ("receiver-settle-mode", value(1_u32)),
    ];
    let reply = client.ask(1, "receive-by-sequence-number", &entries).await;
    assert_eq!(reply.status(), 200);
    let token = reply.maps("messages")[0].get("lock-token").unwrap();
    let Ok(Scalar::Uuid(token)) = token.scalar() else { panic!() };
    let renewed = client.ask(1, "renew-lock", &[("lock-tokens", uuids(&[token]))]).await;
    assert_eq!((renewed.status(), &*renewed.condition()), (400, "amqp:not-allowed"));
    let settle = [
        ("disposition-status", value("completed")),
        ("lock-tokens", uuids(&[token])),
        ("session-id", value("one")),
    ];
    assert_eq!(client.ask(1, "update-disposition", &settle).await.status(), 200);
    let other = [("sequence-numbers", crate::request::longs(&[1])), ("session-id", value("two"))];
    let refused = client.ask(1, "receive-by-sequence-number", &other).await;
    assert_eq!((refused.status(), &*refused.condition()), (410, "com.microsoft:session-lock-lost"));
    server.stop().await;
}

/// AMQP-82: deferred messages of a session are received in the mode of its link. A request with the
/// other mode is refused, since it would lock a message that it means to delete, or the reverse.
#[tokio::test]
async fn deferred_messages_are_received_as_their_session_is() {
    for (mode, other) in [(LOCKED, 0_u32), (SenderSettleMode::Settled, 1)] {
        let server = Server::start().await;
        server.put_in_sessions(&[("one", "a")]).await;
        let mut client = server.client().await;
        client.manager(1, "s").await;
        client.attach_receiver(of_session(0, "s", raw("one"))).await.unwrap();
        client.credit(0, 0, 1, false).await;
        let (transfer, _) = client.message().await;
        let defer = crate::receiving::modified(true);
        client.settle(transfer.delivery_id.unwrap(), defer).await;
        client.detach(0).await;
        let attach = of_session(0, "s", raw("one"));
        let attach = Attach { snd_settle_mode: Some(mode), ..attach };
        client.attach_receiver(attach).await.unwrap();
        let entries = |mode: u32| {
            let numbers = ("sequence-numbers", crate::request::longs(&[1]));
            [numbers, ("session-id", value("one")), ("receiver-settle-mode", value(mode))]
        };
        let refused = client.ask(1, "receive-by-sequence-number", &entries(other)).await;
        let condition = "com.microsoft:argument-error";
        assert_eq!((refused.status(), &*refused.condition()), (400, condition));
        let reply = client.ask(1, "receive-by-sequence-number", &entries(1 - other)).await;
        let messages = reply.maps("messages");
        assert_eq!(messages[0].get("lock-token").is_some(), mode == LOCKED);
        server.stop().await;
    }
}

/// AMQP-82, AMQP-85, SES-29: sessions are listed in pages, as an array of strings.
#[tokio::test]
async fn sessions_are_listed() {
    let server = Server::start().await;
    server.put_in_sessions(&[("c", "1"), ("a", "2"), ("b", "3")]).await;
    let mut client = server.client().await;
    client.manager(0, "s").await;
    let list = |skip: i32, top: i32| {
        [
            ("last-updated-time", value(Value::Timestamp(253_402_300_800_000))),
            ("skip", value(skip)),
            ("top", value(top)),
        ]
    };
    let names = |reply: &crate::request::Reply| -> Vec<String> {
        let raw = reply.get("sessions-ids");
        assert_eq!(raw.as_bytes()[0], 0xf0, "is no array");
        let text = |item| match item {
            Ok(Scalar::Text(text)) => str::to_owned(text),
            other => panic!("{other:?}"),
        };
        raw.items().unwrap().map(text).collect()
    };
    let first = client.ask(0, "get-message-sessions", &list(0, 2)).await;
    assert_eq!((first.status(), names(&first)), (200, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(first.get("skip").scalar(), Ok(Scalar::I32(2)));
    assert_eq!(names(&client.ask(0, "get-message-sessions", &list(2, 2)).await), ["c"]);
    assert_eq!(client.ask(0, "get-message-sessions", &list(3, 2)).await.status(), 204);
    // Sessions whose state was set since then: none.
    let entries = [("last-updated-time", value(Value::Timestamp(0)))];
    assert_eq!(client.ask(0, "get-message-sessions", &entries).await.status(), 204);
    // The last millisecond of the year 9999 selects sessions with messages; the millisecond before
    // it is an instant.
    for (since, status) in [(253_402_300_799_999, 200), (253_402_300_799_998, 204)] {
        let entries = [("last-updated-time", value(Value::Timestamp(since)))];
        assert_eq!(client.ask(0, "get-message-sessions", &entries).await.status(), status);
    }
    // After the last session that the client has seen.
    let mut after = list(0, 100).to_vec();
    after.push(("last-session-id", value("b")));
    assert_eq!(names(&client.ask(0, "get-message-sessions", &after).await), ["c"]);
    server.stop().await;
}

/// AMQP-85, SES-29: a list continues after the last session that the client has seen, even if
/// earlier ones are gone, and for any `skip`. After the last session it is empty.
#[tokio::test]
async fn a_list_of_sessions_goes_on_behind_a_name() {
    let server = Server::start().await;
    server.put_in_sessions(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]).await;
    let mut client = server.client().await;
    client.manager(0, "s").await;
    let list = |skip: i32, last: &str| {
        [
            ("last-updated-time", value(Value::Timestamp(253_402_300_800_000))),
            ("skip", value(skip)),
            ("top", value(2_i32)),
            ("last-session-id", value(last)),
        ]
    };
    client.attach_receiver(of_session(2, "s", raw("a"))).await.unwrap();
    client.credit(2, 0, 1, false).await;
    let first = client.message().await.0.delivery_id.unwrap();
    let done = DeliveryState::accepted();
    assert_eq!(client.settle(first, done.clone()).await, done, "`a` is no more");
    // The client has seen `a` and `b`.
    let next = client.ask(0, "get-message-sessions", &list(2, "b")).await;
    assert_eq!(next.status(), 200);
    let named = next.get("sessions-ids");
    let items = named.items().unwrap().map(|item| match item {
        Ok(Scalar::Text(text)) => text.to_owned(),
        other => panic!("{other:?}"),
    });
    assert_eq!(items.collect::<Vec<_>>(), ["c", "d"]);
    assert_eq!(next.get("skip").scalar(), Ok(Scalar::I32(4)));
    let behind_all = client.ask(0, "get-message-sessions", &list(0, "\u{10ffff}")).await;
    assert_eq!(behind_all.status(), 204);
    let long = "x".repeat(129);
    let refused = client.ask(0, "get-message-sessions", &list(0, &long)).await;
    assert_eq!((refused.status(), &*refused.condition()), (400, "com.microsoft:argument-error"));
    server.stop().await;
}

/// SES-33: the lock of a broken connection ends, and is counted.
#[tokio::test]
async fn a_broken_connection_gives_up_its_session() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a")]).await;
    let mut client = server.client().await;
    client.attach_receiver(of_session(0, "s", raw("one"))).await.unwrap();
    client.credit(0, 0, 1, false).await;
    client.message().await;
    drop(client);
    let mut other = server.client().await;
    // It waits until the loss of the other connection is noticed.
    let answer = other.attach_receiver(of_session(0, "s", raw(Value::Null)));
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await.unwrap().unwrap();
    assert_eq!(filter_of(&answer).scalar(), Ok(Scalar::Text("one")));
    other.credit(0, 0, 1, false).await;
    let header = other.message().await.1.sections().header.to_vec();
    assert_eq!(header.last_chunk(), Some(&[0x52, 1]), "its count is one");
    server.stop().await;
}
