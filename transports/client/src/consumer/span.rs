//! The tracing span of a delivery, so that a handler's log lines identify the message.

use tracing::Span;

use crate::{Received, TraceContext};

/// Returns the span of a delivery, at the level INFO, with the entity's path, the sequence number,
/// the delivery count, and the trace of the message.
pub(super) fn of(path: &str, message: &Received, trace: Option<&TraceContext>) -> Span {
    let span = tracing::info_span!(
        "delivery",
        path,
        sequence_number = message.sequence_number().0,
        delivery_count = message.delivery_count(),
        message_id = tracing::field::Empty,
        traceparent = tracing::field::Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(id) = &message.message().message_id {
        span.record("message_id", tracing::field::display(id));
    }
    if let Some(trace) = trace {
        span.record("traceparent", trace.traceparent());
    }
    span
}
