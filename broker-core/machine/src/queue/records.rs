//! Conversion of changes to records and back: the absolute value of every key that a change
//! touched. Replaying the records of an entity restores the same machine.

use super::Queue;
use crate::CorruptRecord;
use crate::change::codec::{
    self, RecordKey, id_bucket_key, id_key, overlay_key, overlays_key, peer_key, peer_source_key,
    receipt_key, slot_key,
};
use crate::change::{Change, Durability, PreviousLocation};
use crate::ids::SequenceNumber;
use crate::message::{Content, Overlay};
use crate::path::SubQueue;
use crate::record::Batch;
use crate::slot::SlotState;
use crate::time::Timestamp;

impl Queue {
    pub(super) fn write_records(&self, change: &Change, batch: &mut Batch) {
        match change {
            Change::Accepted { sequence, content, .. } => {
                if let Some(slot) = self.slots.get(*sequence) {
                    let session = self.session_name(*sequence).map(AsRef::as_ref);
                    batch.put_with_content(
                        &slot_key(self.id, *sequence),
                        content.as_bytes().clone(),
                        |value| codec::write_slot(slot, session, value),
                    );
                }
            }
            Change::Pending { sequence, content, .. } => {
                if let Some(slot) = self.slots.get(*sequence) {
                    let destination = self.record_text(*sequence, slot);
                    batch.put_with_content(
                        &slot_key(self.id, *sequence),
                        content.as_bytes().clone(),
                        |value| codec::write_slot(slot, destination, value),
                    );
                }
            }
            Change::Arrived { sequence, previous, added, .. } => {
                self.write_arrival(*sequence, previous, added, batch);
            }
            Change::Absorbed { origin } => origin.delete(batch),
            // The batch of the destination has deleted it.
            Change::Departed { .. } => {}
            Change::Materialised { from, to, .. } => {
                let source = slot_key(self.id, *from);
                if let Some(slot) = self.slots.get(*to) {
                    let session = self.session_name(*to).map(AsRef::as_ref);
                    batch.put_content_of(&slot_key(self.id, *to), &source, |value| {
                        codec::write_slot(slot, session, value);
                    });
                    // A message from another entity may have overlays already (SCH-12).
                    for index in 0..slot.overlay_count {
                        let overlay = overlay_key(self.id, *from, index);
                        let moved = overlay_key(self.id, *to, index);
                        batch.put_content_of(&moved, &overlay, |_| {});
                        batch.delete(&overlay);
                    }
                }
                batch.delete(&source);
            }
            Change::Removed { sequence, overlay_count, .. } => {
                if *sequence == self.last_sequence {
                    self.put_counters(batch);
                }
                batch.delete(&slot_key(self.id, *sequence));
                if *overlay_count > 0 {
                    batch.delete_prefix(&overlays_key(self.id, *sequence));
                }
            }
            Change::DeliveryCounted { sequence, .. }
            | Change::Undeferred { sequence }
            | Change::Rescheduled { sequence, .. } => {
                self.write_slot(*sequence, [None, None], batch)
            }
            Change::PutBack { sequence, content, overlays, stale_count, .. } => {
                self.write_original(*sequence, content.as_ref(), overlays, *stale_count, batch);
            }
            Change::Abandoned { sequence, overlay, .. }
            | Change::Deferred { sequence, overlay, .. } => {
                self.write_slot(*sequence, [overlay.as_ref(), None], batch);
            }
            Change::DeadLettered { sequence, properties, verdict, .. } => {
                self.write_slot(*sequence, [properties.as_ref(), verdict.as_ref()], batch);
            }
            Change::IdRecorded { bucket, id_hash, at, sequence } => {
                batch.put(&id_key(self.id, *bucket, *id_hash), |value| {
                    codec::write_acceptance(*at, *sequence, value);
                });
            }
            Change::IdsForgotten { bucket } => {
                batch.delete_prefix(&id_bucket_key(self.id, *bucket))
            }
            Change::PeerTaken { source, record } => {
                batch.put(&peer_key(self.id, source, record.place()), |value| {
                    codec::write_peer_record(record, value);
                });
            }
            Change::PeerForgotten { source } => {
                batch.delete_prefix(&peer_source_key(self.id, source));
            }
            Change::Receipted(receipt) => {
                batch.put(&receipt_key(self.id, receipt.step.job), |value| {
                    codec::write_receipt(receipt, value);
                });
            }
            Change::JobForgotten(job) => batch.delete(&receipt_key(self.id, *job)),
            Change::SessionStateSet { session, state, at } => {
                let key = self.session_state_key(session);
                match state {
                    Some(bytes) => batch.put_with_content(&key, bytes.clone(), |value| {
                        codec::write_session_state(session, *at, bytes.len() as u64, value);
                    }),
                    None => batch.delete(&key),
                }
            }
            Change::Described { .. } | Change::SubscriptionDescribed { .. } => {
                self.write_creation(batch);
            }
            Change::Numbered { .. } => self.put_counters(batch),
            // The topic writes the records.
            Change::OfTopic(_) => {}
        }
    }

