//! Directory of a queue's sessions: by id, by message, by holder, by lock, and, for sessions that
//! can be accepted, by their lowest available number. Lookups take logarithmic time.
//!
//! This file finds, creates and removes sessions. `members` handles their messages, `holders` their
//! locks, and `check` has the invariants of the directory.

mod check;
mod holders;
mod members;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::accept::WaitingAccepts;
use super::list::SessionListing;
use super::{KnownState, Session, SessionHold, SessionIndex};
use crate::StageNumber;
use crate::command::SessionCounts;
use crate::ids::{ReceiverId, SequenceNumber, SessionEpoch, Ticket};
use crate::sequence_set::SequenceSet;
use crate::time::Timestamp;

/// Messages of a session that expired together and are being removed (EXP-41).
#[derive(Debug)]
pub(in crate::queue) struct ExpiringSession {
    /// Available messages, without [`Self::cause`].
    pub(in crate::queue) others: SequenceSet,
    /// Delayed messages, without [`Self::cause`].
    pub(in crate::queue) delayed: SequenceSet,
    /// The message that expired by its time to live. It is removed last: if the broker stops
    /// before, the message still exists and expires the rest.
    pub(in crate::queue) cause: SequenceNumber,
}

/// Durable Delayed messages of a session.
#[derive(Debug, Default)]
struct DelayedMessages {
    all: SequenceSet,
    /// Messages that hold up later ones; a separate set, so that all can be released at once.
    holding: SequenceSet,
    /// Key of the session in `open_delayed`, while it has no holder.
    found_by: Option<SequenceNumber>,
}

/// All sessions of a queue.
#[derive(Debug, Default)]
pub(in crate::queue) struct Sessions {
    places: Vec<Option<Session>>,
    free: Vec<SessionIndex>,
    by_name: BTreeMap<Arc<str>, SessionIndex>,
    by_message: BTreeMap<SequenceNumber, SessionIndex>,
    by_receiver: BTreeMap<ReceiverId, SessionIndex>,
    by_epoch: BTreeMap<SessionEpoch, SessionIndex>,
    /// Unlocked sessions with an available message, by the lowest number (SES-07).
    open: BTreeMap<SequenceNumber, SessionIndex>,
    /// Ends of session locks.
    ends: BTreeSet<(Timestamp, SessionIndex)>,
    /// Sessions whose hold has ended, with locks under it that are not ended yet.
    ending: BTreeSet<SessionIndex>,
    /// Sessions of the holders' waiting calls.
    by_call: BTreeMap<Ticket, SessionIndex>,
    waits: BTreeSet<(Timestamp, SessionIndex)>,
    /// Number of holders with an open link.
    link_count: usize,
    /// Held sessions that may have both demand and messages.
    busy: BTreeSet<SessionIndex>,
    /// Sessions with durable Delayed messages (RTY-22).
    delayed: BTreeMap<SessionIndex, DelayedMessages>,
    /// Unlocked sessions with Delayed messages, by their lowest number (RTY-13).
    open_delayed: BTreeMap<SequenceNumber, SessionIndex>,
    /// Number of sessions with a state.
    state_count: usize,
    states_in_flight: VecDeque<(StageNumber, SessionIndex)>,
    /// The list that is being built.
    pub(super) listing: Option<Box<SessionListing>>,
    /// Calls that wait for a session.
    pub(super) waiting: WaitingAccepts,
    /// Sessions that expire. Their messages are no longer available.
    pub(in crate::queue) expiring: VecDeque<ExpiringSession>,
}

