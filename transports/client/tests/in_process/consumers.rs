//! Tests of consumers in process: functions and actors, prefetch, restarts and panics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use actix::{Actor, ActorContext, Context, Handler, Supervised, Supervisor};
use futures_util::StreamExt as _;
use peeklock_client::port::Settlement;
use peeklock_client::{
    Client, ConsumerOptions, Delivery, Refusal, RequestError, SessionConsumerOptions,
    SessionDelivery, StateError, json_message,
};
use peeklock_client_testing::{TestDelivery, TestSession};
use peeklock_core::Broker;
use peeklock_core::command::LAST_ERROR_PROPERTY;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::{Message, Value};
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::TimeSpan;
use tokio::sync::{Semaphore, mpsc};

use crate::local::Local;
use crate::log::Log;

async fn client() -> Local {
    let client = Local::new(Broker::builder().arbiters(1).start().await.unwrap());
    client.admin().create_queue("orders").await.unwrap();
    client
}

async fn send(client: &Local, bodies: &[&str]) {
    let sender = client.sender("orders").unwrap();
    for body in bodies {
        sender.send(Message::new((*body).to_owned())).await.unwrap();
    }
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.body().to_vec()).unwrap()
}

/// SET-01, SET-03, SET-05, SET-32, DEF-01: the outcome of a function settles its message, like the
/// outcome of an actor, and a panic abandons it.
#[tokio::test]
async fn the_outcome_of_a_function_settles() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        let (body, count) = (text(&delivery), delivery.delivery_count());
        let is_again = delivery.message().application_property("why").is_some();
        seen.send((body.clone(), count)).unwrap();
        async move {
            let properties = vec![("why".to_owned(), Value::from("busy"))];
            match (body.as_str(), count) {
                ("abandon", 1) => Err(Refusal::Abandon { properties }),
                ("abandon", _) if !is_again => panic!("the property is not there"),
                ("defer", _) => Err(Refusal::Defer),
                ("panic", 1) => panic!("as asked"),
                ("dead-letter", _) => Err(Refusal::DeadLetter {
                    reason: "r".repeat(5_000),
                    description: "as asked".to_owned(),
                }),
                _ => Ok(()),
            }
        }
    };
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", handler, options).await.unwrap();
    send(&client, &["complete", "abandon", "defer", "panic", "dead-letter", "last"]).await;
    let mut order = Vec::new();
    while order.last().is_none_or(|(body, _)| body != "last") {
        order.push(arrivals.recv().await.unwrap());
    }
    consumer.stop().await;
    let expected = [
        ("complete", 1),
        ("abandon", 1),
        ("abandon", 2),
        ("defer", 1),
        ("panic", 1),
        ("panic", 2),
        ("dead-letter", 1),
        ("last", 1),
    ];
    assert!(order.iter().map(|(body, count)| (body.as_str(), *count)).eq(expected), "{order:?}");
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.deferred, counts.dead_letter), (0, 1, 1));
    let dead = client.receiver("orders/$DeadLetterQueue").unwrap();
    let letter = dead.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(
        letter.dead_letter_reason().unwrap().len(),
        4_096,
        "cut to what is allowed (SET-11)"
    );
    client.stop().await;
}

/// RCV-16, RCV-19: in addition to the messages with the handler, exactly the configured number of
/// messages wait locked. When the consumer is stopped, they are released uncounted (RCV-14).
#[tokio::test]
async fn prefetched_messages_wait_locked_and_are_released() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let handler = {
        let gate = Arc::clone(&gate);
        move |delivery: Delivery| {
            seen.send(text(&delivery)).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    };
    send(&client, &["a", "b", "c", "d"]).await;
    let options = ConsumerOptions::at_once(1).with_prefetch(2);
    let consumer = client.consume("orders", handler, options).await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap(), "a");
    let receiver = client.receiver("orders").unwrap();
    let free = receiver.receive_many(9, TimeSpan::ZERO).await.unwrap();
    assert!(free.iter().map(|message| message.body()).eq(["d"]), "two are taken ahead");
    assert!(arrivals.try_recv().is_err(), "one at a time");
    gate.add_permits(1);
    assert_eq!(arrivals.recv().await.unwrap(), "b");
    let stopping = tokio::spawn(async move { consumer.stop().await });
    // Prefetched messages are available again while the handler still has its own.
    let back = receiver.receive(TimeSpan::from_seconds(60)).await.unwrap().unwrap();
    assert_eq!((back.body().as_ref(), back.delivery_count()), (&b"c"[..], 1));
    gate.add_permits(1);
    stopping.await.unwrap();
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!(counts.active, 2, "b is completed, c and d are locked");
    client.stop().await;
}

