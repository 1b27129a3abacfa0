//! Reports to a tracer: each operation of a client once, when its answer is sent, with the trace
//! contexts of its messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_core::command::{Command, Drain, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{
    Operation, OperationKind, TRACED_MESSAGES_MAX, TracedMessage, Tracer,
};
use peeklock_core::description::QueueUpdate;
use peeklock_core::ids::LockToken;
use peeklock_core::message::Message;
use peeklock_core::request::{Outlet, Released, Reply, Request};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};
use tokio::sync::mpsc;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// One report.
#[derive(Clone, Debug)]
struct Report {
    kind: OperationKind,
    path: String,
    message_count: u64,
    messages: Vec<TracedMessage>,
    refused: Option<Condition>,
}

#[derive(Default)]
struct Notes(Mutex<Vec<Report>>);

impl Tracer for Notes {
    fn record(&self, operation: &Operation<'_>) {
        assert!(operation.began_at <= operation.ended_at);
        self.0.lock().unwrap().push(Report {
            kind: operation.kind,
            path: operation.path.to_owned(),
            message_count: operation.message_count,
            messages: operation.messages.to_vec(),
            refused: operation.result.err().map(|rejection| rejection.condition()),
        });
    }
}

impl Notes {
    /// All reports since the last call.
    fn take(&self) -> Vec<Report> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The single report.
    fn only(&self) -> Report {
        let reports = self.take();
        assert_eq!(reports.len(), 1, "{reports:?}");
        reports.into_iter().next().unwrap()
    }
}

async fn start() -> (Broker, Entity, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let broker = Broker::builder()
        .arbiters(1)
        .tracer(Arc::clone(&notes) as Arc<dyn Tracer>)
        .start()
        .await
        .unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let orders = broker.entity("orders").unwrap();
    assert!(notes.take().is_empty(), "management is no operation");
    (broker, orders, notes)
}

fn order(number: usize) -> Message {
    Message::new("two coffees")
        .with_message_id(format!("order-{number}"))
        .with_correlation_id("table-7")
        .with_application_property("traceparent", PARENT)
        .with_application_property("tracestate", "a=1")
}

const fn receive(count_max: u32) -> Command {
    crate::receive::under_lock(count_max, TimeSpan::ZERO)
}

fn tokens(outcome: &Outcome) -> Vec<LockToken> {
    let Outcome::Received(messages) = outcome else { panic!("{outcome:?}") };
    messages.iter().map(|message| message.facts.lock.unwrap().token).collect()
}

