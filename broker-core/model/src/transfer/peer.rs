//! What is known of a message that another broker forwards here.

use crate::ids::{EntityId, SequenceNumber};
use crate::path::SubQueue;
use crate::time::Timestamp;

/// Messages of one source that are remembered: four lists of the most that one list has.
pub const REMEMBERED_MAX: u64 = 1_024;
/// A queue of another broker that forwards here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerSource {
    /// The broker: random, kept with its data for ever.
    pub broker: u128,
    /// The entity; an id is never given twice.
    pub entity: EntityId,
    /// Whether its messages or its dead letters are forwarded.
    pub sub_queue: SubQueue,
}

/// A message of such a source that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taking {
    /// How many of this source were taken before it.
    pub ordinal: u64,
    /// Its number there.
    pub sequence: SequenceNumber,
    /// When it was enqueued there.
    pub enqueued_at: Timestamp,
    /// When it was taken here.
    pub at: Timestamp,
}

impl Taking {
    /// Its place in the ring of its source.
    #[must_use]
    pub const fn place(&self) -> u64 {
        self.ordinal % REMEMBERED_MAX
    }
}
