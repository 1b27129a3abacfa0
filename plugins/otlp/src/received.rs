//! What was received, so that its settlement belongs to the same trace: a settlement says nothing but a number.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;

use opentelemetry::trace::SpanContext;
use peeklock_core::ids::SequenceNumber;

/// So many are remembered, the latest; the settlement of an earlier one begins a trace of its own.
const REMEMBERED_MAX: usize = 16_384;

/// The entity, by a hash of its path, and the number.
type Place = (u64, SequenceNumber);

/// By which span a message was last received.
#[derive(Default)]
pub(crate) struct Received {
    hasher: RandomState,
    spans: HashMap<Place, (u64, SpanContext)>,
    /// In the order in which they came, with the number of their coming; one that was settled stands here still.
    order: VecDeque<(u64, Place)>,
    count: u64,
}

impl Received {
    pub(crate) fn note(&mut self, path: &str, sequence: SequenceNumber, span: &SpanContext) {
        let place = self.place(path, sequence);
        self.count += 1;
        self.spans.insert(place, (self.count, span.clone()));
        self.order.push_back((self.count, place));
        if self.order.len() <= REMEMBERED_MAX {
            return;
        }
        let Some((number, oldest)) = self.order.pop_front() else { return };
        // It may have been received again since.
        if self.spans.get(&oldest).is_some_and(|(latest, _)| *latest == number) {
            self.spans.remove(&oldest);
        }
    }

    /// Takes it out: who settles once does not settle again.
    pub(crate) fn take(&mut self, path: &str, sequence: SequenceNumber) -> Option<SpanContext> {
        self.spans.remove(&self.place(path, sequence)).map(|(_, span)| span)
    }

    fn place(&self, path: &str, sequence: SequenceNumber) -> Place {
        (self.hasher.hash_one(path), sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However much is received, no more is remembered; one that was received again keeps its later span.
    #[test]
    fn the_latest_are_remembered() {
        let mut received = Received::default();
        let span = SpanContext::empty_context();
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            received.note("orders", SequenceNumber(number), &span);
        }
        assert_eq!((received.spans.len(), received.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(received.take("orders", SequenceNumber(9)).is_none());
        assert!(received.take("orders", SequenceNumber(10)).is_some());
        assert!(received.take("orders", SequenceNumber(10)).is_none());
        assert!(received.take("parcels", SequenceNumber(11)).is_none());
        // Settled and received again and again, without end.
        for _ in 0..3 * REMEMBERED_MAX {
            received.note("orders", SequenceNumber(11), &span);
            assert!(received.take("orders", SequenceNumber(11)).is_some());
        }
        assert!(received.order.len() <= REMEMBERED_MAX);
    }
}
