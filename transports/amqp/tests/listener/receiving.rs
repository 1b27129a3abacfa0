//! Tests of clients that receive and settle.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::{
    Attach, Disposition, Performative, Role, SenderSettleMode, Transfer,
};
use peeklock_amqp::server::AmqpConfig;
use peeklock_amqp::state::{DeliveryState, Modified, Outcome, Rejected};
use peeklock_core::Broker;
use peeklock_core::clock::Clock as _;
use peeklock_core::command::Command;
use peeklock_core::contract::AllowAll;
use peeklock_core::description::{EntityStatus, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{ClientQuery, LinkRole};
use peeklock_core::message::{Content, Message, Value};
use peeklock_core::request::Outcome as Answered;
use peeklock_core::store::Shard;
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::{Fate, FaultStore};
use peeklock_words::amqp::{Reader, Scalar};

use crate::client::Client;
use crate::request::{longs, uuids, value};
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;

async fn receiving(texts: &[&str]) -> (Server, Client) {
    let server = Server::start().await;
    server.put(texts).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    (server, client)
}

fn id(transfer: &Transfer) -> u32 {
    transfer.delivery_id.unwrap()
}

pub fn modified(undeliverable_here: bool) -> DeliveryState {
    DeliveryState::Outcome(Outcome::Modified(Modified {
        undeliverable_here: Some(undeliverable_here),
        ..Modified::default()
    }))
}

/// AMQP-48, AMQP-50, AMQP-54, AMQ-08, AMQ-14: at most as many messages are delivered as there is
/// credit, with locks, in order.
#[tokio::test]
async fn deliveries_never_exceed_credit() {
    let (server, mut client) = receiving(&["a", "b", "c"]).await;
    client.credit(0, 0, 2, false).await;
    for body in ["a", "b"] {
        let (transfer, content) = client.message().await;
        assert_eq!(content.body_bytes(), body);
        assert_eq!(transfer.settled, Some(false));
    }
    // The next frame is the answer to this, not a third message.
    assert_eq!(client.settle(0, DeliveryState::accepted()).await, DeliveryState::accepted());
    assert_eq!(server.counts().await.active, 2);
    server.stop().await;
}

/// AMQP-09: a receiver continues after its link's count wraps at 2³², with a drain and with locks.
#[tokio::test]
async fn a_link_goes_on_where_its_count_goes_round() {
    let first = u32::MAX - 1;
    let adjust = |config: &mut AmqpConfig| config.initial_delivery_count = first;
    let server = Server::start_with(Arc::new(AllowAll), adjust).await;
    server.put(&["a", "b", "c", "d", "e"]).await;
    let mut client = server.client().await;
    let attach = client.attach_receiver(Client::receiver_of(0, "q", LOCKED)).await.unwrap();
    assert_eq!(attach.initial_delivery_count, Some(first));
    for (number, body) in (0_u32..).zip(["a", "b", "c", "d", "e"]) {
        client.credit(0, first.wrapping_add(number), 1, number == 2).await;
        let (transfer, content) = client.message().await;
        assert_eq!(content.body_bytes(), body);
        if number == 2 {
            let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
            assert_eq!((flow.delivery_count, flow.link_credit), (Some(1), Some(0)));
        }
        let answer = client.settle(id(&transfer), DeliveryState::accepted()).await;
        assert_eq!(answer, DeliveryState::accepted());
    }
    server.stop().await;
}

/// AMQP-48, AMQP-60, AMQP-64, AMQ-14: an abandon raises the delivery count, a release does not. The
/// answers have the same outcome.
#[tokio::test]
async fn abandoned_is_counted_and_released_is_not() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    assert_eq!(client.settle(id(&transfer), modified(false)).await, modified(false));
    assert_eq!(server.delivery_counts().await, [1]);
    client.credit(0, 1, 1, false).await;
    let (transfer, _) = client.message().await;
    let released = DeliveryState::Outcome(Outcome::Released);
    assert_eq!(client.settle(id(&transfer), released.clone()).await, released);
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// RTY-27: an abandon takes its delay from a property, which is not stored. An invalid delay is
/// refused, and the lock is unchanged.
#[tokio::test]
async fn an_abandon_takes_its_delay_from_a_property() {
    let (server, mut client) = receiving(&["a", "b", "c", "d"]).await;
    client.credit(0, 0, 4, false).await;
    let value = |value: Value| Raw::encoded(|bytes| value.encode_to(bytes));
    let modified = |delay: Value| {
        let changes = [("peeklock-delay-ms", value(delay)), ("tried", value(Value::Bool(true)))];
        let message_annotations = Some(Map::of_symbols(changes));
        DeliveryState::Outcome(Outcome::Modified(Modified {
            message_annotations,
            ..Modified::default()
        }))
    };
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(id(&client.message().await.0));
    }
    for (id, wrong) in
        ids.iter().zip([Value::I32(-1), Value::Bool(true), Value::String("soon".into())])
    {
        let answer = client.settle(*id, modified(wrong)).await;
        assert!(matches!(answer, DeliveryState::Outcome(Outcome::Rejected(_))), "{answer:?}");
    }
    let answer = client.settle(ids[3], modified(Value::U32(5_000))).await;
    assert!(matches!(answer, DeliveryState::Outcome(Outcome::Modified(_))), "{answer:?}");
    let counts = server.counts().await;
    assert_eq!((counts.active, counts.delayed), (4, 1));
    // The other messages are still locked, and only this one is delivered.
    client.credit(0, 4, 4, false).await;
    server.clock.advance(TimeSpan::from_seconds(5));
    let (_, content) = client.message().await;
    let properties: Vec<_> = content.application_properties().collect();
    assert_eq!(properties, [("tried", Value::Bool(true))]);
    server.stop().await;
}

