//! Tests of spans, their parents and their links.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use peeklock_core::command::{Command, Settlement};
use peeklock_core::contract::{Operation, OperationKind};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::ids::LockToken;
use peeklock_core::message::Message;
use peeklock_otlp::Otlp;

use crate::collector::{Collector, hex, named, spans, texts};
use crate::world::{PATIENCE, SENDER, TRACE, World, config, message};

fn expected(attributes: &[(&str, &str)]) -> BTreeMap<String, String> {
    attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// All operations on a message belong to the trace of its sender.
#[tokio::test]
async fn send_receive_and_complete_go_on_with_the_trace_of_the_message() {
    let world = World::start().await;
    world.send(message(TRACE, SENDER, true)).await;
    let tokens = world.receive(1).await;
    world.complete(tokens[0]).await;
    let spans = world.stop().await;
    assert_eq!(spans.len(), 3);
    for span in &spans {
        assert_eq!(hex(&span.trace_id), TRACE, "{}", span.name);
        assert_eq!(span.kind(), SpanKind::Server);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.status.as_ref().is_none_or(|status| status.code() == StatusCode::Unset));
    }
    let send = named(&spans, "send orders");
    assert_eq!(hex(&send.parent_span_id), SENDER);
    assert_eq!(
        texts(&send.attributes),
        expected(&[
            ("messaging.system", "servicebus"),
            ("messaging.operation.name", "send"),
            ("messaging.operation.type", "send"),
            ("messaging.destination.name", "orders"),
            ("messaging.message.id", "order-1"),
            ("messaging.message.conversation_id", "table-7"),
            ("peeklock.message.sequence_number", "1"),
        ])
    );
    let receive = named(&spans, "receive orders");
    assert_eq!(hex(&receive.parent_span_id), SENDER);
    let attributes = texts(&receive.attributes);
    assert_eq!(attributes["messaging.operation.type"], "receive");
    assert_eq!(attributes["messaging.batch.message_count"], "1");
    assert_eq!(attributes["messaging.servicebus.message.delivery_count"], "1");
    assert!(attributes.contains_key("messaging.servicebus.message.enqueued_time"));
    let complete = named(&spans, "complete orders");
    assert_eq!(complete.parent_span_id, receive.span_id);
    assert_eq!(
        texts(&complete.attributes),
        expected(&[
            ("messaging.system", "servicebus"),
            ("messaging.operation.name", "complete"),
            ("messaging.operation.type", "settle"),
            ("messaging.destination.name", "orders"),
            ("messaging.servicebus.disposition_status", "complete"),
            ("peeklock.message.sequence_number", "1"),
        ])
    );
}

/// A batch continues the trace of its first message and links to the others. Messages that are
/// received together are all links of a new trace.
#[tokio::test]
async fn messages_of_a_list_are_links() {
    let world = World::start().await;
    let other = TRACE.replace("0af7", "1bf7");
    let messages = [TRACE, TRACE, &other].map(|trace| message(trace, SENDER, true));
    let messages = messages.map(|message| world.broker.inbound(message)).into();
    world.orders.call(Command::SendBatch { messages }).await.unwrap();
    assert_eq!(world.receive(3).await.len(), 3);
    let spans = world.stop().await;
    let links = |name: &str| -> Vec<String> {
        named(&spans, name).links.iter().map(|link| hex(&link.trace_id)).collect()
    };
    let send = named(&spans, "send orders");
    assert_eq!(
        (hex(&send.trace_id), links("send orders")),
        (TRACE.to_owned(), vec![other.clone()])
    );
    assert_eq!(texts(&send.attributes)["messaging.batch.message_count"], "3");
    assert!(!texts(&send.attributes).contains_key("messaging.message.id"));
    let receive = named(&spans, "receive orders");
    assert!(receive.parent_span_id.is_empty());
    assert_eq!(links("receive orders"), [TRACE.to_owned(), other]);
}

/// DESIGN D6: a batch with many traces has a bounded number of links. Only the parent carries
/// `tracestate`, truncated to its first members, and a settlement carries none.
#[tokio::test]
async fn links_are_few_and_states_short() {
    let world = World::start().await;
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|number| format!("{number}=a")).collect();
        members.join(",")
    };
    let messages = (1..=100_u32).map(|number| {
        let message = message(&format!("{number:032x}"), SENDER, true);
        message.with_application_property("tracestate", members(32).as_str())
    });
    let messages = messages.map(|message| world.broker.inbound(message)).collect();
    world.orders.call(Command::SendBatch { messages }).await.unwrap();
    let tokens = world.receive(1).await;
    world.complete(tokens[0]).await;
    let spans = world.stop().await;
    let send = named(&spans, "send orders");
    let linked: Vec<String> = send.links.iter().map(|link| hex(&link.trace_id)).collect();
    let expected: Vec<String> = (2..10).map(|number| format!("{number:032x}")).collect();
    assert_eq!(linked, expected);
    assert!(send.links.iter().all(|link| link.trace_state.is_empty()), "{:?}", send.links);
    for name in ["send orders", "receive orders"] {
        assert_eq!(named(&spans, name).trace_state, members(8), "{name}");
    }
    assert_eq!(named(&spans, "complete orders").trace_state, "");
}

