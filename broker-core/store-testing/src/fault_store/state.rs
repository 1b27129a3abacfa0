//! State of a [`FaultStore`](super::FaultStore), and of each of its shards.

use std::collections::{BTreeMap, VecDeque};

use peeklock_store::{BatchId, Completion, ContentOp, Record, Shard, Submission, Waker};

use crate::faults::{Fate, Room};

/// Spaces with the records of the whole store, which batches of all shards write.
const SPACES_OF_NO_SHARD: [u64; 2] = [0, 1 << 63];

pub(super) struct State {
    pub(super) shards: Vec<ShardState>,
    pub(super) room: Room,
    pub(super) waiting: Vec<Waker>,
    pub(super) reserved_bytes: u64,
    pub(super) overdrawn: bool,
    /// The shard to which each space belongs, from its first record on.
    pub(super) shard_of_space: BTreeMap<u64, Shard>,
    pub(super) at_once: bool,
    /// Whether the next question for records fails.
    pub(super) refuses_exists: bool,
    /// Whether contents are not shared between shards.
    pub(super) separates_contents: bool,
    /// Fates of the next amendments; later ones are stored.
    pub(super) amend_fates: VecDeque<Fate>,
    pub(super) fate_here: Option<Fate>,
    /// Contents that contain this text are pinned as invalid messages.
    pub(super) spoilt: Option<&'static str>,
    /// Called at the next reservation.
    pub(super) on_reserve: Option<Box<dyn FnOnce() + Send>>,
    pub(super) ended: bool,
}

#[derive(Default)]
pub(super) struct ShardState {
    pub(super) epoch: u64,
    pub(super) queue: VecDeque<(Submission, Completion)>,
    pub(super) failed: bool,
    pub(super) unknown: Option<Unknown>,
    /// Reservations of batches without a definite outcome, by epoch and id.
    pub(super) owed: BTreeMap<(u64, u64), u64>,
    /// The highest stored id, and the highest id that was reported as stored.
    pub(super) stored: u64,
    pub(super) answered: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Unknown {
    pub(super) id: BatchId,
    pub(super) holds: bool,
}

impl State {
    /// Returns the fault of a batch with records in a space of another shard.
    pub(super) fn foreign_space(&mut self, submission: &Submission) -> Option<String> {
        let &[fence] = submission.fences.as_slice() else { return None };
        let separates_contents = self.separates_contents;
        submission.batch.records().find_map(|record| {
            if let Record::Put { content: ContentOp::Of(source), .. } = record
                && separates_contents
                && let Some(owner) = self.shard_of_space.get(&space_of(source))
                && *owner != fence.shard
            {
                return Some(format!("a content of shard {} is named", owner.0));
            }
            let (key, shard) = match record {
                Record::DeleteIn { shard, key } => (key, Shard(shard)),
                Record::Put { key, .. }
                | Record::Delete { key }
                | Record::DeletePrefix { prefix: key } => (key, fence.shard),
            };
            let space = space_of(key);
            if SPACES_OF_NO_SHARD.contains(&space) {
                return None;
            }
            let owner = *self.shard_of_space.entry(space).or_insert(shard);
            (owner != shard).then(|| {
                format!("space {space} belongs to shard {}, not to shard {}", owner.0, shard.0)
            })
        })
    }

    pub(super) const fn give_back(&mut self, bytes: u64) {
        if bytes > self.reserved_bytes {
            self.overdrawn = true;
        }
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
    }
}

/// Whether the reservation of a batch was already released, or is recorded.
pub(super) fn is_repetition(of_shard: &ShardState, epoch: u64, id: BatchId) -> bool {
    of_shard.owed.contains_key(&(epoch, id.0))
        || (of_shard.epoch == epoch && id.0 <= of_shard.stored)
}

fn space_of(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |space| u64::from_be_bytes(*space))
}
