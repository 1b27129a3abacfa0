//! Translates the changes and events of a step to stations: a pure function, and the only place
//! that knows both.

use super::entry::{Entry, Noted, Place, lock_end_code};
use super::query::StationKind;
use crate::change::codec::{self, RecordKey};
use crate::change::slot::{Slot, SlotState};
use crate::change::{
    Change, DeadLetterCause, PreviousLocation, PublishedContent, Removal, SubscriptionCopy,
    TopicChange,
};
use crate::command::{ActResult, Receipt};
use crate::ids::{EntityId, ReceiverId, SequenceNumber};
use crate::machine::event::{EventKind, LockEnd, MessageEvent, low_half};
use crate::message::{Content, hash_of_id};
use crate::path::SubQueue;
use crate::store::SPACE_BYTES;
use crate::time::Timestamp;
use crate::transfer::Origin;

/// A step of an entity.
pub(crate) struct Step<'a> {
    pub(crate) entity: EntityId,
    pub(crate) now: Timestamp,
    pub(crate) changes: &'a [Change],
    pub(crate) events: &'a [MessageEvent],
    /// Key of the hashes of message ids.
    pub(crate) id_key: &'a [u8; 16],
}

impl Step<'_> {
    /// Appends the stations of the step in their order. A job's receipt is its last change, but the
    /// station of the job precedes the stations of its deeds. `job` returns the number of a job.
    pub(crate) fn translate(&self, job: &mut dyn FnMut(&Receipt) -> u32, out: &mut Vec<Noted>) {
        for change in self.changes {
            // A later receipt of the same step has results of messages that were leaving.
            if let Change::Receipted(receipt) = change
                && receipt.at == self.now
            {
                self.receipt(receipt, job(receipt), out);
            }
        }
        let mut events = self.events.iter().peekable();
        let mut arrived = None;
        for (place, change) in self.changes.iter().enumerate() {
            let mut last = None;
            while let Some(event) = events.next_if(|event| event.change_count <= place) {
                if let Some(event) = last.replace(event) {
                    self.event(event, out);
                }
            }
            // The last event is the cause of the change if it ended the lock of the same message.
            let ended = last.and_then(|event| match event.kind {
                EventKind::LockEnded { end } if sequence_of(change) == Some(event.sequence) => {
                    Some((event.holder, end))
                }
                _ => {
                    self.event(event, out);
                    None
                }
            });
            match change {
                // A topic that schedules a message of another entity removes it there afterwards.
                Change::Accepted { sequence, slot, .. } => {
                    arrived = Some((out.len(), *sequence, slot.hops));
                }
                Change::Absorbed { origin } => match arrived.take() {
                    Some((at, sequence, hops)) => {
                        let stations = out.len();
                        self.hop(sequence, hops, origin, out);
                        // The message came before it was scheduled.
                        if let Some(since) = out.get_mut(at..) {
                            since.rotate_left(stations - at);
                        }
                    }
                    None => self.absorption(origin, out),
                },
                _ => {}
            }
            self.change(change, ended, out);
        }
        for event in events {
            self.event(event, out);
        }
    }

    fn entry(&self, sequence: SequenceNumber, kind: StationKind) -> Entry {
        Entry::new(sequence, self.now, kind)
    }

    fn push(&self, entry: Entry, out: &mut Vec<Noted>) {
        out.push(Noted { entity: self.entity, entry, rule: None });
    }

    /// Adds an event without a change.
    fn event(&self, event: &MessageEvent, out: &mut Vec<Noted>) {
        let entry = |kind| self.entry(event.sequence, kind).with_receiver(event.holder);
        self.push(
            match event.kind {
                EventKind::Delivered { delivery_count } => {
                    entry(StationKind::Delivered).with_count(delivery_count)
                }
                EventKind::Renewed => entry(StationKind::Renewed).with_count(1),
                EventKind::LockEnded { end } => {
                    let kind = match end {
                        LockEnd::TimeOver => StationKind::LockEnded,
                        _ => StationKind::Released,
                    };
                    entry(kind).with_detail(lock_end_code(end))
                }
                EventKind::Duplicate { id_hash } => {
                    entry(StationKind::Duplicate).with_link(id_hash)
                }
            },
            out,
        );
    }

    /// Adds a change, and the end of the lock that is its cause.
    fn change(
        &self,
        change: &Change,
        ended: Option<(Option<ReceiverId>, LockEnd)>,
        out: &mut Vec<Noted>,
    ) {
        let (holder, end) = match ended {
            Some((holder, end)) => (holder, Some(end)),
            None => (None, None),
        };
        let settled_by = holder.filter(|_| end == Some(LockEnd::Settled));
        if let Some(end) = end.filter(|end| *end != LockEnd::Settled)
            && let Some(sequence) = sequence_of(change)
        {
            let count = match change {
                Change::DeliveryCounted { delivery_count, .. }
                | Change::DeadLettered { delivery_count, .. } => *delivery_count,
                _ => 0,
            };
            let ended = self.entry(sequence, StationKind::LockEnded).with_receiver(holder);
            self.push(ended.with_count(count).with_detail(lock_end_code(end)), out);
        }
        match change {
            Change::Accepted { sequence, slot, content, .. } => {
                let kind = match slot.state {
                    SlotState::Scheduled => StationKind::Scheduled,
                    _ => StationKind::Accepted,
                };
                self.push(self.entry(*sequence, kind).with_link(self.id_hash(content)), out);
            }
            Change::Pending { sequence, content, .. } => {
                let entry = self.entry(*sequence, StationKind::Pending);
                self.push(entry.with_link(self.id_hash(content)), out);
            }
            Change::Arrived { sequence, slot, previous, .. } => {
                self.arrival(*sequence, slot.hops, previous, out);
                self.first_state(*sequence, slot, out);
            }
            Change::Materialised { from, to, .. } => self.materialisation(*from, *to, out),
            Change::Removed { sequence, reason, .. } => {
                let kind = match reason {
                    Removal::Completed => StationKind::Completed,
                    Removal::Received => StationKind::Received,
                    Removal::Expired => StationKind::Expired,
                    Removal::Cancelled => StationKind::Cancelled,
                    Removal::Deleted => StationKind::Deleted,
                    Removal::Forwarded => StationKind::ForwardedOut,
                };
                self.push(self.entry(*sequence, kind).with_receiver(settled_by), out);
            }
            Change::Abandoned { sequence, delivery_count, .. } => {
                let entry = self.entry(*sequence, StationKind::Abandoned);
                self.push(entry.with_receiver(settled_by).with_count(*delivery_count), out);
            }
            Change::Deferred { sequence, delivery_count, .. } => {
                let entry = self.entry(*sequence, StationKind::Deferred);
                self.push(entry.with_receiver(settled_by).with_count(*delivery_count), out);
            }
            Change::Undeferred { sequence } => {
                self.push(self.entry(*sequence, StationKind::Undeferred), out);
            }
            Change::PutBack { sequence, .. } => {
                self.push(self.entry(*sequence, StationKind::PutBack), out);
            }
            Change::Rescheduled { sequence, at, .. } => {
                let entry = self.entry(*sequence, StationKind::Rescheduled);
                self.push(entry.with_link(at.ticks().cast_unsigned()), out);
            }
            Change::DeadLettered { sequence, delivery_count, cause, .. } => {
                let entry = self.dead_letter(*sequence, *cause).with_receiver(settled_by);
                self.push(entry.with_count(*delivery_count), out);
            }
            Change::OfTopic(TopicChange::Published { sequence, content, copies }) => {
                self.publish(*sequence, content, copies, out);
            }
            // The end of the lock is the station.
            Change::DeliveryCounted { .. }
            // The way to here is the station.
            | Change::Absorbed { .. }
            // The destination notes the hop in both entities.
            | Change::Departed { .. }
            | Change::IdRecorded { .. }
            | Change::IdsForgotten { .. }
            | Change::PeerTaken { .. }
            | Change::PeerForgotten { .. }
            | Change::Receipted(_)
            | Change::JobForgotten(_)
            | Change::SessionStateSet { .. }
            | Change::Described { .. }
            | Change::SubscriptionDescribed { .. }
            | Change::Numbered { .. }
            | Change::OfTopic(_) => {}
        }
    }

    /// Adds the arrival of a message under a number.
    fn arrival(
        &self,
        sequence: SequenceNumber,
        hops: u8,
        previous: &PreviousLocation,
        out: &mut Vec<Noted>,
    ) {
        match previous {
            PreviousLocation::Here(origin) => self.hop(sequence, hops, origin, out),
            PreviousLocation::Peer(content) => {
                let entry = self.entry(sequence, StationKind::ForwardedIn).with_detail(hops);
                self.push(entry.with_link(self.id_hash(content)), out);
            }
        }
    }

    /// Adds a hop in both entities.
    fn hop(&self, sequence: SequenceNumber, hops: u8, origin: &Origin, out: &mut Vec<Noted>) {
        let Some((source, number)) = place_of(origin) else { return };
        let (from, to) = ((source, number), (self.entity, sequence));
        let left = Entry::new(number, self.now, StationKind::ForwardedTo).with_other(to, hops);
        out.push(Noted { entity: source, entry: left, rule: None });
        self.push(self.entry(sequence, StationKind::ForwardedFrom).with_other(from, hops), out);
    }

    /// Adds the way of a message that this entity dropped as a duplicate, in its source.
    fn absorption(&self, origin: &Origin, out: &mut Vec<Noted>) {
        let Some((entity, number)) = place_of(origin) else { return };
        let to = (self.entity, SequenceNumber(0));
        let entry = Entry::new(number, self.now, StationKind::DroppedAt).with_other(to, 0);
        out.push(Noted { entity, entry, rule: None });
    }

    /// Adds the state in which a message arrives, unless it is active.
    fn first_state(&self, sequence: SequenceNumber, slot: &Slot, out: &mut Vec<Noted>) {
        if slot.state == SlotState::Scheduled {
            self.push(self.entry(sequence, StationKind::Scheduled), out);
        }
        if slot.sub_queue == SubQueue::DeadLetter {
            self.push(self.dead_letter(sequence, DeadLetterCause::HeaderSize), out);
        }
    }

    fn materialisation(&self, from: SequenceNumber, to: SequenceNumber, out: &mut Vec<Noted>) {
        self.push(self.entry(from, StationKind::MaterialisedTo).with_link(to.0), out);
        self.push(self.entry(to, StationKind::MaterialisedFrom).with_link(from.0), out);
    }

    fn dead_letter(&self, sequence: SequenceNumber, cause: DeadLetterCause) -> Entry {
        let cause = u8::try_from(cause.place()).unwrap_or(u8::MAX);
        self.entry(sequence, StationKind::DeadLettered).with_detail(cause)
    }

    /// Adds a publish and its copies, each in the topic and in its subscription.
    fn publish(
        &self,
        sequence: SequenceNumber,
        content: &PublishedContent,
        copies: &[SubscriptionCopy],
        out: &mut Vec<Noted>,
    ) {
        match content {
            PublishedContent::New(content) => {
                let entry = self.entry(sequence, StationKind::Published);
                self.push(entry.with_link(self.id_hash(content)), out);
            }
            PublishedContent::Scheduled(from) => self.materialisation(*from, sequence, out),
            PublishedContent::Transferred(origin) => {
                let hops = copies.first().map_or(0, |copy| copy.slot.hops);
                self.hop(sequence, hops, origin, out);
            }
        }
        for copy in copies {
            let to = (copy.subscription, copy.sequence);
            let entry = self.entry(sequence, StationKind::CopiedTo).with_other(to, copy.slot.hops);
            out.push(Noted { entity: self.entity, entry, rule: copy.rule });
        }
        for copy in copies {
            let (entity, from) = (copy.subscription, (self.entity, sequence));
            let entry = Entry::new(copy.sequence, self.now, StationKind::CopiedFrom);
            let entry = entry.with_other(from, copy.slot.hops);
            out.push(Noted { entity, entry, rule: copy.rule });
            if let Some(cause) = copy.refused {
                let entry = self.dead_letter(copy.sequence, cause);
                out.push(Noted { entity, entry, rule: None });
            }
        }
    }

    /// Adds the job to the messages on which it acted.
    fn receipt(&self, receipt: &Receipt, job: u32, out: &mut Vec<Noted>) {
        for message in &receipt.messages {
            if matches!(message.result, ActResult::Done | ActResult::Leaving) {
                let mut entry = self.entry(message.sequence, StationKind::Job);
                entry.actor = job;
                self.push(entry, out);
            }
        }
    }

    fn id_hash(&self, content: &Content) -> u64 {
        content.message_id().map_or(0, |id| low_half(hash_of_id(&id, self.id_key)))
    }
}

/// Returns the message that a change removes, returns or moves.
const fn sequence_of(change: &Change) -> Option<SequenceNumber> {
    match change {
        Change::Removed { sequence, .. }
        | Change::DeliveryCounted { sequence, .. }
        | Change::Abandoned { sequence, .. }
        | Change::Deferred { sequence, .. }
        | Change::Undeferred { sequence }
        | Change::DeadLettered { sequence, .. } => Some(*sequence),
        _ => None,
    }
}

/// Returns the entity and number of a message from the key of its record.
fn place_of(origin: &Origin) -> Option<Place> {
    let key = origin.key.as_bytes();
    let space = key.get(..SPACE_BYTES)?.try_into().ok()?;
    match codec::read_key(key).ok()? {
        RecordKey::Slot(sequence) => Some((EntityId(u64::from_be_bytes(space)), sequence)),
        _ => None,
    }
}

/// Whether the rules of a topic may have other places after a change.
pub(crate) const fn changes_rules(change: &Change) -> bool {
    matches!(change, Change::OfTopic(change) if !matches!(change, TopicChange::Published { .. }))
}

#[cfg(test)]
mod tests;
