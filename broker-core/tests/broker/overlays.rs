//! Properties that settlements set on messages use memory and disk: their number is bounded for a
//! message and for the broker, and they count in the size of their queue.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, LAST_ERROR_PROPERTY, Outcome, ReceivedMessage, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use peeklock_core::limits::{Limits, OVERLAY_BYTES};
use peeklock_core::message::{Message, Overlay, Value};
use peeklock_core::store::memory::MemoryStore;
use peeklock_core::time::TimeSpan;

const DEAD_LETTERS: &str = "orders/$deadletterqueue";

/// Starts a broker on this store, and creates the queue if it does not exist.
async fn broker(store: &Arc<MemoryStore>, adjust: impl FnOnce(&mut Limits)) -> Broker {
    let mut settings = Settings::default();
    adjust(&mut settings.limits);
    let builder = Broker::builder().settings(settings).store(Arc::clone(store) as _);
    let broker = builder.arbiters(1).start().await.unwrap();
    if broker.queue_paths(0, 1).is_empty() {
        let update = QueueUpdate { max_delivery_count: Some(100), ..QueueUpdate::default() };
        broker.create_queue("orders", update).await.unwrap();
    }
    broker
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(1, u64::MAX))
}

async fn send(broker: &Broker) -> Result<Outcome, BrokerError> {
    let message = broker.inbound(Message::new("x"));
    broker.entity("orders").unwrap().call(Command::Send { message }).await
}

async fn receive(broker: &Broker, from: &str) -> (LockToken, ReceivedMessage) {
    let command = crate::receive::under_lock(1, TimeSpan::ZERO);
    let outcome = broker.entity(from).unwrap().call(command).await.unwrap();
    let Outcome::Received(mut received) = outcome else { panic!("{outcome:?}") };
    let received = received.remove(0);
    (received.facts.lock.unwrap().token, received)
}

async fn settle(
    broker: &Broker,
    of: &str,
    token: LockToken,
    settlement: Settlement,
) -> Result<Outcome, BrokerError> {
    broker.entity(of).unwrap().call(Command::Settle { token, settlement }).await
}

/// One property with this number.
fn property(number: i32) -> Option<Overlay> {
    Some(Overlay::encode(&[(format!("p{number}"), Value::I32(number))]).unwrap())
}

const fn abandon(properties: Option<Overlay>) -> Settlement {
    Settlement::Abandon { properties, delay: None }
}

/// Abandons the only message `times` times, each time with another property.
async fn abandon_often(broker: &Broker, times: i32) {
    for number in 0..times {
        let (token, _) = receive(broker, "orders").await;
        settle(broker, "orders", token, abandon(property(number))).await.unwrap();
    }
}

fn refused(result: Result<Outcome, BrokerError>, condition: Condition, limit: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.condition(), condition);
    assert!(error.detail().contains(limit), "{error}");
    assert!(error.detail().contains("without properties"), "the way out: {error}");
}

async fn size(broker: &Broker) -> u64 {
    broker.describe_queue("orders").await.unwrap().size_bytes
}

/// SET-41, QUO-01: properties are set on a message up to the limit. The next settlement with
/// properties is refused and the lock stays; the message can be abandoned and deferred without
/// properties, and dead-lettered with more, any number of times.
#[tokio::test]
async fn properties_are_set_on_a_message_up_to_the_limit() {
    let broker = broker(&store(), |limits| limits.message_overlay_count_max = 2).await;
    send(&broker).await.unwrap();
    abandon_often(&broker, 2).await;
    let (token, _) = receive(&broker, "orders").await;
    for settlement in [abandon(property(2)), Settlement::Defer { properties: property(2) }] {
        let answer = settle(&broker, "orders", token, settlement).await;
        refused(answer, Condition::MessageSizeExceeded, "`message_overlay_count_max` is 2");
    }
    settle(&broker, "orders", token, abandon(None)).await.unwrap();
    let (token, _) = receive(&broker, "orders").await;
    let dead_letter = Settlement::DeadLetter { properties: property(3) };
    settle(&broker, "orders", token, dead_letter).await.unwrap();
    let (token, dead) = receive(&broker, DEAD_LETTERS).await;
    let message = dead.load().await.unwrap().message;
    let names: Vec<_> = message.application_properties.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["p0", "p1", "p3"]);
    let answer = settle(&broker, DEAD_LETTERS, token, abandon(property(4))).await;
    refused(answer, Condition::MessageSizeExceeded, "`message_overlay_count_max` is 2");
    settle(&broker, DEAD_LETTERS, token, Settlement::Complete).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SET-41, CNT-08: the size of a queue includes the properties set on its messages and a record for