#[tokio::test]
async fn a_failed_operation_has_an_error_status() {
    let world = World::start().await;
    let settlement = Settlement::Abandon { properties: None, delay: None };
    let abandoned = Command::Settle { token: LockToken(7), settlement };
    world.orders.call(abandoned).await.unwrap_err();
    world.broker.delete_entity("orders").await.unwrap();
    let lost = world.broker.inbound(message(TRACE, SENDER, true));
    world.orders.call(Command::Send { message: lost }).await.unwrap_err();
    let spans = world.stop().await;
    for (name, condition) in
        [("abandon orders", "MessageLockLost"), ("send orders", "EntityNotFound")]
    {
        let span = named(&spans, name);
        assert_eq!(texts(&span.attributes)["error.type"], condition);
        let status = span.status.as_ref().unwrap();
        assert_eq!(status.code(), StatusCode::Error);
        assert!(!status.message.is_empty());
    }
    assert!(named(&spans, "abandon orders").parent_span_id.is_empty());
}

/// The sample ratio applies to traces that begin here. A message states whether its trace is
/// recorded, and its settlement follows it.
#[tokio::test]
async fn a_message_decides_about_recording_its_trace() {
    let recorded_all = World::start().await;
    recorded_all.send(message(TRACE, SENDER, false)).await;
    let tokens = recorded_all.receive(1).await;
    recorded_all.complete(tokens[0]).await;
    recorded_all.send(Message::new("no trace")).await;
    let spans = recorded_all.stop().await;
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert!(spans[0].parent_span_id.is_empty());

    let recorded_none = World::with(|config| config.sample_ratio = 0.0).await;
    recorded_none.send(Message::new("no trace")).await;
    recorded_none.send(Message::new("x").with_application_property("traceparent", "none")).await;
    recorded_none.send(message(TRACE, SENDER, true)).await;
    let spans = recorded_none.stop().await;
    assert_eq!(hex(&named(&spans, "send orders").parent_span_id), SENDER);
}

/// A subscription has its own attribute in addition to its topic; a sub-queue is a suffix.
#[tokio::test]
async fn subscriptions_and_sub_queues_are_named() {
    let world = World::start().await;
    world.broker.create_topic("sales", TopicUpdate::default()).await.unwrap();
    let audit = SubscriptionUpdate::default();
    world.broker.create_subscription("sales", "audit", audit, Vec::new()).await.unwrap();
    let token = LockToken(7);
    for path in ["sales/Subscriptions/audit/$deadletterqueue", "orders/$Transfer/$deadletterqueue"]
    {
        let entity = world.broker.entity(path).unwrap();
        let settlement = Settlement::Complete;
        entity.call(Command::Settle { token, settlement }).await.unwrap_err();
    }
    let spans = world.stop().await;
    let attributes = texts(&named(&spans, "complete sales").attributes);
    assert_eq!(attributes["messaging.destination.subscription.name"], "audit/$deadletterqueue");
    named(&spans, "complete orders/$Transfer/$deadletterqueue");
}

/// Each operation has a type unless it combines several types.
#[tokio::test]
async fn each_operation_has_its_name_and_type() {
    let collector = Collector::start();
    let otlp = Otlp::start(&config(&collector)).unwrap();
    let kinds = [
        (OperationKind::Send, "send", Some("send")),
        (OperationKind::Schedule, "schedule", Some("send")),
        (OperationKind::Forward, "forward", Some("send")),
        (OperationKind::Receive, "receive", Some("receive")),
        (OperationKind::ReceiveDeferred, "receive_deferred", Some("receive")),
        (OperationKind::Deliver, "deliver", Some("receive")),
        (OperationKind::Complete, "complete", Some("settle")),
        (OperationKind::Abandon, "abandon", Some("settle")),
        (OperationKind::Defer, "defer", Some("settle")),
        (OperationKind::DeadLetter, "dead_letter", Some("settle")),
        (OperationKind::Release, "release", Some("settle")),
        (OperationKind::Commit, "commit", None),
    ];
    let now = std::time::SystemTime::now();
    for (kind, _, _) in kinds {
        otlp.tracer().unwrap().record(&Operation {
            kind,
            path: "orders",
            began_at: now,
            ended_at: now,
            message_count: 0,
            messages: &[],
            result: Ok(()),
        });
    }
    otlp.stop(PATIENCE).await;
    let spans = spans(&collector.all());
    for (_, name, type_name) in kinds {
        let attributes = texts(&named(&spans, &format!("{name} orders")).attributes);
        let found = attributes.get("messaging.operation.type").map(String::as_str);
        assert_eq!((&*attributes["messaging.operation.name"], found), (name, type_name));
    }
}