impl Sessions {
    pub(in crate::queue) fn get(&self, index: SessionIndex) -> Option<&Session> {
        self.places.get(index.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, index: SessionIndex) -> Option<&mut Session> {
        self.places.get_mut(index.0 as usize)?.as_mut()
    }

    /// Returns the session with this id.
    pub(in crate::queue) fn named(&self, name: &str) -> Option<SessionIndex> {
        self.by_name.get(name).copied()
    }

    /// Returns the session of a message.
    pub(in crate::queue) fn of(&self, sequence: SequenceNumber) -> Option<SessionIndex> {
        self.by_message.get(&sequence).copied()
    }

    /// Returns the id of the session of a message.
    pub(in crate::queue) fn name_of(&self, sequence: SequenceNumber) -> Option<&Arc<str>> {
        Some(self.get(self.of(sequence)?)?.name())
    }

    pub(in crate::queue) fn counts(&self) -> SessionCounts {
        SessionCounts { existing: self.by_name.len() as u64, locked: self.by_receiver.len() as u64 }
    }

    /// Number of sessions with a state.
    pub(super) const fn state_count(&self) -> usize {
        self.state_count
    }

    /// Whether a receiver holds a session or waits for one (file 01, "active receiver"; TMP-15).
    pub(in crate::queue) fn has_receiver(&self) -> bool {
        !self.by_receiver.is_empty() || !self.waiting.is_empty()
    }

    /// Number of links and calls of holders, and of calls that wait for a session.
    pub(in crate::queue) fn receiver_count(&self) -> usize {
        self.link_count + self.by_call.len() + self.waiting.len()
    }

    /// Returns the next message of a session: the lowest available number, unless a lower one is
    /// being returned or holds up later messages (SES-19, SES-20, RTY-22).
    pub(in crate::queue) fn next_message(&self, index: SessionIndex) -> Option<SequenceNumber> {
        let session = self.get(index)?;
        let first = session.available.first()?;
        let delayed = self.delayed.get(&index).and_then(|delayed| delayed.holding.first());
        match session.returning.first().into_iter().chain(delayed).min() {
            Some(returning) if returning < first => None,
            Some(_) | None => Some(first),
        }
    }

    /// Returns the unlocked session whose next message has the lowest number (SES-07).
    pub(in crate::queue) fn first_open(&self) -> Option<(SequenceNumber, SessionIndex)> {
        self.open.first_key_value().map(|(sequence, index)| (*sequence, *index))
    }

    /// Returns the lowest Delayed message of all unlocked sessions.
    pub(super) fn first_open_delayed(&self) -> Option<SequenceNumber> {
        self.open_delayed.first_key_value().map(|(sequence, _)| *sequence)
    }

    /// Next instant at which a held session has work to do.
    pub(in crate::queue) fn first_due(&self) -> Option<Timestamp> {
        let firsts = [self.ends.first(), self.waits.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Iterates over the held sessions, in the order of their holders, from `from` on.
    pub(in crate::queue) fn holders_from(
        &self,
        from: ReceiverId,
    ) -> impl Iterator<Item = (&Session, &SessionHold)> {
        self.by_receiver.range(from..).filter_map(|(_, index)| {
            let session = self.get(*index)?;
            Some((session, session.hold()?))
        })
    }

    /// Iterates over the sessions from an id on, in ascending order.
    pub(in crate::queue) fn iter_from(&self, from: Bound<&str>) -> impl Iterator<Item = &Session> {
        let range = self.by_name.range::<str, _>((from, Bound::Unbounded));
        range.filter_map(|(_, index)| self.get(*index))
    }

    /// Iterates over all sessions, in ascending order of ids.
    pub(in crate::queue) fn iter(&self) -> impl Iterator<Item = (SessionIndex, &Session)> {
        self.by_name.values().filter_map(|index| Some((*index, self.get(*index)?)))
    }

    /// Returns the session with this id; creates it if it does not exist (SES-02).
    pub(super) fn get_or_create(&mut self, name: &str) -> SessionIndex {
        if let Some(index) = self.named(name) {
            return index;
        }
        let name: Arc<str> = name.into();
        let session = Session::named(Arc::clone(&name));
        let index = if let Some(index) = self.free.pop() {
            if let Some(place) = self.places.get_mut(index.0 as usize) {
                *place = Some(session);
            }
            index
        } else {
            // Memory cannot hold four billion sessions.
            let index = SessionIndex(u32::try_from(self.places.len()).unwrap_or(u32::MAX));
            self.places.push(Some(session));
            index
        };
        self.by_name.insert(name, index);
        index
    }

    /// Sets or clears the state of a session; returns the size of the previous state in bytes.
    pub(in crate::queue) fn set_state(
        &mut self,
        name: &str,
        state: Option<Bytes>,
        at: Timestamp,
        stage: StageNumber,
    ) -> u64 {
        let index = self.get_or_create(name);
        let Some(session) = self.get_mut(index) else { return 0 };
        let before = session.state.take();
        if let Some(bytes) = state {
            let size = bytes.len() as u64;
            let fresh = Some((stage, bytes));
            session.state = Some(Box::new(KnownState { set_at: at, size, fresh }));
            self.state_count += 1;
            self.states_in_flight.push_back((stage, index));
        }
        self.state_count -= usize::from(before.is_some());
        self.reindex(index);
        before.map_or(0, |state| state.size)
    }

    /// Restores the stored facts about a state.
    pub(in crate::queue) fn restore_state(&mut self, name: &str, size: u64, set_at: Timestamp) {
        let index = self.get_or_create(name);
        if let Some(session) = self.get_mut(index) {
            session.state = Some(Box::new(KnownState { set_at, size, fresh: None }));
            self.state_count += 1;
        }
    }

    /// Drops the bytes of states that are durable.
    pub(in crate::queue) fn committed(&mut self, stage: StageNumber) {
        while let Some((carried_by, index)) = self.states_in_flight.front().copied()
            && carried_by <= stage
        {
            self.states_in_flight.pop_front();
            let state = self.get_mut(index).and_then(|session| session.state.as_deref_mut());
            if let Some(state) = state
                && state.fresh.as_ref().is_some_and(|(of, _)| *of <= stage)
            {
                state.fresh = None;
            }
        }
    }

    /// Updates the indexes of a session after a change; removes a session that owns nothing
    /// (SES-04).
    fn reindex(&mut self, index: SessionIndex) {
        let next = self.next_message(index);
        let Some(session) = self.get_mut(index) else { return };
        let is_open = session.hold.is_none();
        let offered = next.filter(|_| is_open);
        let before = std::mem::replace(&mut session.offered, offered);
        let is_busy =
            next.is_some() && session.hold.as_ref().is_some_and(|hold| !hold.ring.is_empty());
        let exists = session.exists();
        if before != offered {
            if let Some(before) = before {
                self.open.remove(&before);
            }
            if let Some(offered) = offered {
                self.open.insert(offered, index);
            }
        }
        self.reindex_delayed(index, is_open);
        if is_busy {
            self.busy.insert(index);
        }
        if exists {
            return;
        }
        if let Some(session) = self.places.get_mut(index.0 as usize).and_then(Option::take) {
            self.by_name.remove(session.name());
            self.free.push(index);
        }
        if self.by_name.is_empty() {
            self.places = Vec::new();
            self.free = Vec::new();
        }
    }

    fn reindex_delayed(&mut self, index: SessionIndex, is_open: bool) {
        let Some(delayed) = self.delayed.get_mut(&index) else { return };
        let first = delayed.all.first().filter(|_| is_open);
        let before = std::mem::replace(&mut delayed.found_by, first);
        if before == first {
            return;
        }
        if let Some(before) = before {
            self.open_delayed.remove(&before);
        }
        if let Some(first) = first {
            self.open_delayed.insert(first, index);
        }
    }
}