#[tokio::test]
async fn a_send_a_receive_and_a_settlement_are_reported_with_their_message() {
    let (broker, orders, notes) = start().await;
    let message = broker.inbound(order(1));
    orders.call(Command::Send { message }).await.unwrap();
    let sent = notes.only();
    assert_eq!((sent.kind, &*sent.path, sent.message_count), (OperationKind::Send, "orders", 1));
    assert_eq!(sent.refused, None);
    let message = &sent.messages[0];
    assert_eq!(message.sequence.unwrap().0, 1);
    assert_eq!(message.message_id.as_deref(), Some("order-1"));
    assert_eq!(message.correlation_id.as_deref(), Some("table-7"));
    assert_eq!(message.traceparent.as_deref(), Some(PARENT));
    assert_eq!(message.tracestate.as_deref(), Some("a=1"));
    assert_eq!(message.delivery_count, None);

    let received = orders.call(receive(5)).await.unwrap();
    let report = notes.only();
    assert_eq!((report.kind, report.message_count), (OperationKind::Receive, 1));
    assert_eq!(report.messages[0].traceparent.as_deref(), Some(PARENT));
    assert_eq!(report.messages[0].delivery_count, Some(1));
    assert!(report.messages[0].enqueued_at.is_some());

    let token = tokens(&received)[0];
    orders.call(Command::Settle { token, settlement: Settlement::Complete }).await.unwrap();
    let report = notes.only();
    assert_eq!(report.kind, OperationKind::Complete);
    assert_eq!(report.messages[0].sequence.unwrap().0, 1);
    broker.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_reported_with_its_condition() {
    let (broker, orders, notes) = start().await;
    let token = LockToken(7);
    let settled = orders.call(Command::Settle { token, settlement: Settlement::Complete }).await;
    assert_eq!(settled.unwrap_err().condition(), Condition::MessageLockLost);
    assert_eq!(notes.only().refused, Some(Condition::MessageLockLost));
    // Also a refusal before the entity.
    let refused = orders.call(Command::TransferIn {
        messages: Vec::new(),
        when_full: peeklock_core::transfer::WhenFull::Refuse,
    });
    assert_eq!(refused.await.unwrap_err().condition(), Condition::InvalidOperation);
    assert!(notes.take().is_empty(), "it is none that a client can ask");
    broker.delete_entity("orders").await.unwrap();
    let message = broker.inbound(order(1));
    orders.call(Command::Send { message }).await.unwrap_err();
    assert_eq!(notes.only().refused, Some(Condition::EntityNotFound));
    broker.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_list_reports_a_bounded_number_of_messages() {
    let (broker, orders, notes) = start().await;
    let count = TRACED_MESSAGES_MAX + 2;
    let messages = (0..count).map(|number| broker.inbound(order(number))).collect();
    orders.call(Command::SendBatch { messages }).await.unwrap();
    let report = notes.only();
    assert_eq!((report.kind, report.message_count), (OperationKind::Send, count as u64));
    assert_eq!(report.messages.len(), TRACED_MESSAGES_MAX);
    assert_eq!(report.messages[2].sequence.unwrap().0, 3);

    let at = broker.now().plus(TimeSpan::from_minutes(1));
    let message = broker.inbound(order(0).with_scheduled_enqueue_time(at));
    orders.call(Command::Send { message }).await.unwrap();
    assert_eq!(notes.only().kind, OperationKind::Schedule);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// The property name of the Azure SDKs is accepted too, in any case. An invalid context is not
/// passed on.
#[tokio::test]
async fn diagnostic_id_is_a_traceparent_too() {
    let (broker, orders, notes) = start().await;
    for (name, text, expected) in [
        ("Diagnostic-Id", PARENT.to_owned(), Some(PARENT)),
        ("diagnostic-id", PARENT.to_owned(), Some(PARENT)),
        ("trace-parent", PARENT.to_owned(), None),
        ("traceparent", "0".repeat(56), None),
    ] {
        let message = Message::new("x").with_application_property(name, text.as_str());
        let message = broker.inbound(message);
        orders.call(Command::Send { message }).await.unwrap();
        assert_eq!(notes.only().messages[0].traceparent.as_deref(), expected, "{name}");
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

struct Line(mpsc::UnboundedSender<Released>);

impl Outlet for Line {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            self.0.send(item).unwrap();
        }
    }
}

/// A delivery over a link is reported when it is sent.
#[tokio::test]
async fn a_delivery_over_a_link_is_reported() {
    let (broker, orders, notes) = start().await;
    let (line, mut arrivals) = mpsc::unbounded_channel();
    let line: Arc<dyn Outlet> = Arc::new(Line(line));
    let receiver = broker.receiver_id();
    let grant =
        Command::SetCredit { receiver, delivery_limit: 10, byte_limit: u64::MAX, drain: Drain::No };
    let attach = Command::Attach { receiver, mode: ReceiveMode::PeekLock };
    let asked = [attach, grant].into_iter().zip(0..).map(|(command, correlation)| Request {
        ticket: broker.ticket(),
        sub_queue: orders.sub_queue(),
        command,
        reply: Reply::new(Arc::clone(&line), correlation, None),
    });
    orders.submit(asked.collect());
    for _ in 0..2 {
        assert!(matches!(arrivals.recv().await, Some(Released::Answer { result: Ok(_), .. })));
    }
    assert!(notes.take().is_empty(), "links are no operations");
    let message = broker.inbound(order(1));
    orders.call(Command::Send { message }).await.unwrap();
    assert!(matches!(arrivals.recv().await, Some(Released::Delivery { .. })));
    let mut reports = notes.take();
    reports.sort_by_key(|report| report.kind.name());
    let kinds: Vec<OperationKind> = reports.iter().map(|report| report.kind).collect();
    assert_eq!(kinds, [OperationKind::Deliver, OperationKind::Send]);
    assert_eq!(reports[0].messages[0].traceparent.as_deref(), Some(PARENT));
    assert_eq!(reports[0].messages[0].delivery_count, Some(1));
    assert_ne!(reports[0].messages[0].enqueued_at, Some(Timestamp::NONE));
    broker.stop(Duration::ZERO).await.unwrap();
}
