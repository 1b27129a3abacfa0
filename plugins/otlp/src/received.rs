//! Spans of recent receives. A settlement names only a message's number, so `spans.rs` looks up the
//! span here to put the settlement into the same trace. The number of entries is bounded.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use peeklock_core::ids::SequenceNumber;

/// Maximum number of remembered receives. The settlement of an older one begins a new trace.
pub(crate) const REMEMBERED_MAX: usize = 16_384;
/// Maximum memory per remembered receive in bytes, including free space in the tables, which exist
/// twice while they grow.
pub(crate) const REMEMBERED_BYTES: usize = 500;

/// An entity, as the hash of its path, and a sequence number.
type MessageKey = (u64, SequenceNumber);

/// Span context without its `tracestate`: senders choose its size.
#[derive(Clone, Copy)]
struct SpanRef {
    trace: TraceId,
    span: SpanId,
    flags: TraceFlags,
}

/// The span that last received each message.
#[derive(Default)]
pub(crate) struct ReceivedSpans {
    hasher: RandomState,
    spans: HashMap<MessageKey, (u64, SpanRef)>,
    /// Receives in order, each with its running number. An entry stays after the message was
    /// settled.
    order: VecDeque<(u64, MessageKey)>,
    count: u64,
}

impl ReceivedSpans {
    pub(crate) fn note(&mut self, path: &str, sequence: SequenceNumber, span: &SpanContext) {
        let place = self.place(path, sequence);
        self.count += 1;
        let known =
            SpanRef { trace: span.trace_id(), span: span.span_id(), flags: span.trace_flags() };
        self.spans.insert(place, (self.count, known));
        self.order.push_back((self.count, place));
        if self.order.len() <= REMEMBERED_MAX {
            return;
        }
        let Some((number, oldest)) = self.order.pop_front() else { return };
        // A later receive of the same message must stay.
        if self.spans.get(&oldest).is_some_and(|(latest, _)| *latest == number) {
            self.spans.remove(&oldest);
        }
    }

    /// Removes and returns the span: a message is settled once.
    pub(crate) fn take(&mut self, path: &str, sequence: SequenceNumber) -> Option<SpanContext> {
        let (_, SpanRef { trace, span, flags }) = self.spans.remove(&self.place(path, sequence))?;
        Some(SpanContext::new(trace, span, flags, false, TraceState::NONE))
    }

    fn place(&self, path: &str, sequence: SequenceNumber) -> MessageKey {
        (self.hasher.hash_one(path), sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of remembered receives stays bounded, and a message that was received again keeps
    /// its later span.
    #[test]
    fn the_latest_are_remembered() {
        let mut received = ReceivedSpans::default();
        let span = SpanContext::empty_context();
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            received.note("orders", SequenceNumber(number), &span);
        }
        assert_eq!((received.spans.len(), received.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(received.take("orders", SequenceNumber(9)).is_none());
        assert!(received.take("orders", SequenceNumber(10)).is_some());
        assert!(received.take("orders", SequenceNumber(10)).is_none());
        assert!(received.take("parcels", SequenceNumber(11)).is_none());
        // Repeated receive and settle must not let the order grow.
        for _ in 0..3 * REMEMBERED_MAX {
            received.note("orders", SequenceNumber(11), &span);
            assert!(received.take("orders", SequenceNumber(11)).is_some());
        }
        assert!(received.order.len() <= REMEMBERED_MAX);
    }

    /// DESIGN D6: the remembered spans take at most the memory in docs/reference/security.md for any input, also
    /// while their number grows.
    #[test]
    fn remembered_spans_stay_within_their_memory_limit() {
        let members = (0..32).map(|number| (format!("k{number}"), String::new()));
        let state = TraceState::from_key_value(members).unwrap();
        let (trace, span) = (TraceId::from(1_u128), SpanId::from(1_u64));
        let span = SpanContext::new(trace, span, TraceFlags::SAMPLED, false, state);
        let counted = allocation_counter::measure(|| {
            let mut received = ReceivedSpans::default();
            let count = REMEMBERED_MAX as u64;
            for number in 0..4 * count {
                received.note("orders", SequenceNumber(number), &span);
                // Settle some messages after the tables are full.
                if number > 2 * count && number.is_multiple_of(3) {
                    received.take("orders", SequenceNumber(number));
                }
            }
        });
        let most = (REMEMBERED_MAX * REMEMBERED_BYTES) as u64;
        assert!(counted.bytes_max <= most, "{} of {most} bytes", counted.bytes_max);
    }
}