/// AMQP-67, DLQ-07: the dead-letter queue and the transfer dead-letter queue use the same frames as
/// any queue: deliver with a lock, abandon, deliver again, complete. A second dead-lettering is
/// refused, and the lock remains.
#[tokio::test]
async fn sub_queues_take_the_same_frames() {
    let server = Server::start().await;
    let to_r = QueueUpdate { forward_to: Some("r".into()), ..QueueUpdate::default() };
    let status = Some(EntityStatus::SendDisabled);
    let takes_none = QueueUpdate { status, ..QueueUpdate::default() };
    server.broker.create_queue("r", takes_none).await.unwrap();
    server.broker.create_queue("f", to_r).await.unwrap();
    let mut client = server.client().await;
    client.sender(0, "f").await.unwrap();
    client.send(0, 0, false, &crate::client::text("a")).await;
    assert_eq!(client.disposed().await.1, DeliveryState::accepted());
    server.put(&["a"]).await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let dead = DeliveryState::rejected(AmqpError::new("com.microsoft:dead-letter", ""));
    let (transfer, _) = client.message().await;
    client.settle(id(&transfer), dead.clone()).await;
    for (handle, queue, address) in
        [(2, "q", "q/$deadletterqueue"), (3, "f", "f/$Transfer/$deadletterqueue")]
    {
        let left = async || {
            let counts = server.broker.describe_queue(queue).await.unwrap().counts;
            (counts.total(), counts.dead_letter + counts.transfer_dead_letter)
        };
        client.receiver(handle, address, LOCKED).await.unwrap();
        client.credit(handle, 0, 3, false).await;
        let delivered = async |client: &mut Client| {
            let (transfer, content) = client.message().await;
            assert_eq!((transfer.handle, content.body_bytes()), (handle, "a".into()), "{address}");
            assert_eq!(transfer.settled, Some(false), "{address}");
            id(&transfer)
        };
        let first = delivered(&mut client).await;
        assert_eq!(client.settle(first, modified(false)).await, modified(false));
        let second = delivered(&mut client).await;
        let refused = client.settle(second, dead.clone()).await;
        let DeliveryState::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) = refused
        else {
            panic!("{address}: {refused:?}")
        };
        assert_eq!(error.condition(), "amqp:not-allowed", "{address}");
        assert_eq!(left().await, (1, 1), "{address}");
        // AMQP-62, DLQ-07: the lock and the delivery remain, so it may be settled with another
        // outcome.
        let malformed = Map::of_symbols([(
            "peeklock-delay-ms",
            Raw::encoded(|bytes| Value::I64(-1).encode_to(bytes)),
        )]);
        let wrong = DeliveryState::Outcome(Outcome::Modified(Modified {
            message_annotations: Some(malformed),
            ..Modified::default()
        }));
        let refused = client.settle(second, wrong).await;
        let condition = crate::sending::condition(&refused);
        assert_eq!(condition, "com.microsoft:argument-out-of-range", "{address}");
        assert_eq!(client.settle(second, modified(false)).await, modified(false));
        let third = delivered(&mut client).await;
        let accepted = DeliveryState::accepted();
        assert_eq!(client.settle(third, accepted.clone()).await, accepted);
        assert_eq!(left().await, (0, 0), "{address}");
    }
    server.stop().await;
}

