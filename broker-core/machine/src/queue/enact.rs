//! Effects of a change on the queue. Only this module alters durable state; it uses the moves of
//! `location.rs`.

use super::Queue;
use super::transfer::FORWARDED;
use crate::StageNumber;
use crate::change::Change;
use crate::slot::{Mark, Slot, SlotState};

impl Queue {
    /// Carries a change out. The message is in flight until the stage is durable: no receiver gets
    /// it before (DESIGN D5).
    pub(super) fn enact_change(&mut self, change: &Change, stage: StageNumber) {
        match change {
            Change::Accepted { sequence, slot, session, .. }
            | Change::Arrived { sequence, slot, session, .. } => {
                self.insert(*sequence, *slot, session.as_deref());
                self.mark_in_flight(*sequence, stage);
            }
            Change::Pending { sequence, slot, destination, .. } => {
                self.transfers.note_destination(*sequence, std::sync::Arc::clone(destination));
                self.insert(*sequence, *slot, None);
                self.mark_in_flight(*sequence, stage);
            }
            Change::Absorbed { .. } => {}
            Change::Departed { sequence } => {
                self.take(*sequence);
            }
            Change::Materialised { from, to, enqueued_at, expires_at } => {
                let session = self.session_name(*from).cloned();
                if let Some(mut slot) = self.take(*from) {
                    slot.state = SlotState::Active;
                    slot.marks.set(Mark::WasScheduled);
                    slot.enqueued_at = *enqueued_at;
                    slot.expires_at = *expires_at;
                    self.insert(*to, slot, session.as_deref());
                    self.mark_in_flight(*to, stage);
                }
            }
            Change::Removed { sequence, .. } => {
                self.take(*sequence);
            }
            Change::DeliveryCounted { sequence, delivery_count, delayed_until } => {
                self.alter(*sequence, |slot| slot.delivery_count = *delivery_count);
                self.delay(*sequence, *delayed_until);
                // The batch of the destination deletes the record, so this record must not be
                // written after it.
                let leaves = |slot: &Slot| slot.state == SlotState::Pending || self.leaves(slot);
                if self.slots.get(*sequence).is_some_and(leaves) {
                    self.mark_in_flight(*sequence, stage);
                } else {
                    self.offer(*sequence);
                }
            }
            Change::Abandoned { sequence, delivery_count, delayed_until, overlay } => {
                self.alter(*sequence, |slot| {
                    slot.delivery_count = *delivery_count;
                    slot.add_overlay(overlay.as_ref());
                });
                self.delay(*sequence, *delayed_until);
                self.mark_in_flight(*sequence, stage);
            }
            Change::Deferred { sequence, delivery_count, overlay } => {
                self.alter(*sequence, |slot| {
                    slot.delivery_count = *delivery_count;
                    slot.state = SlotState::Deferred;
                    slot.add_overlay(overlay.as_ref());
                });
                self.mark_in_flight(*sequence, stage);
            }
            Change::Undeferred { sequence } => {
                self.alter(*sequence, |slot| slot.state = SlotState::Active);
                self.mark_in_flight(*sequence, stage);
            }
            Change::PutBack { sequence, slot, session, .. } => {
                let (sequence, session) = (*sequence, session.as_deref());
                self.take(sequence);
                self.insert(sequence, *slot, session);
                self.mark_in_flight(sequence, stage);
            }
            Change::Rescheduled { sequence, at, expires_at } => {
                if let Some(slot) = self.slots.get(*sequence) {
                    self.schedule.remove(slot.enqueued_at, *sequence);
                }
                self.alter(*sequence, |slot| {
                    slot.enqueued_at = *at;
                    slot.expires_at = *expires_at;
                });
                self.mark_in_flight(*sequence, stage);
            }
            Change::DeadLettered {
                sequence, into, delivery_count, properties, verdict, ..
            } => {
                let Some(from) = self.slots.get(*sequence).map(|slot| slot.sub_queue) else {
                    return;
                };
                self.alter(*sequence, |slot| {
                    slot.sub_queue = *into;
                    slot.state = SlotState::Active;
                    slot.marks.clear(Mark::WasScheduled);
                    slot.delivery_count = *delivery_count;
                    slot.add_overlay(properties.as_ref());
                    slot.add_overlay(verdict.as_ref());
                });
                if let Some(sessions) = &mut self.sessions {
                    sessions.remove(*sequence, SlotState::Active);
                }
                self.sub_queue_mut(from).members.remove(*sequence);
                self.sub_queue_mut(*into).members.insert(*sequence);
                self.mark_in_flight(*sequence, stage);
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
            Change::Receipted(receipt) => {
                self.receipts.keep((**receipt).clone());
                self.begin_to_send(receipt.step.job, Some(stage));
            }
            Change::JobForgotten(job) => {
                self.receipts.forget(*job);
                self.keep_messages_of(*job);
            }
            Change::SessionStateSet { session, state, at } => {
                if let Some(sessions) = &mut self.sessions {
                    let size = state.as_ref().map_or(0, |state| state.len() as u64);
                    let size_before = sessions.set_state(session, state.clone(), *at, stage);
                    self.tally.size_bytes += size;
                    self.tally.size_bytes = self.tally.size_bytes.saturating_sub(size_before);
                }
            }
            Change::Described { description, at } => {
                let before = FORWARDED.map(|which| self.is_forwarding(which));
                let order = self.description.session_retry_order;
                self.description.clone_from(description);
                self.usage.updated_at = *at;
                self.redirect(before, stage);
                self.begin_to_reorder(order);
            }
            Change::SubscriptionDescribed { description, at } => {
                let before = FORWARDED.map(|which| self.is_forwarding(which));
                let order = self.description.session_retry_order;
                if let Some(subscription) = &mut self.subscription {
                    *self.description = subscription.set_description((**description).clone());
                }
                self.usage.updated_at = *at;
                self.redirect(before, stage);
                self.begin_to_reorder(order);
            }
            Change::Numbered { last } => {
                self.last_sequence = self.last_sequence.max(*last);
                self.stored_sequence = *last;
                self.transfers.note_storing(*last, stage);
            }
            // The topic carries it out.
            Change::OfTopic(_) => {}
        }
    }
}
