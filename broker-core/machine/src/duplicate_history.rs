//! Message ids of the duplicate detection window, as keyed hashes in time buckets that die whole
//! (DUP-01). A bucket spans an eighth of the window.

use std::collections::{BTreeMap, VecDeque};

use super::Ctx;
use crate::change::Change;
use crate::command::InboundMessage;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::message::Envelope;
use crate::time::{TimeSpan, Timestamp};

const BUCKETS_PER_WINDOW: i64 = 8;

/// The ids accepted within the window, oldest bucket first.
#[derive(Debug, Default)]
pub(crate) struct DuplicateHistory {
    buckets: VecDeque<Bucket>,
    count: usize,
}

#[derive(Debug)]
struct Bucket {
    start: Timestamp,
    /// The latest acceptance in it.
    last_at: Timestamp,
    ids: BTreeMap<u128, Acceptance>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acceptance {
    at: Timestamp,
    /// The number it got if it was scheduled, else 0.
    sequence: SequenceNumber,
}

impl DuplicateHistory {
    /// The acceptance that makes an id a duplicate at `now`, if there is one (DUP-05): the number of
    /// a message that was scheduled, else 0.
    pub(crate) fn find(
        &self,
        id_hash: u128,
        now: Timestamp,
        window: TimeSpan,
    ) -> Option<SequenceNumber> {
        self.buckets
            .iter()
            .rev()
            .filter_map(|bucket| bucket.ids.get(&id_hash).copied())
            .find(|acceptance| acceptance.at.plus(window) > now)
            .map(|acceptance| acceptance.sequence)
    }

    /// What remembers an id that is accepted now; `sequence` is the number of a scheduled message.
    pub(crate) fn remember(
        &self,
        id_hash: u128,
        sequence: Option<SequenceNumber>,
        now: Timestamp,
        window: TimeSpan,
    ) -> Change {
        Change::IdRecorded {
            bucket: self.bucket_for(now, window),
            id_hash,
            at: now,
            sequence: sequence.unwrap_or_default(),
        }
    }

    /// The number that the sender of a dropped duplicate is told: only who schedules has use for that of
    /// the message still scheduled, to cancel it (DUP-12). Any other sender is told 0, which says that the
    /// message was dropped (DUP-02).
    pub(crate) const fn told(envelope: &Envelope, kept: SequenceNumber) -> SequenceNumber {
        match envelope.scheduled_enqueue_time {
            Some(_) => kept,
            None => SequenceNumber(0),
        }
    }

    /// What forgets the oldest bucket, if every window has left it.
    pub(crate) fn forget_oldest(&self, now: Timestamp, window: TimeSpan) -> Option<Change> {
        let oldest = self.buckets.front()?;
        (oldest.last_at.plus(window) <= now)
            .then_some(Change::IdsForgotten { bucket: oldest.start })
    }

    /// Refuses messages with an id when the history can take no more of them (DUP-01).
    pub(crate) fn refuse_if_full(
        &self,
        messages: &[InboundMessage],
        path: &str,
        window: TimeSpan,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let count_max = ctx.limits.duplicate_id_count_max;
        let left = ctx.left.duplicate_ids;
        if self.len() + messages.len() <= count_max && messages.len() as u64 <= left {
            return Ok(());
        }
        let fresh = messages
            .iter()
            .filter_map(|message| message.envelope.message_id_hash)
            .filter(|id_hash| self.find(*id_hash, ctx.now, window).is_none())
            .count();
        if fresh as u64 > left {
            return Err(Rejection::quota_exceeded(format!(
                "the broker keeps {} message ids for duplicate detection, the limit \
                 `broker_duplicate_id_count_max`",
                ctx.limits.broker_duplicate_id_count_max
            )));
        }
        if self.len() + fresh <= count_max {
            return Ok(());
        }
        Err(Rejection::quota_exceeded(format!(
            "duplicate detection history of `{path}` is full: {} of {count_max} message ids",
            self.len()
        )))
    }

    /// The bucket that an acceptance at `now` belongs to.
    fn bucket_for(&self, now: Timestamp, window: TimeSpan) -> Timestamp {
        match self.buckets.back() {
            Some(last) if last.start.plus(window.divided_by(BUCKETS_PER_WINDOW)) > now => {
                last.start
            }
            Some(_) | None => now,
        }
    }

    pub(crate) fn record(
        &mut self,
        start: Timestamp,
        id_hash: u128,
        at: Timestamp,
        sequence: SequenceNumber,
    ) {
        if self.buckets.back().is_none_or(|last| last.start < start) {
            self.buckets.push_back(Bucket { start, last_at: at, ids: BTreeMap::new() });
        }
        let Some(bucket) = self.buckets.iter_mut().rev().find(|bucket| bucket.start == start)
        else {
            return;
        };
        bucket.last_at = bucket.last_at.max(at);
        if bucket.ids.insert(id_hash, Acceptance { at, sequence }).is_none() {
            self.count += 1;
        }
    }

    pub(crate) fn forget(&mut self, start: Timestamp) {
        self.buckets.retain(|bucket| {
            if bucket.start == start {
                self.count -= bucket.ids.len();
            }
            bucket.start != start
        });
    }

    /// When the oldest bucket is outside the window.
    pub(crate) fn next_deadline(&self, window: TimeSpan) -> Option<Timestamp> {
        self.buckets.front().map(|bucket| bucket.last_at.plus(window))
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }
}