/// Stops itself for messages that demand it; its supervisor restarts it.
struct Restarted {
    seen: mpsc::UnboundedSender<(String, u32)>,
}

impl Actor for Restarted {
    type Context = Context<Self>;
}

impl Supervised for Restarted {}

impl Handler<Delivery> for Restarted {
    type Result = actix::ResponseActFuture<Self, Result<(), Refusal>>;

    fn handle(&mut self, delivery: Delivery, context: &mut Self::Context) -> Self::Result {
        let (body, count) = (text(&delivery), delivery.delivery_count());
        self.seen.send((body.clone(), count)).unwrap();
        match (body.as_str(), count) {
            ("stop", 1) => context.stop(),
            ("panic", _) => panic!("as asked"),
            _ => {}
        }
        Box::pin(actix::fut::wrap_future(async { Ok(()) }))
    }
}

/// SET-03: an actor restarted by its supervisor continues; its message at that time is abandoned.
#[actix::test]
async fn a_restart_of_a_supervised_actor_does_not_end_its_consumer() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let worker = Supervisor::start(move |_| Restarted { seen });
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", worker.recipient(), options).await.unwrap();
    send(&client, &["a", "stop", "b"]).await;
    let mut order = Vec::new();
    while order.last().is_none_or(|(body, _)| body != "b") {
        order.push(arrivals.recv().await.unwrap());
    }
    let expected = [("a", 1), ("stop", 1), ("stop", 2), ("b", 1)];
    assert!(order.iter().map(|(body, count)| (body.as_str(), *count)).eq(expected), "{order:?}");
    consumer.stop().await;
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
    client.stop().await;
}

impl Handler<SessionDelivery> for Restarted {
    type Result = actix::ResponseActFuture<Self, Result<(), Refusal>>;

    fn handle(&mut self, step: SessionDelivery, context: &mut Self::Context) -> Self::Result {
        let (body, count) = (step.body().to_vec(), step.delivery_count());
        let body = String::from_utf8(body).unwrap();
        self.seen.send((body.clone(), count)).unwrap();
        if (body.as_str(), count) == ("stop", 1) {
            context.stop();
        }
        Box::pin(actix::fut::wrap_future(async { Ok(()) }))
    }
}

/// Creates a session queue with these steps of a session, in order.
async fn steps(client: &Client, bodies: &[&str]) {
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    client.admin().create_queue_with("steps", sessions).await.unwrap();
    let sender = client.sender("steps").unwrap();
    for body in bodies {
        let message = Message::new((*body).to_owned()).with_session_id("s");
        sender.send(message).await.unwrap();
    }
}

/// SES-20: a session continues with the restarted actor, and with the message that the actor had.
#[actix::test]
async fn a_restart_of_a_supervised_actor_does_not_end_its_consumer_of_sessions() {
    let client = client().await;
    steps(&client, &["a", "stop", "b"]).await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let worker = Supervisor::start(move |_| Restarted { seen });
    let options = SessionConsumerOptions::at_once(2);
    let consumer = client.consume_sessions("steps", worker.recipient(), options).await.unwrap();
    for (body, count) in [("a", 1), ("stop", 1), ("stop", 2), ("b", 1)] {
        assert_eq!(arrivals.recv().await, Some((body.to_owned(), count)));
    }
    consumer.stop().await;
    assert!(consumer.ended().await.is_none());
    assert_eq!(client.admin().queue("steps").await.unwrap().counts.total(), 0);
    client.stop().await;
}

/// SES-20, SET-03: a function that panics gets its message again, before later ones.
#[tokio::test]
async fn a_panic_of_a_function_does_not_end_its_consumer_of_sessions() {
    let client = client().await;
    steps(&client, &["a", "panic", "b"]).await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |step: SessionDelivery| {
        let seen = seen.clone();
        async move {
            let body = String::from_utf8(step.body().to_vec()).unwrap();
            seen.send((body.clone(), step.delivery_count())).unwrap();
            assert!(body != "panic" || step.delivery_count() > 1, "as asked");
            Ok(())
        }
    };
    let options = SessionConsumerOptions::at_once(1);
    let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
    for (body, count) in [("a", 1), ("panic", 1), ("panic", 2), ("b", 1)] {
        assert_eq!(arrivals.recv().await, Some((body.to_owned(), count)));
    }
    consumer.stop().await;
    assert_eq!(client.admin().queue("steps").await.unwrap().counts.total(), 0);
    client.stop().await;
}

