//! Tests of settlements that the broker refuses: each is logged with its reason, and the message
//! does not stay locked.

use std::sync::Arc;

use peeklock_client::{
    Client, ConsumerOptions, Delivery, Received, Refusal, SessionConsumerOptions, SessionDelivery,
};
use peeklock_client_testing::TestBroker;
use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::message::{Message, Value};
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::{Semaphore, mpsc};

use crate::log::Log;

const REFUSED: &str = "a settlement was refused";

fn text(message: &Received) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}

/// Returns a refusal that no broker accepts, for the first attempt of a message that demands it.
fn asked_for(message: &Received) -> Result<(), Refusal> {
    match (text(message).as_str(), message.delivery_count()) {
        ("later", 1) => Err(Refusal::retry_after(TimeSpan::from_days(8))),
        ("large", 1) => {
            let properties = vec![("why".to_owned(), Value::from("x".repeat(1 << 20)))];
            Err(Refusal::Abandon { properties })
        }
        _ => Ok(()),
    }
}

const ATTEMPTS: [(&str, u32); 5] =
    [("later", 1), ("later", 2), ("large", 1), ("large", 2), ("last", 1)];

fn are_logged(log: &Log, path: &str) {
    for (condition, sequence) in [("ArgumentOutOfRange", 1), ("MessageSizeExceeded", 2)] {
        let line = log.line(&format!("condition={condition}"));
        let path = format!("path=\"{path}\"");
        let expected = ["WARN", REFUSED, &path, &format!("sequence_number={sequence} ")];
        assert!(expected.iter().all(|part| line.contains(part)), "{line}");
    }
}

/// RTY-02, SET-03, SES-20: in a session a message is abandoned if its settlement is refused, and
/// the consumer continues.
#[tokio::test]
async fn a_refused_settlement_does_not_end_a_session_consumer() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    client.admin().create_queue_with("steps", sessions).await.unwrap();
    let (log, _guard) = Log::begin();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |step: SessionDelivery| {
        seen.send((text(&step), step.delivery_count())).unwrap();
        async move { asked_for(&step) }
    };
    let options = SessionConsumerOptions::at_once(1);
    let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
    for body in ["later", "large", "last"] {
        let message = Message::new(body).with_session_id("a");
        client.sender("steps").unwrap().send(message).await.unwrap();
    }
    for (body, count) in ATTEMPTS {
        assert_eq!(arrivals.recv().await, Some((body.to_owned(), count)));
    }
    test.idle().await;
    assert!(futures_util::poll!(std::pin::pin!(consumer.ended())).is_pending());
    are_logged(&log, "steps");
    consumer.stop().await;
    assert_eq!(client.admin().queue("steps").await.unwrap().counts.total(), 0);
}

/// RTY-02, SET-03: the same holds without sessions.
#[tokio::test]
async fn a_refused_settlement_is_logged_and_the_message_abandoned() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    client.admin().create_queue("orders").await.unwrap();
    let (log, _guard) = Log::begin();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |order: Delivery| {
        seen.send((text(&order), order.delivery_count())).unwrap();
        async move { asked_for(&order) }
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::at_once(1)).await.unwrap();
    for body in ["later", "large", "last"] {
        client.sender("orders").unwrap().send(Message::new(body)).await.unwrap();
    }
    let mut attempts = Vec::new();
    while attempts.len() < ATTEMPTS.len() {
        attempts.push(arrivals.recv().await.unwrap());
    }
    // Deliveries may overlap, so compare without order.
    attempts.sort();
    let mut expected = ATTEMPTS.map(|(body, count)| (body.to_owned(), count));
    expected.sort();
    assert_eq!(attempts, expected);
    consumer.stop().await;
    are_logged(&log, "orders");
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
}

/// Returns a client of a broker with a manual clock, which does not wait for the broker to be idle.
async fn client(queue: &str, requires_session: bool) -> (Arc<ManualClock>, Broker, Client) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let broker =
        Broker::builder().clock(Arc::clone(&clock) as _).arbiters(1).start().await.unwrap();
    let client = Client::new(&broker);
    let sessions =
        QueueUpdate { requires_session: Some(requires_session), ..QueueUpdate::default() };
    client.admin().create_queue_with(queue, sessions).await.unwrap();
    (clock, broker, client)
}

/// SET-25: a settlement after the end of the lock of a message or of a session is logged, because
/// the work may be done twice.
#[tokio::test]
async fn a_late_settlement_is_logged() {
    for (is_session, condition) in [(false, "MessageLockLost"), (true, "SessionLockLost")] {
        let (clock, broker, client) = client("orders", is_session).await;
        let (log, _guard) = Log::begin();
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let work = {
            let gate = Arc::clone(&gate);
            move |count: u32| {
                seen.send(count).unwrap();
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok(())
                }
            }
        };
        let message = Message::new("a").with_session_id("s");
        client.sender("orders").unwrap().send(message).await.unwrap();
        let consumer = if is_session {
            let handler = move |step: SessionDelivery| work(step.delivery_count());
            client
                .consume_sessions("orders", handler, SessionConsumerOptions::at_once(1))
                .await
                .unwrap()
        } else {
            let handler = move |order: Delivery| work(order.delivery_count());
            client.consume("orders", handler, ConsumerOptions::at_once(1)).await.unwrap()
        };
        assert_eq!(arrivals.recv().await, Some(1));
        clock.advance(TimeSpan::from_seconds(61));
        // Any request makes the entity notice that the lock has expired.
        assert!(client.receiver("orders").unwrap().peek(Default::default(), 1).await.is_ok());
        gate.add_permits(1);
        assert_eq!(arrivals.recv().await, Some(2));
        gate.add_permits(1);
        consumer.stop().await;
        let line = log.line(REFUSED);
        // The log names the usual cause: a handler that blocked its thread.
        let expected =
            ["WARN", "spawn_blocking", condition, "path=\"orders\"", "sequence_number=1 "];
        assert!(expected.iter().all(|part| line.contains(part)), "{line}");
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }
}

