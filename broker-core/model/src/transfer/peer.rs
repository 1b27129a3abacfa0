//! Identity of messages that another broker forwards to this one. `machine/src/peers.rs` remembers
//! them to recognise repetitions.

use crate::ids::{EntityId, SequenceNumber};
use crate::path::SubQueue;
use crate::time::Timestamp;

/// Number of messages remembered for each source: four lists of the maximum length.
pub const REMEMBERED_MAX: u64 = 1_024;
/// A queue of another broker that forwards here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerSource {
    /// Id of the broker: random, and stored with its data.
    pub broker: u128,
    /// Id of the entity; ids are never reused.
    pub entity: EntityId,
    /// Whether its messages or its dead letters are forwarded.
    pub sub_queue: SubQueue,
}

/// A message from such a source that was taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerRecord {
    /// Number of messages taken from this source before it.
    pub ordinal: u64,
    /// Its number at the source.
    pub sequence: SequenceNumber,
    /// Instant of enqueueing at the source.
    pub enqueued_at: Timestamp,
    /// Instant at which it was taken over.
    pub at: Timestamp,
}

impl PeerRecord {
    /// Place in the ring of remembered messages of its source.
    #[must_use]
    pub const fn place(&self) -> u64 {
        self.ordinal % REMEMBERED_MAX
    }
}
