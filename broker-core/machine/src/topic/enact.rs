//! Effects of a change on the topic. Only this module alters durable state. `topic/mod.rs` calls it
//! for each change, also when records are restored.

use std::sync::Arc;

use super::{Topic, sessions_of};
use crate::change::{Change, PublishedContent, TopicChange};
use crate::family::CopySettings;
use crate::ids::SequenceNumber;
use crate::slot::{Mark, Slot};
use crate::{Machine as _, StageNumber};

impl Topic {
    /// Carries a change out. A scheduled message cannot become due before the stage is durable
    /// (DESIGN D5).
    pub(super) fn enact_change(&mut self, change: &Change, stage: StageNumber) {
        match change {
            Change::Accepted { sequence, slot, dead_letter_source, .. } => {
                self.insert(*sequence, *slot, dead_letter_source.clone());
                if let Some(slot) = self.slots.get_mut(*sequence) {
                    slot.marks.set(Mark::InFlight);
                }
                self.in_flight.push_back((stage, *sequence));
            }
            Change::Removed { sequence, .. } if !self.is_outbox_message(*sequence) => {
                self.take(*sequence);
            }
            Change::IdRecorded { bucket, id_hash, at, sequence } => {
                if let Some(history) = &mut self.duplicates {
                    history.record(*bucket, *id_hash, *at, *sequence);
                }
            }
            Change::IdsForgotten { bucket } => {
                if let Some(history) = &mut self.duplicates {
                    history.forget(*bucket);
                }
            }
            Change::PeerTaken { source, record } => self.peers.remember(*source, *record),
            Change::PeerForgotten { source } => self.peers.forget(source),
            Change::Receipted(receipt) => self.receipts.keep((**receipt).clone()),
            Change::JobForgotten(job) => self.receipts.forget(*job),
            Change::Rescheduled { sequence, at, expires_at } => {
                let due_at = self.slots.get(*sequence).map(|slot| slot.enqueued_at);
                if let Some(due_at) = due_at {
                    self.unwatch_schedule(*sequence, due_at);
                }
                if let Some(slot) = self.slots.get_mut(*sequence) {
                    slot.enqueued_at = *at;
                    slot.expires_at = *expires_at;
                    slot.marks.set(Mark::InFlight);
                    self.in_flight.push_back((stage, *sequence));
                }
            }
            Change::OfTopic(change) => self.enact_own(change),
            Change::Removed { .. }
            | Change::Pending { .. }
            | Change::DeliveryCounted { .. }
            | Change::Abandoned { .. }
            | Change::Deferred { .. }
            | Change::Undeferred { .. }
            | Change::PutBack { .. }
            | Change::DeadLettered { .. }
            | Change::Departed { .. } => {
                self.with_outbox(self.usage.created_at, |outbox| outbox.enact(change, stage));
            }
            // A topic makes no other changes.
            Change::Materialised { .. }
            | Change::SessionStateSet { .. }
            | Change::Arrived { .. }
            | Change::Absorbed { .. }
            | Change::Described { .. }
            | Change::SubscriptionDescribed { .. } => {}
            Change::Numbered { last } => self.last_sequence = self.last_sequence.max(*last),
        }
    }

    fn enact_own(&mut self, change: &TopicChange) {
        match change {
            TopicChange::Published { sequence, content, copies } => {
                if let PublishedContent::Scheduled(from) = content {
                    self.take(*from);
                }
                self.last_sequence = self.last_sequence.max(*sequence);
                for copy in copies {
                    self.family_summary.size_bytes += u64::from(copy.slot.size);
                    if let Some(subscription) = self.subscriptions.get_mut(&copy.subscription) {
                        subscription.last_sequence = copy.sequence;
                    }
                }
            }
            TopicChange::Described { description, at } => {
                self.description = Arc::new((**description).clone());
                self.usage.updated_at = *at;
                if let Some(outbox) = &mut self.outbox {
                    outbox.follow(description);
                }
            }
            TopicChange::SubscriptionCreated { id, description, rules, .. } => {
                let settings = CopySettings::of(description);
                self.add(*id, &description.name, settings, SequenceNumber(0));
                for rule in rules {
                    self.matcher.restore_rule(*id, rule.clone());
                }
            }
            TopicChange::SubscriptionRemoved { id } => {
                let gone = self.subscriptions.remove(id);
                self.session_subscription_count -= sessions_of(gone.as_ref());
                self.matcher.remove_subscription(*id);
            }
            TopicChange::RuleSet { subscription, rule, .. } => {
                self.matcher.restore_rule(*subscription, (**rule).clone());
            }
            TopicChange::RuleRemoved { subscription, name } => {
                // The rule existed when the change was made.
                self.matcher.remove_rule(*subscription, name).ok();
            }
        }
    }

    /// Adds a scheduled message, with the entity in which it was dead-lettered.
    pub(super) fn insert(
        &mut self,
        sequence: SequenceNumber,
        slot: Slot,
        source: Option<Arc<str>>,
    ) {
        if let Some(source) = source {
            // Messages from the same entity share its path.
            let known = self.sources.last_key_value().map(|(_, last)| last);
            let source = known.filter(|last| **last == source).map_or(source, Arc::clone);
            self.sources.insert(sequence, source);
        }
        self.scheduled_bytes += u64::from(slot.size);
        self.family_summary.size_bytes += u64::from(slot.size);
        self.slots.insert(sequence, slot);
        self.last_sequence = self.last_sequence.max(sequence);
    }

    /// Removes a scheduled message.
    fn take(&mut self, sequence: SequenceNumber) {
        self.sources.remove(&sequence);
        if let Some(slot) = self.slots.remove(sequence) {
            self.unwatch_schedule(sequence, slot.enqueued_at);
            let size = u64::from(slot.size);
            self.scheduled_bytes = self.scheduled_bytes.saturating_sub(size);
            self.family_summary.size_bytes = self.family_summary.size_bytes.saturating_sub(size);
        }
    }
}
