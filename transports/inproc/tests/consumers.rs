//! Consumers in process: functions and actors, what they take ahead, and what they survive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod local;
mod log;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use actix::{Actor, ActorContext, Context, Handler, Supervised, Supervisor};
use futures_util::StreamExt as _;
use peeklock_core::Broker;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Message, Value};
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::TimeSpan;
use peeklock_inproc::{
    Client, ConsumerOptions, Delivery, Refusal, SessionConsumerOptions, SessionDelivery,
    TraceContext, Traces,
};
use tokio::sync::{Semaphore, mpsc};

use local::Local;
use log::Log;

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

/// SET-01, SET-03, SET-05, SET-32, DEF-01: the outcome of a function settles, as that of an actor does, and a
/// panic abandons.
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

/// RCV-16, RCV-19: beside the messages that the handler has, as many wait locked as the options say, and no more.
/// When the consumer is stopped, those go back uncounted (RCV-14).
#[tokio::test]
async fn what_is_taken_ahead_waits_locked_and_goes_back() {
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
    // What waited is there again while the handler still has its own.
    let back = receiver.receive(TimeSpan::from_seconds(60)).await.unwrap().unwrap();
    assert_eq!((back.body().as_ref(), back.delivery_count()), (&b"c"[..], 1));
    gate.add_permits(1);
    stopping.await.unwrap();
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!(counts.active, 2, "b is completed, c and d are locked");
    client.stop().await;
}

/// Stops itself with each message that says so; its supervisor starts it anew.
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

/// SET-03: an actor that is started anew by its supervisor goes on; what it had then is abandoned.
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

/// No supervisor survives a panic of its actor: the message is given back, and the consumer ends and says why, to whoever
/// waits for that and to the log.
#[actix::test]
async fn a_panic_of_a_supervised_actor_ends_its_consumer_and_is_told() {
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
    let answer = log.line("an actor gave no answer");
    assert!(answer.contains("WARN") && answer.contains("sequence_number=2"), "{answer}");
    let end = log.line("a consumer has ended");
    assert!(end.contains("WARN") && end.contains("path=\"orders\""), "{end}");
    let receiver = client.receiver("orders").unwrap();
    let left = receiver.receive_many(9, TimeSpan::ZERO).await.unwrap();
    let left: Vec<_> = left.iter().map(|message| message.delivery_count()).collect();
    assert_eq!(left, [2, 1], "b was given to nobody");
    client.stop().await;
}

/// RCV-10: who may stop a consumer may wait for its end too, and so may others at the same time.
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

/// SET-01, SET-05, SET-32, RTY-01: what a handler fails with says what becomes of the message: a body that cannot be read
/// is dead-lettered, what the broker or the world refuses is abandoned, what is settled stays so.
#[tokio::test]
async fn what_a_handler_fails_with_decides() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let other = Arc::new(client.receiver("orders").unwrap());
    // What is released has the same count when it comes again.
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
                ("later", 1) => Err(Refusal::retry_after(TimeSpan::from_seconds(3_600)))?,
                ("bad", _) => Err(Refusal::dead_letter("Bad", "as asked"))?,
                ("settled", _) => {
                    other.complete(&delivery).await?;
                    Err(Refusal::AlreadySettled)?;
                }
                ("left", _) if !left.swap(true, SeqCst) => Err(Refusal::AlreadySettled)?,
                _ => {}
            }
            Ok(())
        }
    };
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", handler, options).await.unwrap();
    let bodies = ["number", "refused", "file", "later", "bad", "settled", "left", "last"];
    send(&client, &bodies).await;
    let mut order = Vec::new();
    while order.last().is_none_or(|(body, _)| body != "last") {
        order.push(arrivals.recv().await.unwrap());
    }
    consumer.stop().await;
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.delayed, counts.dead_letter), (1, 1, 2), "{order:?}");
    let attempts = |body| order.iter().filter(|(other, _)| other == body).count();
    assert_eq!(bodies.map(attempts), [1, 2, 2, 1, 1, 1, 2, 1]);
    let again = order.iter().filter(|(body, _)| body == "left").map(|(_, count)| *count);
    assert!(again.eq([1, 1]), "released, not counted");
    let dead = client.receiver(&dead_letter_path("orders")).unwrap();
    let letters = dead.receive_many(9, TimeSpan::ZERO).await.unwrap();
    let reasons = letters.iter().map(|letter| letter.dead_letter_reason());
    assert!(reasons.eq([Some("BodyNotReadable"), Some("Bad")]));
    client.stop().await;
}

/// RCV-10, RCV-14: a receiver is a stream of what comes, and what is not asked for is not taken.
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

