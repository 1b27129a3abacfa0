//! Conversion of operations to spans, according to the semantic conventions for messaging and for
//! Azure Service Bus. The core calls [`Spans`] for each operation. A span never exceeds
//! [`SPAN_BYTES`].

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span};
use peeklock_core::contract::{Operation, OperationKind, TracedMessage, Tracer};
use peeklock_core::path::{EntityAddress, EntityName};

use crate::collector::Collector;
use crate::received::ReceivedSpans;

/// Name in the conventions for every broker with the semantics of Azure Service Bus.
const SYSTEM: &str = "servicebus";
/// Maximum number of links of a span. Clients choose the number of traces in a batch; the number of
/// messages is a separate attribute.
const LINKS_MAX: usize = 8;
/// Maximum number of `tracestate` members kept for a parent, from the first (W3C Trace Context):
/// each member has its own allocation, even a short one.
const STATE_MEMBERS_MAX: usize = 8;
/// Maximum bytes of a text in a span: room for the longest operation name and ASCII path. Clients
/// choose the length of ids.
const TEXT_BYTES_MAX: usize = 320;
/// Maximum memory of a span until the collector accepts it, in bytes.
pub(crate) const SPAN_BYTES: usize = 6 << 10;

/// Creates a span for each operation.
pub(crate) struct Spans {
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    received: Mutex<ReceivedSpans>,
    collector: Arc<Collector>,
    waiting_max: u64,
}

impl Spans {
    /// Creates a converter for a tracer whose queue and current batch hold up to `waiting_max`
    /// spans.
    pub(crate) fn new(tracer: SdkTracer, collector: Arc<Collector>, waiting_max: u64) -> Self {
        Self {
            tracer,
            propagator: TraceContextPropagator::new(),
            received: Mutex::default(),
            collector,
            waiting_max,
        }
    }

    /// Returns the state of the collector that receives the spans.
    pub(crate) fn collector(&self) -> Arc<Collector> {
        Arc::clone(&self.collector)
    }

    /// Returns the span context that the sender stored in a message, if it is valid. Omits the
    /// `tracestate`.
    fn context_of(&self, message: &TracedMessage) -> Option<SpanContext> {
        message.traceparent.as_ref()?;
        let context = self.propagator.extract_with_context(&Context::new(), &Carrier(message));
        Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
    }

    /// Returns the parent of an operation and its links to other traces.
    fn relations(&self, operation: &Operation<'_>) -> (Option<SpanContext>, Vec<Link>) {
        if disposition_of(operation.kind).is_some() {
            let number = operation.messages.first().and_then(|message| message.sequence);
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            return (number.and_then(|number| received.take(operation.path, number)), Vec::new());
        }
        // A send continues the trace of the sender. Messages that are received together may belong
        // to different traces, so that operation has links and no parent.
        let goes_on = !is_receive(operation.kind) || operation.message_count <= 1;
        let (mut parent, mut links) = (None, Vec::new());
        let mut latest: Option<SpanContext> = None;
        for message in operation.messages {
            let Some(context) = self.context_of(message) else { continue };
            // Most batches carry the same context in all messages.
            if latest.as_ref() == Some(&context) {
                continue;
            }
            if goes_on && parent.is_none() {
                parent = Some(with_state(&context, message));
            } else if links.len() < LINKS_MAX {
                links.push(Link::with_context(context.clone()));
            } else {
                break;
            }
            latest = Some(context);
        }
        (parent, links)
    }
}

/// Returns the parent together with the first members of the message's `tracestate`.
fn with_state(parent: &SpanContext, message: &TracedMessage) -> SpanContext {
    let given = message.tracestate.as_deref().unwrap_or_default();
    let mut commas = given.match_indices(',');
    let end = commas.nth(STATE_MEMBERS_MAX - 1).map_or(given.len(), |(at, _)| at);
    let state: TraceState = given.get(..end).unwrap_or_default().parse().unwrap_or_default();
    let (trace, span) = (parent.trace_id(), parent.span_id());
    SpanContext::new(trace, span, parent.trace_flags(), parent.is_remote(), state)
}

/// Truncates a text to the maximum length in a span.
fn truncated(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().to_owned()
}

impl Tracer for Spans {
    fn record(&self, operation: &Operation<'_>) {
        let (parent, links) = self.relations(operation);
        let destination = Destination::of(operation.path);
        let name = truncated(&format!("{} {}", operation.kind.name(), destination.name));
        let parent = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder = self
            .tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .with_start_time(operation.began_at)
            .with_links(links);
        let mut span = self.tracer.build_with_context(builder, &parent);
        if is_receive(operation.kind) {
            let context = span.span_context();
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            for number in operation.messages.iter().filter_map(|message| message.sequence) {
                received.note(operation.path, number, context);
            }
        }
        if !span.is_recording() {
            return;
        }
        describe(&mut span, operation, &destination);
        if let Err(rejection) = operation.result {
            span.set_attribute(KeyValue::new("error.type", rejection.condition().name()));
            span.set_status(Status::error(truncated(rejection.detail())));
        }
        self.collector.record_span(self.waiting_max);
        span.end_with_timestamp(operation.ended_at);
    }
}

