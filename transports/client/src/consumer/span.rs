//! What a handler logs is said of its message.

use tracing::Span;

use crate::{Received, TraceContext};

/// The span of one delivery, at the level INFO: where it comes from, its number, how often it was delivered, and the
/// trace that it belongs to.
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
