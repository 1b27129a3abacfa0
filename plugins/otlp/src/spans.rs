//! Operations as spans, by the semantic conventions for messaging and for Azure Service Bus.

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
use crate::received::Received;

/// What the conventions call every broker with the semantics of Azure Service Bus.
const SYSTEM: &str = "servicebus";
/// Links of a span. Clients choose how many traces the messages of one batch belong to; how many messages there are is told
/// besides.
const LINKS_MAX: usize = 8;
/// Of what tracing systems say beside a parent so many members are kept, those in front (W3C Trace Context): each has memory
/// of its own, however short it is.
const STATE_MEMBERS_MAX: usize = 8;
/// The longest text of a span, as long as any name of an operation and path in ASCII: clients choose how long an id is.
const TEXT_BYTES_MAX: usize = 320;
/// What a span takes at most until the collector has it.
pub(crate) const SPAN_BYTES: usize = 6 << 10;

/// Makes a span of each operation.
pub(crate) struct Spans {
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    received: Mutex<Received>,
    collector: Arc<Collector>,
    waiting_max: u64,
}

impl Spans {
    /// With a tracer behind which so many spans may wait for the collector.
    pub(crate) fn new(tracer: SdkTracer, collector: Arc<Collector>, waiting_max: u64) -> Self {
        Self {
            tracer,
            propagator: TraceContextPropagator::new(),
            received: Mutex::default(),
            collector,
            waiting_max,
        }
    }

    /// What is known of who gets them.
    pub(crate) fn collector(&self) -> Arc<Collector> {
        Arc::clone(&self.collector)
    }

    /// What a message belongs to, if its sender says so and it is well-formed; without what tracing systems say besides.
    fn context_of(&self, message: &TracedMessage) -> Option<SpanContext> {
        message.traceparent.as_ref()?;
        let context = self.propagator.extract_with_context(&Context::new(), &Carrier(message));
        Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
    }

    /// What the operation goes on from, and what else it belongs to.
    fn relations(&self, operation: &Operation<'_>) -> (Option<SpanContext>, Vec<Link>) {
        if disposition_of(operation.kind).is_some() {
            let number = operation.messages.first().and_then(|message| message.sequence);
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            return (number.and_then(|number| received.take(operation.path, number)), Vec::new());
        }
        // Who sends is what the operation goes on from. Of several messages that are received each has its own trace, and the
        // operation belongs to none of them more than to the others.
        let goes_on = !is_receive(operation.kind) || operation.message_count <= 1;
        let (mut parent, mut links) = (None, Vec::new());
        let mut latest: Option<SpanContext> = None;
        for message in operation.messages {
            let Some(context) = self.context_of(message) else { continue };
            // The messages of a batch mostly say the same.
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

/// A parent with what tracing systems say besides.
fn with_state(parent: &SpanContext, message: &TracedMessage) -> SpanContext {
    let said = message.tracestate.as_deref().unwrap_or_default();
    let mut commas = said.match_indices(',');
    let end = commas.nth(STATE_MEMBERS_MAX - 1).map_or(said.len(), |(at, _)| at);
    let state: TraceState = said.get(..end).unwrap_or_default().parse().unwrap_or_default();
    let (trace, span) = (parent.trace_id(), parent.span_id());
    SpanContext::new(trace, span, parent.trace_flags(), parent.is_remote(), state)
}

/// As much of a text as a span has of one.
fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().to_owned()
}

impl Tracer for Spans {
    fn record(&self, operation: &Operation<'_>) {
        let (parent, links) = self.relations(operation);
        let destination = Destination::of(operation.path);
        let name = cut(&format!("{} {}", operation.kind.name(), destination.name));
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
            span.set_status(Status::error(cut(rejection.detail())));
        }
        self.collector.made_span(self.waiting_max);
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
    span.set_attribute(KeyValue::new("messaging.destination.name", cut(&destination.name)));
    if let Some(subscription) = &destination.subscription {
        let key = "messaging.destination.subscription.name";
        span.set_attribute(KeyValue::new(key, cut(subscription)));
    }
    if let Some(status) = disposition_of(kind).filter(|status| !status.is_empty()) {
        span.set_attribute(KeyValue::new("messaging.servicebus.disposition_status", status));
    }
    let is_single = matches!(operation.messages, [_]) && operation.message_count == 1;
    // The conventions want it left out where there can be only one.
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
            span.set_attribute(KeyValue::new(key, cut(text)));
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

/// An entity in the words of the conventions.
struct Destination {
    /// The queue or topic, with the suffix of a sub-queue.
    name: String,
    /// The subscription of a topic, with that suffix.
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

/// What a message says it belongs to, as the header of a request.
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

/// The type of an operation; none of one that is of several.
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

/// Of a settlement what the conventions call it; they have no word for a release.
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