/// No supervisor survives a panic of its actor: the message is given back, and the consumer ends
/// and reports the reason to waiting callers and in the log.
#[actix::test]
async fn a_panic_of_a_supervised_actor_ends_its_consumer_with_a_reason() {
    let client = client().await;
    let (log, _guard) = Log::begin();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let worker = Supervisor::start(move |_| Restarted { seen });
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", worker.recipient(), options).await.unwrap();
    send(&client, &["a", "panic", "b"]).await;
    assert_eq!(arrivals.recv().await, Some(("a".to_owned(), 1)));
    let why = consumer.ended().await.unwrap();
    assert_eq!(why.condition(), Condition::OperationCancelled);
    let answer = log.line("an actor did not answer");
    assert!(answer.contains("WARN") && answer.contains("sequence_number=2"), "{answer}");
    let end = log.line("a consumer has ended");
    assert!(end.contains("WARN") && end.contains("path=\"orders\""), "{end}");
    let receiver = client.receiver("orders").unwrap();
    let left = receiver.receive_many(9, TimeSpan::ZERO).await.unwrap();
    let left: Vec<_> = left.iter().map(|message| message.delivery_count()).collect();
    assert_eq!(left, [2, 1], "b was given to nobody");
    client.stop().await;
}

/// RCV-10: several callers can wait for the end of a consumer, also while another stops it.
#[tokio::test]
async fn a_consumer_is_stopped_while_others_wait_for_its_end() {
    let client = client().await;
    let consume = || client.consume("orders", done, ConsumerOptions::default());
    let consumer = Arc::new(consume().await.unwrap());
    let waiting = tokio::spawn({
        let consumer = Arc::clone(&consumer);
        async move { consumer.ended().await }
    });
    consumer.stop().await;
    assert!(waiting.await.unwrap().is_none());
    consumer.stop().await;
    let consumer = consume().await.unwrap();
    client.admin().delete_queue("orders").await.unwrap();
    for _ in 0..2 {
        let why = consumer.ended().await.unwrap();
        assert_eq!(why.condition(), Condition::EntityNotFound);
    }
    client.stop().await;
}

fn done(_: Delivery) -> std::future::Ready<Result<(), Refusal>> {
    std::future::ready(Ok(()))
}

/// SET-01, SET-05, SET-32, RTY-01: the error of a handler determines the settlement. An unreadable
/// body dead-letters the message, an error of the broker or of I/O abandons it, and a message that
/// is already settled stays so.
#[tokio::test]
async fn the_error_of_a_handler_determines_the_settlement() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let other = Arc::new(client.receiver("orders").unwrap());
    // A released message has the same delivery count when it is delivered again.
    let left = Arc::new(AtomicBool::new(false));
    let handler = move |delivery: Delivery| {
        let (seen, other, left) = (seen.clone(), Arc::clone(&other), Arc::clone(&left));
        async move {
            let count = delivery.delivery_count();
            seen.send((text(&delivery), count)).unwrap();
            match (text(&delivery).as_str(), count) {
                ("number", _) => drop(delivery.json::<u32>()?),
                ("refused", 1) => drop(other.receive_many(0, TimeSpan::ZERO).await?),
                ("file", 1) => Err(std::io::Error::other("no disk"))?,
                ("asked", 1) => Err(RequestError::Timeout)?,
                ("later", 1) => Err(Refusal::retry_after(Duration::from_secs(3_600)))?,
                ("bad", _) => Err(Refusal::dead_letter("Bad", "as asked"))?,
                ("settled", _) => {
                    other.complete(&delivery).await?;
                    Err(Refusal::already_settled())?;
                }
                ("left", _) if !left.swap(true, SeqCst) => Err(Refusal::already_settled())?,
                _ => {}
            }
            Ok(())
        }
    };
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", handler, options).await.unwrap();
    let bodies = ["number", "refused", "file", "asked", "later", "bad", "settled", "left", "last"];
    send(&client, &bodies).await;
    let mut order = Vec::new();
    while order.last().is_none_or(|(body, _)| body != "last") {
        order.push(arrivals.recv().await.unwrap());
    }
    consumer.stop().await;
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.delayed, counts.dead_letter), (1, 1, 2), "{order:?}");
    let attempts = |body| order.iter().filter(|(other, _)| other == body).count();
    assert_eq!(bodies.map(attempts), [1, 2, 2, 2, 1, 1, 1, 2, 1]);
    let again = order.iter().filter(|(body, _)| body == "left").map(|(_, count)| *count);
    assert!(again.eq([1, 1]), "released, not counted");
    let dead = client.receiver(&dead_letter_path("orders")).unwrap();
    let letters = dead.receive_many(9, TimeSpan::ZERO).await.unwrap();
    let reasons = letters.iter().map(|letter| letter.dead_letter_reason());
    assert!(reasons.eq([Some("BodyNotReadable"), Some("Bad")]));
    client.stop().await;
}

