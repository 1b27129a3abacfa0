//! Conversion of changes to records and back: the absolute value of every key that a change
//! touched, in the spaces of the topic and its subscriptions.

use std::sync::Arc;

use bytes::Bytes;

use super::Topic;
use super::outbox::is_in_outbox;
use crate::change::codec::{self, RecordKey, write_rule};
use crate::change::{Change, Durability, PublishedContent, SubscriptionCopy, TopicChange};
use crate::description::SubscriptionDescription;
use crate::ids::{EntityId, SequenceNumber};
use crate::path::SubQueue;
use crate::record::{Batch, Key};
use crate::rule::{Rule, RuleDescription};
use crate::time::Timestamp;
use crate::usage::Usage;
use crate::{CorruptRecord, Machine};

impl Topic {
    pub(super) fn write_records(&self, change: &Change, batch: &mut Batch) {
        match change {
            Change::Accepted { sequence, slot, dead_letter_source, content, .. } => {
                let key = codec::slot_key(self.id, *sequence);
                batch.put_with_content(&key, content.as_bytes().clone(), |value| {
                    codec::write_slot(slot, dead_letter_source.as_deref(), value);
                });
            }
            Change::Removed { sequence, overlay_count, .. } => {
                self.write_removal(*sequence, *overlay_count, batch);
            }
            Change::IdRecorded { bucket, id_hash, at, sequence } => {
                batch.put(&codec::id_key(self.id, *bucket, *id_hash), |value| {
                    codec::write_acceptance(*at, *sequence, value);
                });
            }
            Change::IdsForgotten { bucket } => {
                batch.delete_prefix(&codec::id_bucket_key(self.id, *bucket));
            }
            Change::PeerTaken { source, record } => {
                batch.put(&codec::peer_key(self.id, source, record.place()), |value| {
                    codec::write_peer_record(record, value);
                });
            }
            Change::PeerForgotten { source } => {
                batch.delete_prefix(&codec::peer_source_key(self.id, source));
            }
            Change::Receipted(receipt) => {
                batch.put(&codec::receipt_key(self.id, receipt.step.job), |value| {
                    codec::write_receipt(receipt, value);
                });
            }
            Change::JobForgotten(job) => batch.delete(&codec::receipt_key(self.id, *job)),
            Change::Rescheduled { sequence, .. } => {
                if let Some(slot) = self.slots.get(*sequence) {
                    let source = self.sources.get(sequence).map(AsRef::as_ref);
                    batch.put_keep_content(&codec::slot_key(self.id, *sequence), |value| {
                        codec::write_slot(slot, source, value);
                    });
                }
            }
            Change::OfTopic(change) => self.write_own(change, batch),
            Change::Absorbed { origin } => origin.delete(batch),
            Change::Pending { .. }
            | Change::DeliveryCounted { .. }
            | Change::Abandoned { .. }
            | Change::Deferred { .. }
            | Change::Undeferred { .. }
            | Change::PutBack { .. }
            | Change::DeadLettered { .. }
            | Change::Departed { .. } => {
                if let Some(outbox) = &self.outbox {
                    outbox.records(change, batch);
                }
            }
            // A topic makes no other changes.
            Change::Materialised { .. }
            | Change::SessionStateSet { .. }
            | Change::Arrived { .. }
            | Change::Described { .. }
            | Change::SubscriptionDescribed { .. } => {}
            Change::Numbered { .. } => self.put_counters(batch),
        }
    }

    fn write_own(&self, change: &TopicChange, batch: &mut Batch) {
        match change {
            TopicChange::Published { content, copies, .. } => match content {
                PublishedContent::New(content) => {
                    write_copies(copies, Source::New(content.as_bytes()), batch);
                }
                PublishedContent::Transferred(origin) => {
                    let source = match origin.stored_content() {
                        Some(content) => Source::New(content),
                        None => Source::Of(origin.key),
                    };
                    write_copies(copies, source, batch);
                    origin.delete(batch);
                }
                PublishedContent::Scheduled(from) => {
                    let key = codec::slot_key(self.id, *from);
                    write_copies(copies, Source::Of(key), batch);
                    self.write_removal(*from, 0, batch);
                }
            },
            TopicChange::Described { .. } => self.write_creation(batch),
            TopicChange::SubscriptionCreated { id, description, rules, at } => {
                self.write_subscription(*id, description, rules, *at, batch);
            }
            TopicChange::SubscriptionRemoved { id } => {
                batch.delete(&codec::subscription_entry_key(*id));
                batch.delete_prefix(&codec::space_key(*id));
            }
            TopicChange::RuleSet { subscription, rule, .. } => {
                self.write_rule(*subscription, rule.description(), batch);
            }
            TopicChange::RuleRemoved { subscription, name } => {
                batch.delete(&codec::rule_key(*subscription, self.rule_hash(name)));
            }
        }
    }

    fn write_removal(&self, sequence: SequenceNumber, overlay_count: u16, batch: &mut Batch) {
        batch.delete(&codec::slot_key(self.id, sequence));
        if overlay_count > 0 {
            batch.delete_prefix(&codec::overlays_key(self.id, sequence));
        }
    }

