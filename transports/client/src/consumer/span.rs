//! What a handler logs is said of its message.

use peeklock_core::message::Value;
use tracing::Span;

use crate::Received;

/// The property by which tracing goes on from who has sent a message (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";
/// The same, as the older SDKs of Azure name it.
const DIAGNOSTIC_ID: &str = "Diagnostic-Id";

/// The span of one delivery, at the level INFO: where it comes from, its number, how often it was delivered, and the
/// trace that it belongs to.
pub(super) fn of(path: &str, message: &Received) -> Span {
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
    let named = |name| match message.message().application_property(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    if let Some(traceparent) = named(TRACEPARENT).or_else(|| named(DIAGNOSTIC_ID)) {
        span.record("traceparent", &**traceparent);
    }
    span
}