    /// Writes a slot and the overlays that the change has just added.
    fn write_slot(
        &self,
        sequence: SequenceNumber,
        overlays: [Option<&Overlay>; 2],
        batch: &mut Batch,
    ) {
        let Some(slot) = self.slots.get(sequence) else { return };
        let session = self.record_text(sequence, slot);
        batch.put_keep_content(&slot_key(self.id, sequence), |value| {
            if slot.is_delayed()
                && let Some(until) = self.delays.until(slot.sub_queue, sequence)
            {
                codec::write_delay(until, value);
            }
            codec::write_slot(slot, session, value);
        });
        let added = overlays.iter().flatten().count();
        let first = usize::from(slot.overlay_count).saturating_sub(added);
        for (index, overlay) in (first..).zip(overlays.into_iter().flatten()) {
            let index = u16::try_from(index).unwrap_or(u16::MAX);
            let key = overlay_key(self.id, sequence, index);
            batch.put_with_content(&key, overlay.as_bytes().clone(), |_| {});
        }
    }

    /// Writes a message that is put back.
    fn write_original(
        &self,
        sequence: SequenceNumber,
        content: Option<&Content>,
        overlays: &[Overlay],
        stale_count: u16,
        batch: &mut Batch,
    ) {
        let Some(slot) = self.slots.get(sequence) else { return };
        let Some(content) = content else {
            self.write_slot(sequence, [None, None], batch);
            for index in (slot.overlay_count..).take(usize::from(stale_count)) {
                batch.delete(&overlay_key(self.id, sequence, index));
            }
            return;
        };
        let session = self.record_text(sequence, slot);
        let key = slot_key(self.id, sequence);
        batch.put_with_content(&key, content.as_bytes().clone(), |value| {
            codec::write_slot(slot, session, value);
        });
        for (index, overlay) in (0..).zip(overlays) {
            let key = overlay_key(self.id, sequence, index);
            batch.put_with_content(&key, overlay.as_bytes().clone(), |_| {});
        }
    }

    /// Writes both halves of a transfer: the records here with the contents of the source, and
    /// their deletion at the source.
    fn write_arrival(
        &self,
        sequence: SequenceNumber,
        previous: &PreviousLocation,
        added: &[Overlay],
        batch: &mut Batch,
    ) {
        let key = slot_key(self.id, sequence);
        if let Some(slot) = self.slots.get(sequence) {
            let session = self.record_text(sequence, slot);
            let write = |value: &mut Vec<u8>| codec::write_slot(slot, session, value);
            match previous {
                PreviousLocation::Here(origin) => {
                    origin.put_content(&key, batch, write);
                    origin.put_overlays(|index| overlay_key(self.id, sequence, index), batch);
                }
                PreviousLocation::Peer(content) => {
                    batch.put_with_content(&key, content.as_bytes().clone(), write);
                }
            }
            let first = usize::from(slot.overlay_count).saturating_sub(added.len());
            for (index, overlay) in (first..).zip(added) {
                let index = u16::try_from(index).unwrap_or(u16::MAX);
                let key = overlay_key(self.id, sequence, index);
                batch.put_with_content(&key, overlay.as_bytes().clone(), |_| {});
            }
        }
        if let PreviousLocation::Here(origin) = previous {
            origin.delete(batch);
        }
    }

    fn put_counters(&self, batch: &mut Batch) {
        // The topic writes the counters of its outbox.
        if self.outbox.is_some() {
            return;
        }
        batch.put(&codec::counters_key(self.id), |value| {
            codec::write_counters(&self.usage.counters(self.last_sequence), value);
        });
    }

