//! Messages of sessions: membership, and availability to the holder. `location.rs` and the retry
//! logic call it whenever a message of a session moves. The counts of a session always equal its
//! messages.

use super::{ExpiringSession, Sessions};
use crate::ids::SequenceNumber;
use crate::queue::session::SessionIndex;
use crate::sequence_set::SequenceSet;
use crate::slot::SlotState;

impl Sessions {
    /// Adds a message to its session.
    pub(in crate::queue) fn insert(
        &mut self,
        sequence: SequenceNumber,
        state: SlotState,
        name: &str,
    ) {
        let index = self.get_or_create(name);
        self.by_message.insert(sequence, index);
        if let Some(session) = self.get_mut(index) {
            session.members.insert(sequence);
            session.count(state);
        }
    }

    /// Removes a message from its session.
    pub(in crate::queue) fn remove(&mut self, sequence: SequenceNumber, state: SlotState) {
        let Some(index) = self.by_message.remove(&sequence) else { return };
        self.unregister_delayed(index, sequence);
        if let Some(session) = self.get_mut(index) {
            session.members.remove(sequence);
            session.available.remove(sequence);
            session.returning.remove(sequence);
            session.uncount(state);
        }
        self.reindex(index);
    }

    /// Records a new state of a message.
    pub(in crate::queue) fn recount(
        &mut self,
        sequence: SequenceNumber,
        before: SlotState,
        after: SlotState,
    ) {
        let Some(session) = self.of(sequence).and_then(|index| self.get_mut(index)) else { return };
        session.uncount(before);
        session.count(after);
    }

    /// Makes a message available to the holder.
    pub(in crate::queue) fn offer(&mut self, sequence: SequenceNumber) {
        let Some(index) = self.of(sequence) else { return };
        self.unregister_delayed(index, sequence);
        if let Some(session) = self.get_mut(index) {
            session.returning.remove(sequence);
            session.available.insert(sequence);
        }
        self.reindex(index);
    }

    /// Makes a message unavailable to the holder.
    pub(in crate::queue) fn withdraw(&mut self, sequence: SequenceNumber) {
        let Some(index) = self.of(sequence) else { return };
        self.unregister_delayed(index, sequence);
        if let Some(session) = self.get_mut(index) {
            session.available.remove(sequence);
            session.returning.remove(sequence);
        }
        self.reindex(index);
    }

    /// Makes a message unavailable, and later messages with it, until it is durable.
    pub(in crate::queue) fn hold_back(&mut self, sequence: SequenceNumber) {
        let Some(index) = self.of(sequence) else { return };
        if let Some(session) = self.get_mut(index) {
            session.available.remove(sequence);
            session.returning.insert(sequence);
        }
        self.reindex(index);
    }

    /// Makes a Delayed message unavailable, and later messages with it if `holds` (RTY-22, RTY-23).
    pub(in crate::queue) fn register_delayed(&mut self, sequence: SequenceNumber, holds: bool) {
        let Some(index) = self.of(sequence) else { return };
        let delayed = self.delayed.entry(index).or_default();
        delayed.all.insert(sequence);
        if holds {
            delayed.holding.insert(sequence);
        } else {
            delayed.holding.remove(sequence);
        }
        if let Some(session) = self.get_mut(index) {
            session.available.remove(sequence);
            session.returning.remove(sequence);
        }
        self.reindex(index);
    }

    /// Removes a message from the Delayed ones, if it is one.
    fn unregister_delayed(&mut self, index: SessionIndex, sequence: SequenceNumber) {
        let Some(delayed) = self.delayed.get_mut(&index) else { return };
        delayed.all.remove(sequence);
        delayed.holding.remove(sequence);
        if delayed.all.is_empty() {
            self.take_delayed(index);
        }
    }

    /// Removes the Delayed messages of a session from the directory.
    fn take_delayed(&mut self, index: SessionIndex) -> SequenceSet {
        let Some(delayed) = self.delayed.remove(&index) else { return SequenceSet::default() };
        if let Some(found_by) = delayed.found_by {
            self.open_delayed.remove(&found_by);
        }
        delayed.all
    }

    /// Whether a message is Delayed and durable.
    pub(in crate::queue) fn is_delayed(&self, sequence: SequenceNumber) -> bool {
        let delayed = self.of(sequence).and_then(|index| self.delayed.get(&index));
        delayed.is_some_and(|delayed| delayed.all.contains(sequence))
    }

    /// The durable Delayed messages of a session.
    pub(in crate::queue::session) fn delayed_in(
        &self,
        index: SessionIndex,
    ) -> Option<&SequenceSet> {
        self.delayed.get(&index).map(|delayed| &delayed.all)
    }

    /// Whether a message can be handed out, apart from earlier messages of its session.
    pub(in crate::queue) fn is_available(&self, sequence: SequenceNumber) -> bool {
        self.of(sequence)
            .and_then(|index| self.get(index))
            .is_some_and(|session| session.available.contains(sequence))
    }

    /// Condemns the available and Delayed messages of a session, because one of its messages has
    /// expired (EXP-41, RTY-25). The Delayed ones no longer hold up later messages.
    pub(in crate::queue) fn expire_session(&mut self, cause: SequenceNumber) {
        let Some(index) = self.of(cause) else { return };
        let mut delayed = self.take_delayed(index);
        let Some(session) = self.get_mut(index) else { return };
        let mut others = std::mem::take(&mut session.available);
        others.remove(cause);
        delayed.remove(cause);
        self.expiring.push_back(ExpiringSession { others, delayed, cause });
        self.reindex(index);
    }
}