/// AMQP-61, AMQP-57, AMQ-08, AMQ-14: a dead letter has its reason, and the answer has no error.
#[tokio::test]
async fn a_dead_letter_has_its_reason() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let text = |text: &str| Raw::encoded(|bytes| Value::String(text.into()).encode_to(bytes));
    let info = Map::of_symbols([("DeadLetterReason", text("bad")), ("more", text("x"))]);
    let error = AmqpError::new("com.microsoft:dead-letter", "").with_info(info);
    let answer = client.settle(id(&transfer), DeliveryState::rejected(error)).await;
    assert_eq!(answer, DeliveryState::Outcome(Outcome::Rejected(Rejected { error: None })));
    client.receiver(1, "q/$deadletterqueue", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let (_, content) = client.message().await;
    let properties: Vec<_> = content.application_properties().collect();
    assert!(properties.contains(&("DeadLetterReason", Value::String("bad".into()))));
    assert!(properties.contains(&("more", Value::String("x".into()))));
    server.stop().await;
}

/// AMQP-63: a reason that is not text is an ordinary property.
#[tokio::test]
async fn a_reason_that_is_no_text_is_a_property() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let number = Raw::encoded(|bytes| Value::I32(7).encode_to(bytes));
    let info = Map::of_symbols([("DeadLetterReason", number)]);
    let error = AmqpError::new("com.microsoft:dead-letter", "").with_info(info);
    client.settle(id(&transfer), DeliveryState::rejected(error)).await;
    let dead = server.dead_letters().await;
    assert_eq!(dead[0].application_property("DeadLetterReason"), Some(&Value::I32(7)));
    server.stop().await;
}

/// AMQP-37: a client that expects a topic but finds a queue is refused, and so is the reverse.
/// Without the property, a client is not checked.
#[tokio::test]
async fn a_client_of_another_kind_of_entity_is_refused() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let update = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", update, vec![]).await.unwrap();
    let mut client = server.client().await;
    let typed = |value: Value| {
        let value = Raw::encoded(|bytes| value.encode_to(bytes));
        Some(Map::of_symbols([("com.microsoft:entity-type", value)]))
    };
    let cases = [
        ("q", 0, true),
        ("q", 1, false),
        ("q", 2, false),
        ("q/$deadletterqueue", 0, true),
        ("t/Subscriptions/s", 2, true),
        ("t/Subscriptions/s", 1, true),
        ("t/Subscriptions/s", 0, false),
    ];
    for (handle, (address, number, is_taken)) in (0..).zip(cases) {
        let attach = Client::receiver_of(handle, address, LOCKED);
        let attach = Attach { properties: typed(Value::I32(number)), ..attach };
        let answer = client.attach_receiver(attach).await.map(drop);
        let expected = if is_taken { Ok(()) } else { Err("amqp:not-allowed".to_owned()) };
        assert_eq!(answer, expected, "{address} {number}");
    }
    for (handle, address, value, is_taken) in [
        (10, "t", Value::I32(1), true),
        (11, "t", Value::I32(0), false),
        (12, "q", Value::I32(1), false),
        (13, "q", Value::from("entity-mgmt"), true),
    ] {
        let attach = Attach { properties: typed(value), ..Client::sender_of(handle, address) };
        let answer = client.attach_sender(attach).await.map(drop);
        assert_eq!(answer.is_ok(), is_taken, "{address}");
    }
    server.stop().await;
}