    /// Writes the records of a new subscription, for the namespace and for itself (TOP-17).
    fn write_subscription(
        &self,
        id: EntityId,
        description: &SubscriptionDescription,
        rules: &[Rule],
        at: Timestamp,
        batch: &mut Batch,
    ) {
        batch.put(&codec::subscription_entry_key(id), |value| {
            codec::write_subscription_entry(self.id, &description.name, value);
        });
        batch.put(&codec::description_key(id), |value| {
            codec::write_description(description, value);
        });
        let counters = Usage::starting(at).counters(SequenceNumber(0));
        batch.put(&codec::counters_key(id), |value| codec::write_counters(&counters, value));
        for rule in rules {
            self.write_rule(id, rule.description(), batch);
        }
    }

    fn write_rule(&self, subscription: EntityId, rule: &RuleDescription, batch: &mut Batch) {
        batch.put(&codec::rule_key(subscription, self.rule_hash(&rule.name)), |value| {
            write_rule(rule, value);
        });
    }

    fn put_counters(&self, batch: &mut Batch) {
        batch.put(&codec::counters_key(self.id), |value| {
            codec::write_counters(&self.usage.counters(self.last_sequence), value);
        });
    }

    /// Writes the counters if a number was given since, so that no number is given twice, or if the
    /// stored last use is older than 30 s. Subscriptions write their own counters: a subscription
    /// takes a copy in before the copy can leave, and learns its number then.
    pub(super) fn write_counters(
        &mut self,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Option<Durability> {
        let numbered = self.last_sequence != self.stored_sequence;
        if !numbered && !self.usage.needs_storing(now) {
            return None;
        }
        self.stored_sequence = self.last_sequence;
        self.usage.stored();
        self.put_counters(batch);
        // A number that a sender received must not be given again, even if no subscription selected
        // its message. The change that gave the number requires the sync.
        Some(Durability::Lazy)
    }

    /// Writes the records of a new topic.
    pub fn write_creation(&self, batch: &mut Batch) {
        batch.put(&codec::description_key(self.id), |value| {
            codec::write_description(&*self.description, value);
        });
        self.put_counters(batch);
    }

    pub(super) fn read_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), CorruptRecord> {
        let corrupt = |problem| CorruptRecord { key: key.to_vec(), problem };
        match codec::read_key(key).map_err(corrupt)? {
            RecordKey::Description => {
                self.description = Arc::new(codec::read_description(value).map_err(corrupt)?);
                if self.duplicates.is_none() && self.description.requires_duplicate_detection {
                    self.duplicates = Some(Box::default());
                }
            }
            RecordKey::Counters => {
                let counters = codec::read_counters(value).map_err(corrupt)?;
                self.last_sequence = self.last_sequence.max(counters.last_sequence);
                self.stored_sequence = counters.last_sequence;
                self.usage.restore(&counters);
            }
            RecordKey::Slot(sequence) => {
                let (slot, source) = codec::read_slot(value).map_err(corrupt)?;
                if is_in_outbox(&slot) {
                    return self.with_outbox(Timestamp::NONE, |outbox| outbox.restore(key, value));
                }
                if slot.state != crate::slot::SlotState::Scheduled {
                    return Err(corrupt("a topic holds no messages for receivers"));
                }
                self.insert(sequence, slot, source.map(Arc::from));
            }
            RecordKey::Id { bucket, id_hash } => {
                let (at, sequence) = codec::read_acceptance(value).map_err(corrupt)?;
                if let Some(history) = &mut self.duplicates {
                    history.record(bucket, id_hash, at, sequence);
                }
            }
            // Overlays are contents; the slot has their count.
            RecordKey::Overlay => {}
            RecordKey::Peer(source) => {
                let record = codec::read_peer_record(value).map_err(corrupt)?;
                self.peers.remember(source, record);
            }
            RecordKey::Receipt(job) => {
                let receipt = codec::read_receipt(job, value).map_err(corrupt)?;
                if receipt.sub_queue == SubQueue::TransferDeadLetter {
                    return self.with_outbox(Timestamp::NONE, |outbox| outbox.restore(key, value));
                }
                self.receipts.keep(receipt);
            }
            RecordKey::Rule | RecordKey::SessionState => {
                return Err(corrupt("record of a subscription or a queue in the space of a topic"));
            }
        }
        Ok(())
    }
}

/// Source of the copies' content.
enum Source<'a> {
    New(&'a Bytes),
    Of(Key),
}

/// Writes the copies: the content once, then references to it, with differences as overlays (DESIGN
/// D8).
fn write_copies(copies: &[SubscriptionCopy], mut source: Source<'_>, batch: &mut Batch) {
    for copy in copies {
        let key = codec::slot_key(copy.subscription, copy.sequence);
        let write = |value: &mut Vec<u8>| {
            codec::write_slot(&copy.slot, copy.session.as_deref(), value);
        };
        match &source {
            Source::New(content) => {
                batch.put_with_content(&key, Bytes::clone(content), write);
                source = Source::Of(key);
            }
            Source::Of(first) => batch.put_content_of(&key, first, write),
        }
        for (index, overlay) in (0u16..).zip(copy.overlays.iter().flatten()) {
            let key = codec::overlay_key(copy.subscription, copy.sequence, index);
            batch.put_with_content(&key, overlay.as_bytes().clone(), |_| {});
        }
    }
}
