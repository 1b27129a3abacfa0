//! Tests of the maximum size of a span.

use std::time::{Duration, SystemTime};

use allocation_counter::measure;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanProcessor};
use peeklock_core::contract::TRACED_MESSAGES_MAX;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::Timestamp;

use super::*;
use crate::config::Endpoint;

/// Collects ended spans in preallocated memory.
#[derive(Clone, Debug)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Kept {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Returns a message whose texts have their maximum size.
fn message(number: u64, state: &str) -> TracedMessage {
    TracedMessage {
        sequence: Some(SequenceNumber(number)),
        message_id: Some("ä".repeat(128).into()),
        correlation_id: Some("c".repeat(32 << 10).into()),
        traceparent: Some(format!("00-{number:032x}-{number:016x}-01").into()),
        tracestate: Some(state.into()),
        delivery_count: Some(1),
        enqueued_at: Some(Timestamp::from_unix_ms(1_800_000_000_000)),
    }
}

/// Returns the memory of the span of an operation while it waits, in bytes.
fn memory_of(operation: &Operation<'_>) -> usize {
    let kept = Kept(Arc::new(Mutex::new(Vec::with_capacity(1))));
    let provider = SdkTracerProvider::builder().with_span_processor(kept.clone()).build();
    let endpoint = Endpoint::new("http://127.0.0.1:4318", Vec::new()).unwrap();
    let collector = Arc::new(Collector::new(&endpoint, "traces"));
    let spans = Spans::new(provider.tracer("test"), collector, 10);
    // The first call creates everything that is shared by all spans.
    spans.record(operation);
    kept.0.lock().unwrap().clear();
    let counted = measure(|| spans.record(operation));
    assert_eq!(kept.0.lock().unwrap().len(), 1);
    usize::try_from(counted.bytes_current).unwrap() + size_of::<SpanData>()
}

/// DESIGN D6: a span takes at most the memory in docs/reference/security.md for any input: ids of any length, a
/// trace for each message of a batch, and the most and the longest members of a `tracestate`.
#[test]
fn a_span_has_its_size() {
    let many: Vec<String> = (0..32).map(|number| format!("{number}=")).collect();
    let long: Vec<String> = (0..8).map(|number| format!("{number}={}", "x".repeat(60))).collect();
    let path = format!("{}/Subscriptions/{}/$deadletterqueue", "t".repeat(260), "s".repeat(50));
    let rejection = Rejection::argument("e".repeat(4_096));
    for state in [many.join(","), long.join(",")] {
        let messages: Vec<TracedMessage> =
            (1..=TRACED_MESSAGES_MAX as u64).map(|number| message(number, &state)).collect();
        for (kind, messages) in [
            (OperationKind::Send, &messages[..]),
            (OperationKind::Send, &messages[..1]),
            (OperationKind::Receive, &messages[..1]),
        ] {
            let bytes = memory_of(&Operation {
                kind,
                path: &path,
                began_at: SystemTime::UNIX_EPOCH,
                ended_at: SystemTime::UNIX_EPOCH,
                message_count: messages.len() as u64,
                messages,
                result: Err(&rejection),
            });
            assert!(bytes <= SPAN_BYTES, "{bytes} bytes of a {kind:?} of {}", messages.len());
        }
    }
}