/// AMQP-60, AMQ-14: a deferred message is not delivered again.
#[tokio::test]
async fn deferred_is_set_aside() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    assert_eq!(client.settle(id(&transfer), modified(true)).await, modified(true));
    client.credit(0, 1, 5, true).await;
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    assert_eq!((flow.link_credit, flow.drain, flow.delivery_count), (Some(0), true, Some(6)));
    server.stop().await;
}

/// AMQP-51: a drain delivers all available messages, and returns the remaining credit.
#[tokio::test]
async fn drain_follows_available_messages() {
    let (server, mut client) = receiving(&["a", "b"]).await;
    client.credit(0, 0, 10, true).await;
    client.message().await;
    client.message().await;
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    assert_eq!((flow.link_credit, flow.drain, flow.delivery_count), (Some(0), true, Some(10)));
    server.stop().await;
}

/// AMQP-55, AMQ-08: a message in receive-and-delete mode is settled, and removed.
#[tokio::test]
async fn received_for_good_is_gone() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", SenderSettleMode::Settled).await.unwrap();
    client.credit(0, 0, 1, false).await;
    let (transfer, content) = client.message().await;
    assert_eq!((transfer.settled, &content.body_bytes()[..]), (Some(true), &b"a"[..]));
    assert_eq!(transfer.delivery_tag.unwrap().as_slice().len(), 16);
    assert_eq!(server.counts().await.active, 0);
    server.stop().await;
}

/// AMQP-39: a delivery can be settled after its link is detached.
#[tokio::test]
async fn a_delivery_is_settled_after_its_link() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    client.detach(0).await;
    assert_eq!(
        client.settle(id(&transfer), DeliveryState::accepted()).await,
        DeliveryState::accepted()
    );
    assert_eq!(server.counts().await.active, 0);
    server.stop().await;
}

/// SET-21, SET-24: the locks of a lost connection last until they expire. Their tokens can be
/// renewed and settled on another connection. An unsettled message is counted at the end of its
/// lock.
#[tokio::test]
async fn a_lost_connection_keeps_its_locks() {
    let (server, mut client) = receiving(&["a", "b"]).await;
    client.credit(0, 0, 2, false).await;
    let tag = client.message().await.0.delivery_tag.unwrap();
    let token = crate::management::token(tag.as_slice());
    client.message().await;
    drop(client);
    let mut other = server.client().await;
    other.manager(1, "q").await;
    server.clock.advance(TimeSpan::from_seconds(50));
    let renewed = other.ask(1, "renew-lock", &[("lock-tokens", uuids(&[token]))]).await;
    assert_eq!(renewed.status(), 200);
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 1, false).await;
    server.clock.advance(TimeSpan::from_seconds(10));
    assert_eq!(other.message().await.1.body_bytes(), "b", "its lock has run out");
    let settle = [("disposition-status", value("completed")), ("lock-tokens", uuids(&[token]))];
    assert_eq!(other.ask(1, "update-disposition", &settle).await.status(), 200);
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// SET-21, SET-31: if the setting says so, the locks of a lost connection end with it, and are
/// counted.
#[tokio::test]
async fn a_lost_connection_releases_its_locks_where_it_should() {
    let server = Server::start_releasing().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 1, false).await;
    client.message().await;
    drop(client);
    let mut other = server.client().await;
    other.receiver(0, "q", LOCKED).await.unwrap();
    other.credit(0, 0, 1, false).await;
    assert_eq!(other.message().await.1.body_bytes(), "a");
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// SET-33, SET-35, DEF-05: a deferral counts as a delivery, and dead-letters a message that has
/// reached the maximum.
#[tokio::test]
async fn deferring_counts_as_a_delivery() {
    let queue = QueueUpdate { max_delivery_count: Some(2), ..QueueUpdate::default() };
    let server = Server::start_as(Broker::builder(), queue, |_| {}).await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    let number = crate::management::deferred(&mut client).await;
    assert_eq!(server.delivery_counts().await, [1]);
    client.manager(0, "q").await;
    let entries = [("sequence-numbers", longs(&[number]))];
    let reply = client.ask(0, "receive-by-sequence-number", &entries).await;
    let maps = reply.maps("messages");
    let Ok(Scalar::Uuid(token)) = maps[0].get("lock-token").unwrap().scalar() else { panic!() };
    let defer = [("disposition-status", value("defered")), ("lock-tokens", uuids(&[token]))];
    assert_eq!(client.ask(0, "update-disposition", &defer).await.status(), 200);
    let dead = server.dead_letters().await;
    let reason = dead[0].application_property("DeadLetterReason");
    assert_eq!(reason, Some(&Value::from("MaxDeliveryCountExceeded")));
    server.stop().await;
}

