//! History of message ids for duplicate detection, as keyed hashes in time buckets (DUP-01). A
//! bucket spans an eighth of the window and is forgotten as a whole. Queues and topics own one if
//! they detect duplicates.

use std::collections::{BTreeMap, VecDeque};

use super::Ctx;
use crate::change::Change;
use crate::command::InboundMessage;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::message::Envelope;
use crate::time::{TimeSpan, Timestamp};

const BUCKETS_PER_WINDOW: i64 = 8;
/// Maximum number of forgotten ids whose memory is freed in one step, which takes about a
/// millisecond.
const FREED_PER_STEP: usize = 10_000;

/// Ids accepted within the window, oldest bucket first.
#[derive(Debug, Default)]
pub(crate) struct DuplicateHistory {
    buckets: VecDeque<Bucket>,
    count: usize,
    /// Ids of forgotten buckets, whose memory is freed in parts.
    forgotten: Vec<BTreeMap<u128, Acceptance>>,
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
    /// Sequence number of a scheduled message, else 0.
    sequence: SequenceNumber,
}

impl DuplicateHistory {
    /// Returns the acceptance that makes an id a duplicate at `now`, if there is one (DUP-05): the
    /// number of a message that was scheduled, else 0.
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

    /// Returns the change that remembers an id accepted now; `sequence` is the number of a
    /// scheduled message.
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

    /// Returns the number for the sender of a dropped duplicate. Only a sender that schedules can
    /// use the number of the scheduled message, to cancel it (DUP-12). Any other sender gets 0,
    /// which means that the message was dropped (DUP-02).
    pub(crate) const fn number_for_sender(
        envelope: &Envelope,
        earlier: SequenceNumber,
    ) -> SequenceNumber {
        match envelope.scheduled_enqueue_time {
            Some(_) => earlier,
            None => SequenceNumber(0),
        }
    }

    /// Returns the change that forgets the oldest bucket, if its latest acceptance is older than
    /// the window.
    pub(crate) fn forget_oldest(&self, now: Timestamp, window: TimeSpan) -> Option<Change> {
        let oldest = self.buckets.front()?;
        (oldest.last_at.plus(window) <= now)
            .then_some(Change::IdsForgotten { bucket: oldest.start })
    }

    /// Refuses messages with an id if the history has reached its limit (DUP-01).
    pub(crate) fn refuse_if_full(
        &self,
        messages: &[InboundMessage],
        path: &str,
        window: TimeSpan,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let count_max = ctx.limits.duplicate_id_count_max;
        let left = ctx.remaining.duplicate_ids;
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
                "the broker already keeps {} message ids for duplicate detection, the limit \
                 `broker_duplicate_id_count_max`; use a shorter duplicate detection window",
                ctx.limits.broker_duplicate_id_count_max
            )));
        }
        if self.len() + fresh <= count_max {
            return Ok(());
        }
        Err(Rejection::quota_exceeded(format!(
            "duplicate detection history of `{path}` is full: {} of {count_max} message ids; wait \
             until ids expire, or use a shorter duplicate detection window",
            self.len()
        )))
    }

    /// Returns the start of the bucket for an acceptance at `now`.
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

    /// Forgets a bucket. [`Self::free_memory`] frees the memory of its ids.
    pub(crate) fn forget(&mut self, start: Timestamp) {
        let Some(place) = self.buckets.iter().position(|bucket| bucket.start == start) else {
            return;
        };
        if let Some(bucket) = self.buckets.remove(place) {
            self.count -= bucket.ids.len();
            self.forgotten.push(bucket.ids);
        }
    }

    /// Frees memory of forgotten buckets, at most [`FREED_PER_STEP`] ids.
    pub(crate) fn free_memory(&mut self) {
        let mut left = FREED_PER_STEP;
        while let Some(ids) = self.forgotten.last_mut() {
            while left > 0 && ids.pop_first().is_some() {
                left -= 1;
            }
            if left == 0 {
                return;
            }
            self.forgotten.pop();
        }
    }

    /// Instant at which the oldest bucket leaves the window; in the past while memory is still to
    /// be freed.
    pub(crate) fn next_deadline(&self, window: TimeSpan) -> Option<Timestamp> {
        if !self.forgotten.is_empty() {
            return Some(Timestamp::NONE);
        }
        self.buckets.front().map(|bucket| bucket.last_at.plus(window))
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: TimeSpan = TimeSpan::from_seconds(80);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(1_800_000_000_000).plus(TimeSpan::from_seconds(seconds))
    }

    fn accept(history: &mut DuplicateHistory, id_hash: u128, now: Timestamp) {
        let change = history.remember(id_hash, None, now, WINDOW);
        if let Change::IdRecorded { bucket, id_hash, at, sequence } = change {
            history.record(bucket, id_hash, at, sequence);
        }
    }

    fn forget(history: &mut DuplicateHistory, now: Timestamp) {
        while let Some(Change::IdsForgotten { bucket }) = history.forget_oldest(now, WINDOW) {
            history.forget(bucket);
        }
    }

    /// DUP-01, DUP-05: a large bucket is forgotten at once, and its memory is freed in bounded
    /// steps, each of which the deadline requests.
    #[test]
    fn duplicate_history_frees_memory_of_buckets_in_steps() {
        let mut history = DuplicateHistory::default();
        for id_hash in 0..25_000 {
            accept(&mut history, id_hash, at(0));
        }
        accept(&mut history, 25_000, at(40));
        forget(&mut history, at(80));
        assert_eq!(history.len(), 1);
        assert_eq!(history.find(7, at(80), WINDOW), None);
        let held = |history: &DuplicateHistory| history.forgotten.iter().map(BTreeMap::len).sum();
        for left in [25_000_usize, 15_000, 5_000] {
            assert_eq!(held(&history), left);
            assert_eq!(history.next_deadline(WINDOW), Some(Timestamp::NONE), "a step is wanted");
            history.free_memory();
        }
        assert_eq!((held(&history), history.forgotten.len()), (0, 0));
        assert_eq!(history.next_deadline(WINDOW), Some(at(120)));
    }

    /// DUP-01, DUP-05: the history always knows exactly the ids of the window, at any time and in
    /// any state of freeing memory.
    #[test]
    fn duplicate_history_knows_ids_of_window_while_freeing_memory() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut history = DuplicateHistory::default();
        let mut plain: BTreeMap<u128, Timestamp> = BTreeMap::new();
        let mut now = at(0);
        for _ in 0..20_000 {
            now = now.plus(TimeSpan::from_ms(i64::try_from(random(400)).unwrap()));
            forget(&mut history, now);
            if random(3) == 0 {
                history.free_memory();
            }
            let id_hash = u128::from(random(600));
            let is_known = plain.get(&id_hash).is_some_and(|at| at.plus(WINDOW) > now);
            assert_eq!(history.find(id_hash, now, WINDOW).is_some(), is_known, "{id_hash}");
            if !is_known {
                accept(&mut history, id_hash, now);
                plain.insert(id_hash, now);
            }
            let stored: usize = history.buckets.iter().map(|bucket| bucket.ids.len()).sum();
            assert_eq!(history.len(), stored);
        }
    }
}
