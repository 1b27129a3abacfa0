//! Memory of the messages that other brokers forwarded here recently, so that a repeated message is
//! not stored twice.
//!
//! A source offers a message again if it stopped or lost its connection before it had recorded the
//! answer. Only the last list of a source can be affected: it forwards the next list when the
//! removal of the previous one is durable. So a ring with the last messages of each source is
//! sufficient, in any order of their numbers: messages that were locked, and dead letters, come
//! later than higher numbers.
//!
//! Two messages are the same if their numbers and the instants of their enqueueing are equal. The
//! instant distinguishes a message that got the same number after the source was restored from an
//! older copy of its data.

use std::collections::BTreeMap;

pub use peeklock_model::transfer::peer::{PeerRecord, PeerSource, REMEMBERED_MAX};

use crate::ids::SequenceNumber;
use crate::time::Timestamp;

/// Maximum number of sources of an entity. A further source replaces the source that was silent
/// longest.
pub const SOURCES_MAX: usize = 64;

/// Remembered messages of all sources.
#[derive(Debug, Default)]
pub struct Peers {
    sources: BTreeMap<PeerSource, SourceMemory>,
    /// Number of messages in all rings.
    count: usize,
}

/// Remembered messages of a source.
#[derive(Debug, Default)]
struct SourceMemory {
    /// Messages by place in the ring: the ordinal modulo [`REMEMBERED_MAX`].
    ring: BTreeMap<u64, PeerRecord>,
    /// Number of occurrences of a message in the ring, by number and instant.
    known: BTreeMap<(SequenceNumber, Timestamp), u32>,
    next: u64,
    last_at: Timestamp,
}

impl Peers {
    /// Number of remembered messages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether no message is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether another message of this source needs more memory: its ring is not full.
    #[must_use]
    pub fn grows_by(&self, source: &PeerSource) -> bool {
        let remembered = self.sources.get(source).map_or(0, |memory| memory.ring.len());
        (remembered as u64) < REMEMBERED_MAX
    }

    /// Whether the message was taken already.
    #[must_use]
    pub fn contains(
        &self,
        source: &PeerSource,
        sequence: SequenceNumber,
        enqueued_at: Timestamp,
    ) -> bool {
        self.sources
            .get(source)
            .is_some_and(|memory| memory.known.contains_key(&(sequence, enqueued_at)))
    }

    /// Returns the record of a message that is taken now.
    #[must_use]
    pub fn record(
        &self,
        source: &PeerSource,
        sequence: SequenceNumber,
        enqueued_at: Timestamp,
        at: Timestamp,
    ) -> PeerRecord {
        let ordinal = self.sources.get(source).map_or(0, |memory| memory.next);
        PeerRecord { ordinal, sequence, enqueued_at, at }
    }

    /// Returns the source to forget before `newcomer` is added, if the number of sources is at its
    /// limit.
    #[must_use]
    pub fn source_to_forget(&self, newcomer: &PeerSource) -> Option<PeerSource> {
        if self.sources.len() < SOURCES_MAX || self.sources.contains_key(newcomer) {
            return None;
        }
        let silent = self.sources.iter().min_by_key(|(_, memory)| memory.last_at);
        silent.map(|(source, _)| *source)
    }