/// SET-03, SET-05: the same holds for a value that cannot be written, a timeout, and a session
/// state with another type. The state is unchanged, also after setting a value that cannot be
/// written.
#[tokio::test]
async fn write_timeout_and_state_errors_determine_the_settlement() {
    // JSON does not support pairs as keys.
    fn unwritable() -> BTreeMap<(u8, u8), &'static str> {
        BTreeMap::from([((1, 2), "coffee")])
    }
    let handler = |delivery: Delivery| async move {
        match &delivery.body()[..] {
            b"write" => drop(json_message(&unwritable())?),
            _ => tokio::time::timeout(Duration::ZERO, std::future::pending()).await?,
        }
        Ok(())
    };
    let of = |body: &'static str| TestDelivery::of(Message::new(body));
    let written = of("write").given_to(&handler).await;
    let Settlement::DeadLetter { reason, .. } = written else { panic!("{written:?}") };
    assert_eq!(reason.as_deref(), Some("BodyNotWritable"));
    let is_abandoned = |settlement: Settlement, error: &str| match settlement {
        Settlement::Abandon { properties, delay: None } => match &properties[..] {
            [(key, Value::String(text))] => key == LAST_ERROR_PROPERTY && text.contains(error),
            _ => false,
        },
        _ => false,
    };
    assert!(is_abandoned(of("wait").given_to(&handler).await, "deadline has elapsed"));

    let work = |step: SessionDelivery| async move {
        match &step.body()[..] {
            b"read" => drop(step.session.state_json::<u32>().await?),
            _ => step.session.set_state_json(&unwritable()).await?,
        }
        Ok(())
    };
    for body in ["read", "write"] {
        let session = TestSession::new("order-7").with_state("no number");
        assert!(is_abandoned(of(body).given_in(&session, &work).await, "order-7"), "{body}");
        assert_eq!(session.state().unwrap(), "no number");
    }
    let told = |step: SessionDelivery| async move {
        let read = step.session.state_json::<u32>().await.unwrap_err();
        assert!(matches!(read, StateError::Read { .. }), "{read:?}");
        assert!(read.to_string().contains("order-7"), "{read}");
        let written = step.session.set_state_json(&unwritable()).await.unwrap_err();
        assert!(matches!(written, StateError::Write { .. }), "{written:?}");
        Ok(())
    };
    let session = TestSession::new("order-7").with_state("no number");
    assert_eq!(of("told").given_in(&session, &told).await, Settlement::Complete);
}

/// RCV-10, RCV-14: a receiver provides a stream of messages, and takes only requested messages.
#[tokio::test]
async fn a_receiver_is_a_stream() {
    let client = client().await;
    send(&client, &["a", "b", "c"]).await;
    let receiver = client.receiver("orders").unwrap();
    {
        let mut messages = std::pin::pin!(receiver.stream());
        for expected in ["a", "b"] {
            let message = messages.next().await.unwrap().unwrap();
            assert_eq!(message.body(), expected);
            receiver.complete(&message).await.unwrap();
        }
    }
    let free = client.receiver("orders").unwrap().receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(free.unwrap().body(), "c");
    client.admin().delete_queue("orders").await.unwrap();
    let mut messages = std::pin::pin!(receiver.stream());
    assert!(messages.next().await.unwrap().is_err());
    assert!(messages.next().await.is_none(), "it ends after an error");
    client.stop().await;
}

/// RCV-10: the stream can move to another task, and continues without its receiver.
#[tokio::test]
async fn a_stream_outlives_its_receiver() {
    let client = client().await;
    let receiver = client.receiver("orders").unwrap();
    let stream = receiver.stream();
    drop(receiver);
    let first = tokio::spawn(async move { std::pin::pin!(stream).next().await });
    send(&client, &["a"]).await;
    let first = first.await.unwrap().unwrap().unwrap();
    assert_eq!(first.body(), "a");
    client.stop().await;
}