/// each set, also after a restart, and no longer after the message is removed.
#[tokio::test]
async fn set_properties_count_in_the_size_of_a_queue() {
    let store = store();
    let broker = broker(&store, |_| ()).await;
    send(&broker).await.unwrap();
    let bare = size(&broker).await;
    abandon_often(&broker, 5).await;
    let set: u64 = (0..5).map(|number| u64::from(property(number).unwrap().size_bytes())).sum();
    let whole = bare + set + 5 * u64::from(OVERLAY_BYTES);
    assert_eq!(size(&broker).await, whole);
    broker.stop(Duration::ZERO).await.unwrap();
    let broker = self::broker(&store, |_| ()).await;
    assert_eq!(size(&broker).await, whole);
    let (token, received) = receive(&broker, "orders").await;
    assert_eq!(u64::from(received.facts.size), whole);
    settle(&broker, "orders", token, Settlement::Complete).await.unwrap();
    assert_eq!(size(&broker).await, 0);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SET-41: a message on which properties were set more often than a lowered limit allows is opened,
/// delivered with all properties, and settled.
#[tokio::test]
async fn a_message_over_a_lowered_overlay_limit_is_delivered_and_settled() {
    let store = store();
    let broker = broker(&store, |_| ()).await;
    send(&broker).await.unwrap();
    abandon_often(&broker, 5).await;
    broker.stop(Duration::ZERO).await.unwrap();
    let broker = self::broker(&store, |limits| limits.message_overlay_count_max = 1).await;
    let (token, received) = receive(&broker, "orders").await;
    let message = received.load().await.unwrap().message;
    assert_eq!(message.application_properties.len(), 5);
    let answer = settle(&broker, "orders", token, abandon(property(5))).await;
    refused(answer, Condition::MessageSizeExceeded, "`message_overlay_count_max`");
    let dead_letter = Settlement::DeadLetter { properties: None };
    settle(&broker, "orders", token, dead_letter).await.unwrap();
    let (token, _) = receive(&broker, DEAD_LETTERS).await;
    settle(&broker, DEAD_LETTERS, token, Settlement::Complete).await.unwrap();
    assert_eq!(size(&broker).await, 0);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SET-41, QUO-08: sets of properties count like messages over the whole broker. At the limit sends
/// and sets are refused, settlements without properties succeed, and removed messages make room.
#[tokio::test]
async fn set_properties_count_as_messages_of_the_broker() {
    let broker = broker(&store(), |limits| limits.broker_message_count_max = 3).await;
    send(&broker).await.unwrap();
    abandon_often(&broker, 2).await;
    assert_eq!(send(&broker).await.unwrap_err().condition(), Condition::QuotaExceeded);
    let (token, _) = receive(&broker, "orders").await;
    let answer = settle(&broker, "orders", token, abandon(property(2))).await;
    refused(answer, Condition::QuotaExceeded, "`broker_message_count_max`");
    settle(&broker, "orders", token, abandon(None)).await.unwrap();
    let (token, _) = receive(&broker, "orders").await;
    settle(&broker, "orders", token, Settlement::Complete).await.unwrap();
    send(&broker).await.unwrap();
    abandon_often(&broker, 2).await;
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Properties of an abandon with an error of this length, and the given others.
fn error(length: usize, others: &[&str]) -> Option<Overlay> {
    let mut properties = vec![(LAST_ERROR_PROPERTY.to_owned(), Value::String("e".repeat(length)))];
    properties.extend(others.iter().map(|key| ((*key).to_owned(), Value::Bool(true))));
    Some(Overlay::encode(&properties).unwrap())
}

/// The names and values of the properties of a message.
async fn properties(received: &ReceivedMessage) -> Vec<(String, String)> {
    let message = received.load().await.unwrap().message;
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => format!("{other:?}"),
    };
    message.application_properties.iter().map(|(key, value)| (key.clone(), shown(value))).collect()
}

/// SET-44, DLQ-34: at the limit of sets and of messages of the broker, abandons are carried out
/// without their error; other properties are refused as before. The last attempt has its error.
#[tokio::test]
async fn abandon_drops_error_that_has_no_room() {
    for adjust in [
        (|limits: &mut Limits| limits.message_overlay_count_max = 2) as fn(&mut Limits),
        |limits| limits.broker_message_count_max = 3,
    ] {
        let broker = broker(&store(), adjust).await;
        let four = QueueUpdate { max_delivery_count: Some(4), ..QueueUpdate::default() };
        broker.update_queue("orders", four, None).await.unwrap();
        send(&broker).await.unwrap();
        for length in [10, 20, 30] {
            let (token, _) = receive(&broker, "orders").await;
            if length == 30 {
                let refused =
                    settle(&broker, "orders", token, abandon(error(30, &["other"]))).await;
                refused.unwrap_err();
            }
            settle(&broker, "orders", token, abandon(error(length, &[]))).await.unwrap();
        }
        let (token, last) = receive(&broker, "orders").await;
        assert_eq!(properties(&last).await, [(LAST_ERROR_PROPERTY.into(), "e".repeat(20))]);
        settle(&broker, "orders", token, abandon(error(40, &[]))).await.unwrap();
        let (token, dead) = receive(&broker, DEAD_LETTERS).await;
        let [property, _, (_, description)] = &properties(&dead).await[..] else { panic!() };
        assert_eq!(*property, (LAST_ERROR_PROPERTY.into(), "e".repeat(40)));
        assert!(description.starts_with(&format!("{}; the message", "e".repeat(40))));
        settle(&broker, DEAD_LETTERS, token, Settlement::Complete).await.unwrap();
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// SET-44, DLQ-34: an error leaves 4,096 bytes of the header free, exactly; the last attempt fits
/// with its description. A header without that room gets neither, and the abandon succeeds.
#[tokio::test]
async fn abandon_leaves_room_in_header_for_last_error() {
    let broker = broker(&store(), |_| ()).await;
    let two = QueueUpdate { max_delivery_count: Some(2), ..QueueUpdate::default() };
    broker.update_queue("orders", two, None).await.unwrap();
    let set = u64::from(error(1_000, &[]).unwrap().size_bytes());
    let header_max = Limits::default().header_bytes_max;
    // Free bytes of the header, whether the first error is kept, and whether the last is described.
    for (free, is_kept, is_described) in [
        (4_096 + set, true, true),
        (4_096 + set - 1, false, true),
        (set + 1_000 + 512, false, true),
        (set + 1_000 + 511, false, false),
        (set, false, false),
        (0, false, false),
    ] {
        let filled = |length: usize| {
            // Properties have at most 32 KiB each.
            Message::new("x")
                .with_application_property("a", "a".repeat(25_000))
                .with_application_property("b", "b".repeat(25_000))
                .with_application_property("c", "c".repeat(length))
        };
        let header = |length| u64::from(broker.inbound(filled(length)).envelope.header_size);
        let length = usize::try_from(header_max - free - header(1_000)).unwrap() + 1_000;
        assert_eq!(header(length), header_max - free);
        let message = broker.inbound(filled(length));
        broker.entity("orders").unwrap().call(Command::Send { message }).await.unwrap();
        for attempt in 1..=2 {
            let (token, received) = receive(&broker, "orders").await;
            let has_error = properties(&received).await.len() == 4;
            assert_eq!(has_error, attempt == 2 && is_kept, "{free}");
            settle(&broker, "orders", token, abandon(error(1_000, &[]))).await.unwrap();
        }
        let (token, dead) = receive(&broker, DEAD_LETTERS).await;
        let properties = properties(&dead).await;
        let (_, description) = properties.last().unwrap();
        assert_eq!(description.starts_with("eee"), is_described, "{free}: {description}");
        let has_property = properties.iter().any(|(key, _)| key == LAST_ERROR_PROPERTY);
        assert_eq!(has_property, free >= set, "{free}");
        settle(&broker, DEAD_LETTERS, token, Settlement::Complete).await.unwrap();
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DLQ-34: with a lower limit of descriptions, the error is described as long as it fits.
#[tokio::test]
async fn error_over_limit_of_description_is_not_described() {
    let broker = broker(&store(), |limits| limits.dead_letter_description_chars_max = 100).await;
    let one = QueueUpdate { max_delivery_count: Some(1), ..QueueUpdate::default() };
    broker.update_queue("orders", one, None).await.unwrap();
    let plain = "the message was not consumed after 1 delivery attempts, the maximum is 1";
    let room = 100 - plain.len() - "; ".len();
    for (length, is_described) in [(room, true), (room + 1, false)] {
        send(&broker).await.unwrap();
        let (token, _) = receive(&broker, "orders").await;
        settle(&broker, "orders", token, abandon(error(length, &[]))).await.unwrap();
        let (token, dead) = receive(&broker, DEAD_LETTERS).await;
        let (_, description) = properties(&dead).await.pop().unwrap();
        assert_eq!(description != plain, is_described, "{description}");
        settle(&broker, DEAD_LETTERS, token, Settlement::Complete).await.unwrap();
    }
    broker.stop(Duration::ZERO).await.unwrap();
}
