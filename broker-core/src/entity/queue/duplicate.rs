//! Duplicate detection: message ids of the window, as keyed hashes in time buckets that die whole
//! (DUP-01). A bucket spans an eighth of the window.

use std::collections::{BTreeMap, VecDeque};

use super::Queue;
use crate::change::{Change, Durability};
use crate::command::InboundMessage;
use crate::entity::slot::SlotState;
use crate::entity::{Ctx, Step};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

const BUCKETS_PER_WINDOW: i64 = 8;

/// The ids accepted within the window, oldest bucket first.
#[derive(Debug, Default)]
pub(super) struct DuplicateHistory {
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
    /// The acceptance that makes an id a duplicate at `now`, if there is one (DUP-05).
    fn find(&self, id_hash: u128, now: Timestamp, window: TimeSpan) -> Option<Acceptance> {
        self.buckets
            .iter()
            .rev()
            .filter_map(|bucket| bucket.ids.get(&id_hash).copied())
            .find(|acceptance| acceptance.at.plus(window) > now)
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

    pub(super) fn record(
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

    pub(super) fn forget(&mut self, start: Timestamp) {
        self.buckets.retain(|bucket| {
            if bucket.start == start {
                self.count -= bucket.ids.len();
            }
            bucket.start != start
        });
    }

    /// When the oldest bucket is outside the window.
    pub(super) fn next_deadline(&self, window: TimeSpan) -> Option<Timestamp> {
        self.buckets.front().map(|bucket| bucket.last_at.plus(window))
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }
}

impl Queue {
    /// Looks an id up. A hit gives the number to answer with: that of the kept message if it is
    /// still scheduled, else 0 (DUP-12).
    pub(super) fn find_duplicate(
        &self,
        id_hash: Option<u128>,
        now: Timestamp,
    ) -> Option<SequenceNumber> {
        let window = self.description.duplicate_detection_history_time_window;
        let found = self.duplicates.as_ref()?.find(id_hash?, now, window)?;
        let scheduled =
            self.slots.get(found.sequence).is_some_and(|slot| slot.state == SlotState::Scheduled);
        Some(if scheduled { found.sequence } else { SequenceNumber(0) })
    }

    /// Remembers the id of a message that was just accepted.
    pub(super) fn remember_id(
        &mut self,
        id_hash: Option<u128>,
        sequence: SequenceNumber,
        scheduled: bool,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) {
        let (Some(history), Some(id_hash)) = (&self.duplicates, id_hash) else { return };
        let window = self.description.duplicate_detection_history_time_window;
        let change = Change::IdRecorded {
            bucket: history.bucket_for(ctx.now, window),
            id_hash,
            at: ctx.now,
            sequence: if scheduled { sequence } else { SequenceNumber(0) },
        };
        self.change(change, Durability::Sync, ctx, step);
    }

    /// Refuses messages with an id when the history can take no more of them (DUP-01).
    pub(super) fn refuse_full_history(
        &self,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let Some(history) = &self.duplicates else { return Ok(()) };
        let count_max = ctx.limits.duplicate_id_count_max;
        if history.len() + messages.len() <= count_max {
            return Ok(());
        }
        let fresh = messages
            .iter()
            .filter(|message| message.envelope.message_id_hash.is_some())
            .filter(|message| {
                self.find_duplicate(message.envelope.message_id_hash, ctx.now).is_none()
            })
            .count();
        if history.len() + fresh <= count_max {
            return Ok(());
        }
        Err(Rejection::quota_exceeded(format!(
            "duplicate detection history of `{}` is full: {} of {count_max} message ids",
            self.path(),
            history.len()
        )))
    }

    /// Drops the buckets that every window has left.
    pub(super) fn forget_ids(&mut self, ctx: &Ctx<'_>, step: &mut Step) {
        let window = self.description.duplicate_detection_history_time_window;
        while let Some(history) = &self.duplicates
            && let Some(oldest) = history.buckets.front()
            && oldest.last_at.plus(window) <= ctx.now
        {
            let change = Change::IdsForgotten { bucket: oldest.start };
            self.change(change, Durability::Lazy, ctx, step);
        }
    }
}
