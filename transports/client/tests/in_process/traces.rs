//! Tests of traces in process: the span of each delivery, and the traces of messages that handlers
//! send.

use std::sync::{Arc, Mutex};

use peeklock_client::{
    Client, ConsumerOptions, Delivery, SessionConsumerOptions, SessionDelivery, TraceContext,
    Traces,
};
use peeklock_core::Broker;
use peeklock_core::description::QueueProperties;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Message, Value};
use tokio::sync::mpsc;

use crate::local::Local;
use crate::log::Log;

async fn client() -> Local {
    let client = Local::new(Broker::builder().arbiters(1).start().await.unwrap());
    client.admin().create_queue("orders").await.unwrap();
    client
}

/// Log lines of a handler contain its message and its trace.
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

/// Returns the traceparent and the Diagnostic-Id of each message in a queue.
async fn traces(client: &Client, queue: &str) -> Vec<(Option<String>, Option<String>)> {
    let peeked = client.receiver(queue).unwrap().peek(SequenceNumber(0), 100).await.unwrap();
    let named = |message: &Message, name| match message.application_property(name) {
        Some(Value::String(text)) => Some(text.to_string()),
        _ => None,
    };
    let both = |message: &Message| (named(message, "traceparent"), named(message, "Diagnostic-Id"));
    peeked.iter().map(|peeked| both(peeked.message())).collect()
}

/// A message sent by a handler carries the trace of the handler's message, with every send
/// operation; a message with its own trace keeps it.
#[tokio::test]
async fn a_trace_continues_in_messages_of_a_handler() {
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
            let in_hand = TraceContext::current().map(|trace| trace.traceparent().to_owned());
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

/// The same holds in sessions.
#[tokio::test]
async fn a_trace_goes_on_in_sessions() {
    let client = client().await;
    let sessions = QueueProperties::new().with_sessions();
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
    let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
    arrivals.recv().await.unwrap();
    consumer.stop().await;
    let gone_on = (Some(TRACE.to_owned()), Some(TRACE.to_owned()));
    assert_eq!(traces(&client, "orders").await, [gone_on]);
    client.stop().await;
}

/// A tracing system with a text as its current span; it records the continued traces.
#[derive(Default)]
struct Spans {
    current: Mutex<Option<TraceContext>>,
    gone_on: Mutex<Vec<(bool, TraceContext)>>,
}

impl Traces for Spans {
    fn current(&self) -> Option<TraceContext> {
        self.current.lock().unwrap().clone()
    }

    fn continue_trace(&self, span: &tracing::Span, from: &TraceContext) {
        let is_delivery = span.metadata().is_some_and(|span| span.name() == "delivery");
        self.gone_on.lock().unwrap().push((is_delivery, from.clone()));
    }
}

/// With a tracing system messages carry the current span, and the span of a delivery continues it.
#[tokio::test]
async fn sent_messages_carry_the_current_span() {
    let client = client().await;
    // Without a subscriber there are no spans.
    let (_log, _guard) = Log::begin();
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