/// SET-38: in a dead-letter queue nothing is counted: no abandon, no deferral, no end of a lock.
#[tokio::test]
async fn a_dead_letter_queue_counts_nothing() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let dead_letter = DeliveryState::Outcome(Outcome::Rejected(Rejected { error: None }));
    client.settle(id(&transfer), dead_letter).await;
    client.receiver(1, "q/$DeadLetterQueue", LOCKED).await.unwrap();
    client.credit(1, 0, 3, false).await;
    let (transfer, content) = client.message().await;
    assert_eq!(content.sections().header.last_chunk(), Some(&[0x43]), "no delivery has failed");
    client.say_of(id(&transfer), modified(false), false).await;
    // The answer and the redelivery, in any order.
    let mut again = None;
    for _ in 0..2 {
        match client.next_frame().await {
            (Performative::Transfer(transfer), payload) => again = Some((transfer, payload)),
            (Performative::Disposition(_), _) => {}
            other => panic!("{other:?}"),
        }
    }
    let (_, payload) = again.unwrap();
    let content = Content::parse(payload).unwrap();
    assert_eq!(content.sections().header.last_chunk(), Some(&[0x43]), "after an abandon");
    server.clock.advance(TimeSpan::from_minutes(1));
    let (transfer, content) = client.message().await;
    assert_eq!(content.sections().header.last_chunk(), Some(&[0x43]), "after the end of a lock");
    client.settle(id(&transfer), modified(true)).await;
    let entity = server.broker.entity("q/$DeadLetterQueue").unwrap();
    let peek = Command::Peek { from: SequenceNumber(0), count_max: 1 };
    let Answered::Peeked(peeked) = entity.call(peek).await.unwrap() else { panic!() };
    assert_eq!(peeked[0].facts.delivery_count, 0, "after a deferral");
    server.stop().await;
}

/// PEK-05, AMQP-56: a scheduled message keeps that state when it is enqueued.
#[tokio::test]
async fn scheduled_message_keeps_its_state() {
    let (server, mut client) = receiving(&["now"]).await;
    let due = server.now().plus(TimeSpan::from_minutes(5));
    let message = Message::new("later").with_scheduled_enqueue_time(due);
    let message = server.broker.inbound(message);
    let entity = server.broker.entity("q").unwrap();
    entity.call(Command::Send { message }).await.unwrap();
    server.clock.advance(TimeSpan::from_minutes(5));
    client.credit(0, 0, 2, false).await;
    for (body, state) in [("now", None), ("later", Some(2))] {
        let (_, content) = client.message().await;
        assert_eq!(content.body_bytes(), body);
        let shown = crate::management::annotation(&content, "x-opt-message-state");
        let shown = match shown.as_ref().map(Raw::scalar) {
            None => None,
            Some(Ok(Scalar::I32(state))) => Some(state),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown, state);
    }
    server.stop().await;
}

