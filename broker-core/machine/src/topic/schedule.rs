//! Scheduled messages: they wait at the topic, and are judged by the rules when their instant is
//! reached (SCH-10).
//!
//! The topic keeps no contents in memory. So it requests the contents of due messages, a bounded
//! number at a time, and publishes each message when its content arrives.

use bytes::Bytes;

use super::Topic;
use super::copies::{InheritedProperties, StagedCopies};
use super::publish::Journey;
use crate::change::{Change, Durability, PublishedContent, Removal};
use crate::command::Outcome;
use crate::effect::{Answer, Effect};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::Intake as _;
use crate::message::{Content, Overlay};
use crate::slot::{Mark, Marks};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput, intake};

/// Maximum number of messages loaded at once. A load also ends at [`LOAD_BYTES_MAX`].
const LOAD_COUNT_MAX: usize = 256;
const LOAD_BYTES_MAX: u64 = 4 << 20;
/// Delay before the next attempt with a message whose content could not be read, or that would
/// exceed a limit now.
const LOAD_AGAIN_AFTER: TimeSpan = TimeSpan::from_minutes(1);

impl Topic {
    /// Removes scheduled messages by number, all or none (SCH-04, SCH-05).
    pub(super) fn cancel_scheduled(
        &mut self,
        sequences: &[SequenceNumber],
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.check_cancelled(sequences)?;
        self.cancel(sequences, ctx, step);
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Removes scheduled messages after [`Intake::check_cancelled`].
    pub(super) fn cancel(
        &mut self,
        sequences: &[SequenceNumber],
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        for sequence in sequences {
            let Some(slot) = self.slots.get(*sequence) else { continue };
            step.bytes_freed += u64::from(slot.size);
            let change = Change::Removed {
                sequence: *sequence,
                overlay_count: slot.overlay_count,
                reason: Removal::Cancelled,
            };
            self.change(change, Durability::Sync, ctx, step);
        }
    }

    /// Adds a scheduled message to the index of due instants.
    pub(super) fn watch_schedule(&mut self, sequence: SequenceNumber, at: Timestamp) {
        self.schedule.insert(at, sequence);
    }

    /// Removes a scheduled message from the index, also if it waits for another attempt.
    pub(super) fn unwatch_schedule(&mut self, sequence: SequenceNumber, at: Timestamp) {
        self.schedule.remove(at, sequence);
        if let Some(again) = self.retries.remove(&sequence) {
            self.schedule.remove(again, sequence);
        }
    }

    /// Lets a due message wait for another attempt to publish it.
    fn try_again(&mut self, sequence: SequenceNumber, now: Timestamp) {
        let at = now.plus(LOAD_AGAIN_AFTER);
        self.schedule.insert(at, sequence);
        self.retries.insert(sequence, at);
    }

    /// Requests the contents of due messages, by instant, then by number (SCH-07), unless a load is
    /// in progress.
    pub(super) fn ask_for_due(&mut self, ctx: &Ctx<'_>, step: &mut StepOutput) {
        if !self.loading.is_empty() {
            return;
        }
        let mut bytes = 0u64;
        while self.loading.len() < LOAD_COUNT_MAX && bytes < LOAD_BYTES_MAX {
            let Some((_, sequence)) = self.schedule.pop_due(ctx.now) else { break };
            self.retries.remove(&sequence);
            if !self.is_durably_scheduled(sequence) {
                continue;
            }
            bytes += self.slots.get(sequence).map_or(0, |slot| u64::from(slot.size));
            self.loading.push_back(sequence);
        }
        if !self.loading.is_empty() {
            let sequences = self.loading.iter().copied().collect();
            step.effects.push(Effect::Load { sequences, bytes });
        }
    }

    /// Returns the journey of a scheduled message.
    pub(super) fn journey_of_scheduled(&self, from: SequenceNumber) -> Option<Journey> {
        let slot = self.slots.get(from)?;
        Some(Journey {
            hops: slot.hops,
            first: slot.enqueued_sequence,
            changes: self.sources.get(&from).map(|path| Overlay::dead_letter_source(path)),
            copies_spent: slot.copies_spent,
            marks: Marks::never_duplicate(slot.is_never_duplicate()).with(Mark::WasScheduled),
        })
    }

    /// Publishes due messages as if they were sent now (SCH-03), by the rules in force now
    /// (TOP-09).
    pub(super) fn publish_due(
        &mut self,
        contents: Vec<(SequenceNumber, Option<Bytes>)>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) {
        for (from, bytes) in contents {
            // Contents of other messages are still being loaded; until they arrive, no further load
            // begins.
            if let Some(place) = self.loading.iter().position(|one| *one == from) {
                self.loading.remove(place);
            }
            // The message may have been cancelled meanwhile.
            let Some(slot) = self.slots.get(from).copied() else { continue };
            let Some(content) = bytes.and_then(|bytes| Content::parse(bytes).ok()) else {
                self.try_again(from, ctx.now);
                continue;
            };
            let sequence = self.last_sequence.next();
            let Some(journey) = self.journey_of_scheduled(from) else { continue };
            if self.is_due_unjudged() {
                self.try_again(from, ctx.now);
                continue;
            }
            let selection = self.select(&content, &journey, sequence, ctx);
            if selection.excess.is_some()
                || StagedCopies::of(&selection, &journey).exceeded_limit(ctx.limits).is_some()
                || !self.has_allowance_for(&selection, &journey)
                || intake::refuse_too_many_messages(selection.copies.len(), ctx).is_err()
            {
                // It waits until its rules or the limits allow it, since no message may be lost.
                self.try_again(from, ctx.now);
                continue;
            }
            let inherited = InheritedProperties::of_content(&content);
            let copies = self.copies((&content, &inherited), sequence, selection, &journey, ctx);
            step.bytes_freed += u64::from(slot.size);
            self.note_sample((&content, &journey), sequence, copies.len(), ctx.now, step);
            self.publish(sequence, PublishedContent::Scheduled(from), copies, ctx, step);
            if self.slots.is_empty() {
                self.usage.touch(ctx.now);
            }
        }
    }
}