    /// Remembers a message; the previous message at its place in the ring is forgotten. Messages
    /// from the store come in any order.
    pub fn remember(&mut self, source: PeerSource, record: PeerRecord) {
        let memory = self.sources.entry(source).or_default();
        memory.next = memory.next.max(record.ordinal.saturating_add(1));
        memory.last_at = memory.last_at.max(record.at);
        let old = memory.ring.insert(record.place(), record);
        self.count += usize::from(old.is_none());
        if let Some(old) = old {
            let name = (old.sequence, old.enqueued_at);
            if let Some(count) = memory.known.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    memory.known.remove(&name);
                }
            }
        }
        *memory.known.entry((record.sequence, record.enqueued_at)).or_default() += 1;
    }

    /// Forgets a source.
    pub fn forget(&mut self, source: &PeerSource) {
        if let Some(memory) = self.sources.remove(source) {
            self.count -= memory.ring.len();
        }
    }

    /// Iterates over all remembered messages, by source and place.
    pub fn iter(&self) -> impl Iterator<Item = (&PeerSource, &PeerRecord)> {
        self.sources
            .iter()
            .flat_map(|(source, memory)| memory.ring.values().map(move |record| (source, record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::EntityId;
    use crate::path::SubQueue;

    fn source(broker: u128) -> PeerSource {
        PeerSource { broker, entity: EntityId(3), sub_queue: SubQueue::Main }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    fn take(peers: &mut Peers, source: &PeerSource, number: u64, now: i64) {
        let record = peers.record(source, SequenceNumber(number), at(0), at(now));
        peers.remember(*source, record);
    }

    fn contains(peers: &Peers, source: &PeerSource, number: u64) -> bool {
        peers.contains(source, SequenceNumber(number), at(0))
    }

    #[test]
    fn peers_know_last_messages_of_source_in_any_order() {
        let mut peers = Peers::default();
        for number in [9, 2, 7] {
            assert!(!contains(&peers, &source(1), number));
            take(&mut peers, &source(1), number, 1);
        }
        for number in 0..20 {
            assert_eq!(contains(&peers, &source(1), number), [2, 7, 9].contains(&number));
        }
        for other in [
            source(2),
            PeerSource { entity: EntityId(4), ..source(1) },
            PeerSource { sub_queue: SubQueue::DeadLetter, ..source(1) },
        ] {
            assert!(!contains(&peers, &other, 9), "{other:?}");
        }
    }

    /// The source was restored from an older copy of its data and gave the number again.
    #[test]
    fn peers_distinguish_messages_by_instant() {
        let mut peers = Peers::default();
        take(&mut peers, &source(1), 9, 1);
        assert!(!peers.contains(&source(1), SequenceNumber(9), at(1)));
    }

    #[test]
    fn peer_ring_forgets_oldest_message_when_full() {
        let mut peers = Peers::default();
        let last = 3 * REMEMBERED_MAX;
        for number in 1..=last {
            take(&mut peers, &source(1), number, 1);
        }
        assert!(!contains(&peers, &source(1), last - REMEMBERED_MAX));
        assert!(contains(&peers, &source(1), last - REMEMBERED_MAX + 1));
        assert_eq!(peers.iter().count() as u64, REMEMBERED_MAX);
    }

    #[test]
    fn peers_forget_longest_silent_source_at_limit() {
        let mut peers = Peers::default();
        for broker in 0..SOURCES_MAX as u128 {
            assert_eq!(peers.source_to_forget(&source(broker)), None);
            take(&mut peers, &source(broker), 1, if broker == 5 { 1 } else { 2 });
        }
        assert_eq!(peers.source_to_forget(&source(0)), None, "it is there already");
        assert_eq!(peers.source_to_forget(&source(1_000)), Some(source(5)));
        peers.forget(&source(5));
        assert_eq!(peers.source_to_forget(&source(1_000)), None);
        assert!(!contains(&peers, &source(5), 1));
    }

    /// Records that are read back in the order of keys continue the ring.
    #[test]
    fn peers_continue_ring_after_restore() {
        let mut peers = Peers::default();
        for number in 1..=REMEMBERED_MAX + 10 {
            take(&mut peers, &source(1), number * 7 % 5_000, 1);
        }
        let mut again = Peers::default();
        for (source, record) in peers.iter() {
            again.remember(*source, *record);
        }
        for number in 0..5_000 {
            assert_eq!(
                contains(&again, &source(1), number),
                contains(&peers, &source(1), number),
                "{number}"
            );
        }
        let next = |peers: &Peers| peers.record(&source(1), SequenceNumber(0), at(0), at(9));
        assert_eq!(next(&again), next(&peers));
    }
}