/// EXP-34, EXP-35: a drain is answered after the messages that it finds expired are dead-lettered.
#[tokio::test]
async fn drain_waits_for_messages_that_it_expires() {
    let store = FaultStore::at_once(1, u64::MAX);
    let builder = Broker::builder().store(Arc::clone(&store) as _);
    let queue =
        QueueUpdate { dead_lettering_on_message_expiration: Some(true), ..QueueUpdate::default() };
    let server = Server::start_as(builder, queue, |_| {}).await;
    let message = Message::new("a").with_time_to_live(TimeSpan::from_seconds(1));
    let message = server.broker.inbound(message);
    server.broker.entity("q").unwrap().call(Command::Send { message }).await.unwrap();
    server.clock.advance(TimeSpan::from_seconds(2));
    let mut client = server.client().await;
    store.complete_at_once(false);
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 1, true).await;
    while store.queued(Shard(0)) == 0 {
        tokio::task::yield_now().await;
    }
    // An answer that did not wait would come before this one.
    client.coordinator().await;
    store.complete_at_once(true);
    while store.complete_next(Shard(0), Fate::Store) {}
    let (Performative::Flow(flow), _) = client.next_frame().await else { panic!() };
    assert_eq!(flow.link_credit, Some(0));
    assert_eq!(server.dead_letters().await.len(), 1);
    server.stop().await;
}

/// SET-22: deliveries are not resumed: unsettled deliveries in an `attach` are ignored.
#[tokio::test]
async fn unsettled_map_of_attach_is_ignored() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    let tag = Raw::encoded(|bytes| Value::from("tag").encode_to(bytes));
    let attach = Attach {
        unsettled: Some(Map::of_symbols([("tag", tag)])),
        ..Client::receiver_of(0, "q", LOCKED)
    };
    let answer = client.attach_receiver(attach).await.unwrap();
    assert_eq!(answer.unsettled, None);
    client.credit(0, 0, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes(), "a");
    server.stop().await;
}