fn describe(span: &mut Span, operation: &Operation<'_>, destination: &Destination) {
    let kind = operation.kind;
    span.set_attribute(KeyValue::new("messaging.system", SYSTEM));
    span.set_attribute(KeyValue::new("messaging.operation.name", kind.name()));
    if let Some(type_name) = type_of(kind) {
        span.set_attribute(KeyValue::new("messaging.operation.type", type_name));
    }
    span.set_attribute(KeyValue::new("messaging.destination.name", truncated(&destination.name)));
    if let Some(subscription) = &destination.subscription {
        let key = "messaging.destination.subscription.name";
        span.set_attribute(KeyValue::new(key, truncated(subscription)));
    }
    if let Some(status) = disposition_of(kind).filter(|status| !status.is_empty()) {
        span.set_attribute(KeyValue::new("messaging.servicebus.disposition_status", status));
    }
    let is_single = matches!(operation.messages, [_]) && operation.message_count == 1;
    // The conventions omit the count for operations on exactly one message.
    let is_list = !matches!(kind, OperationKind::Deliver) && disposition_of(kind).is_none();
    if is_list && !(is_single && matches!(kind, OperationKind::Send | OperationKind::Schedule)) {
        let count = signed(operation.message_count);
        span.set_attribute(KeyValue::new("messaging.batch.message_count", count));
    }
    if let ([message], true) = (operation.messages, is_single) {
        describe_message(span, message);
    }
}

fn describe_message(span: &mut Span, message: &TracedMessage) {
    let texts = [
        ("messaging.message.id", &message.message_id),
        ("messaging.message.conversation_id", &message.correlation_id),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            span.set_attribute(KeyValue::new(key, truncated(text)));
        }
    }
    let enqueued_at = message.enqueued_at.map(|instant| instant.unix_ms().div_euclid(1_000));
    let numbers = [
        ("messaging.servicebus.message.delivery_count", message.delivery_count.map(i64::from)),
        ("messaging.servicebus.message.enqueued_time", enqueued_at),
        ("peeklock.message.sequence_number", message.sequence.map(|number| signed(number.0))),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            span.set_attribute(KeyValue::new(key, number));
        }
    }
}

/// An entity as named in the conventions.
struct Destination {
    /// Queue or topic, including the suffix of a sub-queue.
    name: String,
    /// Subscription of the topic, including the suffix of a sub-queue.
    subscription: Option<String>,
}

impl Destination {
    fn of(path: &str) -> Self {
        match EntityAddress::parse(path) {
            Ok(EntityAddress {
                entity: EntityName::Subscription { topic, name },
                sub_queue,
                ..
            }) => {
                let subscription = format!("{name}{}", sub_queue.suffix());
                Self { name: topic.into(), subscription: Some(subscription) }
            }
            Ok(EntityAddress { entity: EntityName::Root(_), .. }) | Err(_) => {
                Self { name: path.to_owned(), subscription: None }
            }
        }
    }
}

/// The trace context of a message, as a carrier for the propagator.
struct Carrier<'a>(&'a TracedMessage);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        if key == "traceparent" { self.0.traceparent.as_deref() } else { None }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

const fn is_receive(kind: OperationKind) -> bool {
    matches!(kind, OperationKind::Receive | OperationKind::ReceiveDeferred | OperationKind::Deliver)
}

/// Returns the type of an operation, or `None` for a commit, which combines several types.
const fn type_of(kind: OperationKind) -> Option<&'static str> {
    match kind {
        OperationKind::Send | OperationKind::Schedule | OperationKind::Forward => Some("send"),
        OperationKind::Receive | OperationKind::ReceiveDeferred | OperationKind::Deliver => {
            Some("receive")
        }
        OperationKind::Complete
        | OperationKind::Abandon
        | OperationKind::Defer
        | OperationKind::DeadLetter
        | OperationKind::Release => Some("settle"),
        OperationKind::Commit => None,
    }
}

/// Returns the disposition name of a settlement in the conventions. A release has an empty name:
/// the conventions do not define one.
const fn disposition_of(kind: OperationKind) -> Option<&'static str> {
    match kind {
        OperationKind::Complete => Some("complete"),
        OperationKind::Abandon => Some("abandon"),
        OperationKind::Defer => Some("defer"),
        OperationKind::DeadLetter => Some("dead_letter"),
        OperationKind::Release => Some(""),
        OperationKind::Send
        | OperationKind::Schedule
        | OperationKind::Forward
        | OperationKind::Receive
        | OperationKind::ReceiveDeferred
        | OperationKind::Deliver
        | OperationKind::Commit => None,
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