    /// Writes the counters if the stored last use is older than 30 s. A queue whose messages leave
    /// for other entities also writes them if a number was given since.
    ///
    /// A number must never be given twice, so the store must know the last one. While the last
    /// message exists, its slot has the number; a batch that removes that slot writes the counters
    /// too. But when another entity takes a message over, its batch deletes the slot, perhaps in
    /// another shard. So the number must be stored before, here together with the message. Copies
    /// come to a subscription in a batch of its topic, so there the number is a change of its own
    /// ([`Change::Numbered`]).
    pub(super) fn write_counters(
        &mut self,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Option<Durability> {
        let numbered = self.last_sequence != self.stored_sequence
            && self.is_source()
            && self.subscription.is_none();
        if !numbered && !self.usage.needs_storing(now) {
            return None;
        }
        self.stored_sequence = self.last_sequence;
        self.usage.stored();
        self.put_counters(batch);
        Some(Durability::Lazy)
    }

    /// Writes the records of a new queue.
    pub fn write_creation(&self, batch: &mut Batch) {
        batch.put(&codec::description_key(self.id), |value| match &self.subscription {
            Some(subscription) => codec::write_description(subscription.description(), value),
            None => codec::write_description(&*self.description, value),
        });
        self.put_counters(batch);
    }

    pub(super) fn read_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), CorruptRecord> {
        let corrupt = |problem| CorruptRecord { key: key.to_vec(), problem };
        match codec::read_key(key).map_err(corrupt)? {
            RecordKey::Description => {
                match &mut self.subscription {
                    Some(subscription) => {
                        let description = codec::read_description(value).map_err(corrupt)?;
                        *self.description = subscription.set_description(description);
                    }
                    None => *self.description = codec::read_description(value).map_err(corrupt)?,
                }
                if self.duplicates.is_none() && self.description.requires_duplicate_detection {
                    self.duplicates = Some(Box::default());
                }
                if self.sessions.is_none() && self.description.requires_session {
                    self.sessions = Some(Box::default());
                }
            }
            RecordKey::Counters => {
                let counters = codec::read_counters(value).map_err(corrupt)?;
                self.last_sequence = self.last_sequence.max(counters.last_sequence);
                self.stored_sequence = counters.last_sequence;
                self.transfers.note_stored(counters.last_sequence);
                self.usage.restore(&counters);
            }
            RecordKey::Rule => return Err(corrupt("rule in the space of a queue")),
            RecordKey::Slot(sequence) => {
                let (slot, session) = codec::read_slot(value).map_err(corrupt)?;
                if let Some(until) = codec::read_delay(value).map_err(corrupt)? {
                    self.delays.insert(slot.sub_queue, sequence, until);
                }
                if slot.state == SlotState::Pending {
                    let destination = session.unwrap_or_default();
                    self.transfers.restore_destination(sequence, destination);
                    self.insert(sequence, slot, None);
                    return Ok(());
                }
                let belongs = self.sessions.is_some() && slot.sub_queue == SubQueue::Main;
                if belongs != session.is_some() {
                    return Err(corrupt(
                        "message with a session in an entity without sessions, or the reverse",
                    ));
                }
                self.insert(sequence, slot, session);
            }
            // Overlays are contents; the slot has their count.
            RecordKey::Overlay => {}
            RecordKey::Id { bucket, id_hash } => {
                let (at, sequence) = codec::read_acceptance(value).map_err(corrupt)?;
                if let Some(history) = &mut self.duplicates {
                    history.record(bucket, id_hash, at, sequence);
                }
            }
            RecordKey::Peer(source) => {
                let record = codec::read_peer_record(value).map_err(corrupt)?;
                self.peers.remember(source, record);
            }
            RecordKey::Receipt(job) => {
                self.receipts.keep(codec::read_receipt(job, value).map_err(corrupt)?);
            }
            RecordKey::SessionState => {
                let state = codec::read_session_state(value).map_err(corrupt)?;
                let Some(sessions) = &mut self.sessions else {
                    return Err(corrupt("state of a session in an entity without sessions"));
                };
                sessions.restore_state(&state.session, state.size, state.set_at);
                self.tally.size_bytes += state.size;
            }
        }
        Ok(())
    }
}