/// AMQP-62, AMQP-68: a disposition of a settled delivery has no effect. A disposition of an unknown
/// delivery is answered only if an answer is due.
#[tokio::test]
async fn a_delivery_is_settled_once() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    client.message().await;
    let released = DeliveryState::Outcome(Outcome::Released);
    client.say_of(0, DeliveryState::accepted(), false).await;
    assert_eq!(client.disposed().await, (0, DeliveryState::accepted()));
    client.say_of(0, released.clone(), true).await;
    client.say_of(9, released, true).await;
    let unknown = client.settle(8, DeliveryState::accepted()).await;
    assert_eq!(crate::sending::condition(&unknown), "com.microsoft:message-lock-lost");
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// AMQP-65: after a client settles a delivery without an outcome, the lock continues. Nobody gets
/// the message before the lock ends, which is counted.
#[tokio::test]
async fn the_lock_of_a_forgotten_delivery_runs_on() {
    let (server, mut client) = receiving(&["a"]).await;
    client.credit(0, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let forgotten = Disposition {
        role: Role::Receiver,
        first: id(&transfer),
        settled: true,
        ..Disposition::default()
    };
    client.send_frame(&Performative::Disposition(forgotten)).await;
    // A drain ends after all available messages, and there are none.
    client.credit(0, 1, 1, true).await;
    assert!(matches!(client.next_frame().await, (Performative::Flow(_), _)));
    assert_eq!(server.delivery_counts().await, [0]);
    server.clock.advance(TimeSpan::from_seconds(59));
    client.credit(0, 2, 1, true).await;
    assert!(matches!(client.next_frame().await, (Performative::Flow(_), _)));
    client.credit(0, 3, 1, false).await;
    server.clock.advance(TimeSpan::from_seconds(1));
    assert_eq!(client.message().await.1.body_bytes(), "a");
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// AMQ-12: the type of entity in an `attach` is ignored, unless it is the number of another type.
#[tokio::test]
async fn the_type_of_an_entity_may_be_anything() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    let mut client = server.client().await;
    let types = [Value::I32(0), Value::String("topic".into()), Value::Bool(true), Value::Null];
    for (handle, value) in (0..).zip(types) {
        let value = Raw::encoded(|bytes| value.encode_to(bytes));
        let properties = Some(Map::of_symbols([("com.microsoft:entity-type", value)]));
        let sender = Client::sender_of(2 * handle, "q");
        let sender = Attach { properties: properties.clone(), ..sender };
        client.attach_sender(sender).await.unwrap();
        let receiver = Client::receiver_of(2 * handle + 1, "q", LOCKED);
        client.attach_receiver(Attach { properties, ..receiver }).await.unwrap();
    }
    client.credit(1, 0, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes(), "a");
    server.stop().await;
}

/// AMQ-18, EXP-01: an expiring message is delivered with its expiry; a message that does not expire
/// has none.
#[tokio::test]
async fn delivery_has_its_expiry() {
    let (server, mut client) = receiving(&["lasting"]).await;
    client.sender(1, "q").await.unwrap();
    let message = Message::new("a").with_time_to_live(TimeSpan::from_seconds(90));
    client.send(1, 0, true, message.encode().as_bytes()).await;
    let sent_at = server.clock.now();
    client.credit(0, 0, 2, false).await;
    let expiry = |content: &Content| {
        let properties = Bytes::copy_from_slice(content.sections().properties);
        let mut reader = Reader::new(&properties);
        reader.section().unwrap();
        let (count, mut fields) = reader.list().unwrap();
        let fields: Vec<_> = (0..count).map(|_| fields.raw().unwrap()).collect();
        match Reader::new(fields.get(8)?).scalar() {
            Ok(Scalar::Timestamp(at)) => Some(at),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(expiry(&client.message().await.1), None);
    let at = sent_at.plus(TimeSpan::from_seconds(90)).unix_ms();
    assert_eq!(expiry(&client.message().await.1), Some(at));
    server.stop().await;
}

/// AMQP-34: the maximum size that a receiver announces is not enforced, since some announce less
/// than they take.
#[tokio::test]
async fn a_receiver_is_sent_more_than_it_announces() {
    let server = Server::start().await;
    server.put(&[&"x".repeat(5_000)]).await;
    let mut client = server.client().await;
    let attach = Client::receiver_of(0, "q", SenderSettleMode::Unsettled);
    let attach = peeklock_amqp::performative::Attach { max_message_size: Some(1_024), ..attach };
    client.attach_receiver(attach).await.unwrap();
    client.credit(0, 0, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes().len(), 5_000);
    server.stop().await;
}

/// AMQP-60, EXP-01: a client drops an expired message from its buffer with a settled `modified` and
/// undeliverable-here. The message then ends as expired, even if its lock has time left. Before its
/// expiry this is a deferral.
#[tokio::test]
async fn an_expired_message_that_is_dropped_ends_as_expired() {
    let update = QueueUpdate {
        dead_lettering_on_message_expiration: Some(true),
        lock_duration: Some(TimeSpan::from_seconds(300)),
        ..QueueUpdate::default()
    };
    for (seconds, deferred, dead) in [(89, 1, 0), (91, 0, 1)] {
        let server = Server::start().await;
        server.broker.delete_entity("q").await.unwrap();
        server.broker.create_queue("q", update.clone()).await.unwrap();
        let mut client = server.client().await;
        client.sender(1, "q").await.unwrap();
        let message = Message::new("a").with_time_to_live(TimeSpan::from_seconds(90));
        client.send(1, 0, false, message.encode().as_bytes()).await;
        client.disposed().await;
        client.receiver(0, "q", LOCKED).await.unwrap();
        client.credit(0, 0, 1, false).await;
        let (transfer, _) = client.message().await;
        server.clock.advance(TimeSpan::from_seconds(seconds));
        client.settle_for_good(id(&transfer), modified(true)).await;
        // A receive finds expired messages.
        client.credit(0, 1, 1, true).await;
        assert!(matches!(client.next_frame().await, (Performative::Flow(_), _)));
        let counts = server.counts().await;
        assert_eq!((counts.deferred, counts.dead_letter), (deferred, dead), "after {seconds} s");
        server.stop().await;
    }
}

/// AMQP-56, AMQ-18, AMQ-19: a message whose time to live exceeds 32 bits of milliseconds has the
/// maximum in its header, next to the two instants whose difference is the time to live. Without
/// the header some clients take it for expired.
#[tokio::test]
async fn long_time_to_live_is_sent() {
    let (server, mut client) = receiving(&[]).await;
    client.sender(1, "q").await.unwrap();
    let long = TimeSpan::from_seconds(60 * 86_400);
    let message = Message::new("a").with_time_to_live(long);
    client.send(1, 0, true, message.encode().as_bytes()).await;
    client.credit(0, 0, 1, false).await;
    let (_, content) = client.message().await;
    let header = content.sections().header;
    assert!(header.windows(5).any(|part| part == [0x70, 0xff, 0xff, 0xff, 0xff]), "{header:?}");
    assert_eq!(content.decode().unwrap().time_to_live, Some(long));
    server.stop().await;
}

/// DESIGN D8: a content that the store reads slowly delays only its link. Another link of the
/// session gets its deliveries meanwhile, and requests of the connection are answered.
#[tokio::test]
async fn a_slow_read_holds_up_one_link() {
    let store = FaultStore::at_once(1, u64::MAX);
    let server = Server::start_over(Arc::clone(&store) as _).await;
    server.put(&["a", "b"]).await;
    store.hold_reads();
    let mut client = server.client().await;
    for handle in [0, 1] {
        client.receiver(handle, "q", LOCKED).await.unwrap();
    }
    for (handle, reads) in [(0, 1), (1, 2)] {
        client.credit(handle, 0, 1, false).await;
        while store.held_read_count() < reads {
            tokio::task::yield_now().await;
        }
    }
    for (read, handle, body) in [(1, 1, "b"), (0, 0, "a")] {
        assert!(store.let_read(read));
        let (transfer, content) = client.message().await;
        assert_eq!((transfer.handle, content.body_bytes()), (handle, Bytes::from(body)));
        // The next frame is the answer to this.
        let accepted = DeliveryState::accepted();
        assert_eq!(client.settle(id(&transfer), accepted.clone()).await, accepted);
        client.sender(2 + handle, "q").await.unwrap();
    }
    server.stop().await;
}

/// RCV-31, AMQP-79: while the store cannot load contents, a link is detached with `detach-forced`,
/// after which SDKs attach again. The next delivery is the first one that counts.
#[tokio::test]
async fn unavailable_contents_detach_a_link_without_a_count() {
    let store = FaultStore::at_once(1, u64::MAX);
    let server = Server::start_over(Arc::clone(&store) as _).await;
    server.put(&["a"]).await;
    store.hold_reads();
    let mut client = server.client().await;
    for handle in [0, 1] {
        client.receiver(handle, "q", LOCKED).await.unwrap();
        client.credit(handle, 0, 1, false).await;
        while store.held_read_count() == 0 {
            tokio::task::yield_now().await;
        }
        if handle == 0 {
            assert!(store.refuse_read(0));
            assert_eq!(client.detached().await, "amqp:link:detach-forced");
            assert_eq!(server.delivery_counts().await, [0]);
            continue;
        }
        assert!(store.let_read(0));
        let (transfer, content) = client.message().await;
        assert_eq!((transfer.handle, content.body_bytes()), (1, Bytes::from("a")));
    }
    server.stop().await;
}

/// CON-24, CON-25: a client is listed with its address, its name and the numbers of its link until
/// it disconnects; its lock names it afterwards.
#[tokio::test]
async fn client_is_listed_with_its_link_until_it_disconnects() {
    let (server, mut client) = receiving(&["a", "b", "c"]).await;
    client.credit(0, 0, 5, false).await;
    for _ in 0..3 {
        client.message().await;
    }
    assert_eq!(client.settle(0, DeliveryState::accepted()).await, DeliveryState::accepted());
    let query = ClientQuery { count_max: 10, ..ClientQuery::default() };
    let page = server.broker.clients(&query).await;
    let [listed] = &page.clients[..] else { panic!("{page:?}") };
    assert_eq!((&*listed.transport, listed.name.as_deref()), ("amqp", Some("client")));
    assert!(listed.peer.is_some() && !listed.is_by_proxy);
    let [link] = &listed.links[..] else { panic!("{listed:?}") };
    assert_eq!((&*link.path, link.role), ("q", LinkRole::Receiver));
    assert_eq!((link.credit, link.delivered, link.unsettled), (2, 3, 2));
    client.detach(0).await;
    assert!(server.broker.clients(&query).await.clients[0].links.is_empty());
    drop(client);
    while server.broker.clients(&query).await.total > 0 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
}