/// A message that its handler has already settled causes no log line.
#[tokio::test]
async fn already_settled_messages_are_not_logged() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    client.admin().create_queue("orders").await.unwrap();
    let (log, _guard) = Log::begin();
    let other = Arc::new(client.receiver("orders").unwrap());
    let handler = move |order: Delivery| {
        let other = Arc::clone(&other);
        async move {
            other.complete(&order).await?;
            Err(Refusal::AlreadySettled)
        }
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    test.idle().await;
    consumer.stop().await;
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
    assert_eq!(log.text(), "");
}

/// A channel for the handler's start and for the result of its settlement, and a gate that lets it
/// continue.
type Desk = (mpsc::UnboundedSender<Option<Result<(), Condition>>>, Arc<Semaphore>);

async fn awaited(
    (told, gate): Desk,
    settling: impl Future<Output = Result<(), BrokerError>>,
) -> Result<(), Refusal> {
    told.send(None).unwrap();
    gate.acquire().await.unwrap().forget();
    told.send(Some(settling.await.map_err(|error| error.condition()))).unwrap();
    Err(Refusal::already_settled())
}

fn bad() -> Refusal {
    Refusal::dead_letter("Bad", "as asked")
}

/// SET-01, SET-05, SET-25: a handler that awaits the settlement of its message gets the result,
/// also if it came too late, and also in a session. The log does not repeat it.
#[tokio::test]
async fn a_handler_awaits_its_settlement() {
    for (is_session, lost) in
        [(false, Condition::MessageLockLost), (true, Condition::SessionLockLost)]
    {
        let (clock, broker, client) = client("orders", is_session).await;
        let (log, _guard) = Log::begin();
        let (told, mut answers) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let desk: Desk = (told, Arc::clone(&gate));
        let consumer = if is_session {
            let handler = move |step: SessionDelivery| {
                let desk = desk.clone();
                async move {
                    if text(&step) == "bad" {
                        return awaited(desk, step.refuse(bad())).await;
                    }
                    awaited(desk, step.complete()).await
                }
            };
            let options = SessionConsumerOptions::at_once(1);
            client.consume_sessions("orders", handler, options).await.unwrap()
        } else {
            let handler = move |order: Delivery| {
                let desk = desk.clone();
                async move {
                    if text(&order) == "bad" {
                        return awaited(desk, order.refuse(bad())).await;
                    }
                    awaited(desk, order.complete()).await
                }
            };
            client.consume("orders", handler, ConsumerOptions::at_once(1)).await.unwrap()
        };
        let sender = client.sender("orders").unwrap();
        for body in ["good", "bad", "late"] {
            sender.send(Message::new(body).with_session_id("s")).await.unwrap();
            assert_eq!(answers.recv().await, Some(None), "{body} has begun");
            if body == "late" {
                assert_eq!(log.text(), "");
                clock.advance(TimeSpan::from_seconds(61));
                // Any request makes the entity notice that the lock has expired.
                let receiver = client.receiver("orders").unwrap();
                assert!(receiver.peek(Default::default(), 1).await.is_ok());
                gate.add_permits(1);
                assert_eq!(answers.recv().await, Some(Some(Err(lost))), "it is too late");
                assert_eq!(answers.recv().await, Some(None), "it comes again");
            }
            gate.add_permits(1);
            assert_eq!(answers.recv().await, Some(Some(Ok(()))), "{body}");
        }
        consumer.stop().await;
        let counts = client.admin().queue("orders").await.unwrap().counts;
        assert_eq!((counts.active, counts.dead_letter), (0, 1));
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }
}

/// DLQ-07, RTY-05, SET-38: a dead letter cannot be dead-lettered again. If a handler demands it,
/// the message does not stay locked; it is delivered again after a while.
#[tokio::test]
async fn a_refused_dead_lettering_delays_the_dead_letter() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    let lock =
        QueueUpdate { lock_duration: Some(TimeSpan::from_minutes(5)), ..QueueUpdate::default() };
    client.admin().create_queue_with("orders", lock).await.unwrap();
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    let receiver = client.receiver("orders").unwrap();
    let message = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    receiver.dead_letter(&message, Some("Bad"), None, &[]).await.unwrap();
    let (log, _guard) = Log::begin();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |letter: Delivery| {
        seen.send(letter.delivery_count()).unwrap();
        async { Err(Refusal::dead_letter("Worse", "as asked")) }
    };
    let path = dead_letter_path("orders");
    let consumer = client.consume(&path, handler, ConsumerOptions::default()).await.unwrap();
    test.idle().await;
    let first = arrivals.try_recv().unwrap();
    let line = log.line(REFUSED);
    let path = "path=\"orders/$deadletterqueue\"";
    let expected = ["WARN", "condition=InvalidOperation", path, "sequence_number=1 "];
    assert!(expected.iter().all(|part| line.contains(part)), "{line}");
    test.advance(TimeSpan::from_seconds(59)).await;
    assert!(arrivals.try_recv().is_err(), "not at once");
    test.advance(TimeSpan::from_seconds(1)).await;
    // SET-38: a dead-letter queue does not count deliveries.
    assert_eq!(arrivals.try_recv().unwrap(), first);
    consumer.stop().await;
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.dead_letter, 1);
}