/// What a handler logs names its message, and the trace that it belongs to.
#[tokio::test]
async fn a_delivery_has_a_span() {
    let client = client().await;
    let (log, _guard) = Log::begin();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let message = Message::new("a").with_message_id("order-7");
    let message = message.with_application_property("traceparent", Value::from(trace));
    client.sender("orders").unwrap().send(message).await.unwrap();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |_: Delivery| {
        let seen = seen.clone();
        async move {
            tracing::info!("in hand");
            seen.send(()).unwrap();
            Ok(())
        }
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    arrivals.recv().await.unwrap();
    consumer.stop().await;
    let line = log.line("in hand");
    let fields = [r#"path="orders""#, "sequence_number=1", "delivery_count=1", "order-7", trace];
    assert!(fields.iter().all(|field| line.contains(field)), "{line}");
    client.stop().await;
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What was sent on, by its traceparent and its Diagnostic-Id.
async fn traces(client: &Client, queue: &str) -> Vec<(Option<String>, Option<String>)> {
    let peeked = client.receiver(queue).unwrap().peek(SequenceNumber(0), 100).await.unwrap();
    let named = |message: &Message, name| match message.application_property(name) {
        Some(Value::String(text)) => Some(text.to_string()),
        _ => None,
    };
    let both = |message: &Message| (named(message, "traceparent"), named(message, "Diagnostic-Id"));
    peeked.iter().map(|peeked| both(peeked.message())).collect()
}

/// What a handler sends belongs to the trace of its message, by every way to send; what says so itself keeps it.
#[tokio::test]
async fn a_trace_goes_on_in_what_a_handler_sends() {
    let client = client().await;
    client.admin().create_queue("next").await.unwrap();
    let own = TRACE.replace("0af7", "1bf7");
    let message = Message::new("a").with_application_property("Diagnostic-Id", TRACE);
    client.sender("orders").unwrap().send(message).await.unwrap();
    client.sender("orders").unwrap().send(Message::new("of no trace")).await.unwrap();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let (next, of_its_own) = (Client::clone(&client), own.clone());
    let handler = move |delivery: Delivery| {
        let (seen, client, own) = (seen.clone(), next.clone(), of_its_own.clone());
        async move {
            let sender = client.sender("next")?;
            sender.send(Message::new("1")).await?;
            sender.send_batch(vec![Message::new("2"), Message::new("3")]).await?;
            let own = Message::new("4").with_application_property("traceparent", own);
            for sent in sender.send_many(vec![own]).await {
                sent?;
            }
            let transaction = client.begin_transaction().await?;
            transaction.send(&sender, Message::new("5")).await?;
            transaction.commit().await?;
            let in_hand = TraceContext::in_hand().map(|trace| trace.traceparent().to_owned());
            seen.send((delivery.sequence_number().0, in_hand)).unwrap();
            Ok(())
        }
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::at_once(1)).await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap(), (1, Some(TRACE.to_owned())));
    assert_eq!(arrivals.recv().await.unwrap(), (2, None));
    consumer.stop().await;
    let gone_on = || (Some(TRACE.to_owned()), Some(TRACE.to_owned()));
    let of_its_own = || (Some(own.clone()), None);
    let mut expected = vec![gone_on(), gone_on(), gone_on(), of_its_own(), gone_on()];
    expected.extend([(None, None), (None, None), (None, None), of_its_own(), (None, None)]);
    assert_eq!(traces(&client, "next").await, expected);
    client.stop().await;
}

/// The same in sessions.
#[tokio::test]
async fn a_trace_goes_on_in_sessions() {
    let client = client().await;
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    client.admin().create_queue_with("steps", sessions).await.unwrap();
    let message = Message::new("a").with_session_id("order-7");
    let message = message.with_application_property("traceparent", TRACE);
    client.sender("steps").unwrap().send(message).await.unwrap();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let next = Client::clone(&client);
    let handler = move |_: SessionDelivery| {
        let (seen, next) = (seen.clone(), next.clone());
        async move {
            next.sender("orders")?.send(Message::new("1")).await?;
            seen.send(()).unwrap();
            Ok(())
        }
    };
    let options = SessionConsumerOptions::default();
    let consumer = client.consume_sessions("steps", handler, options).unwrap();
    arrivals.recv().await.unwrap();
    consumer.stop().await;
    let gone_on = (Some(TRACE.to_owned()), Some(TRACE.to_owned()));
    assert_eq!(traces(&client, "orders").await, [gone_on]);
    client.stop().await;
}

/// A tracing system: the current span is a text, and a delivery's span goes on with what it is told.
#[derive(Default)]
struct Spans {
    current: Mutex<Option<TraceContext>>,
    gone_on: Mutex<Vec<(bool, TraceContext)>>,
}

impl Traces for Spans {
    fn current(&self) -> Option<TraceContext> {
        self.current.lock().unwrap().clone()
    }

    fn go_on(&self, span: &tracing::Span, from: &TraceContext) {
        let is_delivery = span.metadata().is_some_and(|span| span.name() == "delivery");
        self.gone_on.lock().unwrap().push((is_delivery, from.clone()));
    }
}

/// With a tracing system the current span is what messages say, and the span of a delivery goes on with that.
#[tokio::test]
async fn the_current_span_goes_with_what_is_sent() {
    let client = client().await;
    let _guard =
        tracing::subscriber::set_default(tracing_subscriber::fmt().with_test_writer().finish());
    let spans = Arc::new(Spans::default());
    let traced = Client::clone(&client).with_traces(Arc::clone(&spans) as _);
    let sender = traced.sender("orders").unwrap();
    sender.send(Message::new("of no span")).await.unwrap();
    let context = TraceContext::new(TRACE).unwrap().with_tracestate("a=1");
    *spans.current.lock().unwrap() = Some(context.clone());
    sender.send(Message::new("of a span")).await.unwrap();
    let both = (Some(TRACE.to_owned()), Some(TRACE.to_owned()));
    assert_eq!(traces(&client, "orders").await, [(None, None), both]);
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |_: Delivery| {
        seen.send(()).unwrap();
        async { Ok(()) }
    };
    let consumer = traced.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    for _ in 0..2 {
        arrivals.recv().await.unwrap();
    }
    consumer.stop().await;
    assert_eq!(*spans.gone_on.lock().unwrap(), [(true, context)]);
    client.stop().await;
}
