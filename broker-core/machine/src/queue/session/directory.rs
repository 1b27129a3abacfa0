//! The directory of a queue's sessions: by id, by message, by holder, by lock, and those that can be
//! accepted by their lowest available number. Every look-up takes a time that grows with the logarithm
//! of their number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::accept::Waiting;
use super::list::Listing;
use super::{Held, Session, SessionIndex, State};
use crate::StageNumber;
use crate::command::{LinkEnd, SessionCounts};
use crate::ids::{ReceiverId, SequenceNumber, SessionEpoch, Ticket};
use crate::queue::demand::{Call, Calls, Link};
use crate::sequence_set::SequenceSet;
use crate::slot::SlotState;
use crate::time::Timestamp;

/// Messages of one session that expired together, on their way out (EXP-41).
#[derive(Debug)]
pub(in crate::queue) struct Doomed {
    /// All but the one that has expired by its own time to live.
    pub(in crate::queue) others: SequenceSet,
    /// Those that were Delayed, but it.
    pub(in crate::queue) delayed: SequenceSet,
    /// That one. It goes last: if the broker ends before, it is still there and expires the rest.
    pub(in crate::queue) cause: SequenceNumber,
}

/// Durable Delayed messages of one session.
#[derive(Debug, Default)]
struct Resting {
    all: SequenceSet,
    /// Under which of them the session is found by who looks for Delayed messages, while nobody holds it.
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
    /// Unlocked sessions with a message to hand out, by the number of that (SES-07).
    open: BTreeMap<SequenceNumber, SessionIndex>,
    /// Ends of session locks.
    ends: BTreeSet<(Timestamp, SessionIndex)>,
    /// Sessions whose hold has ended, with locks under it that are still to be ended.
    ending: BTreeSet<SessionIndex>,
    /// The calls of holders that wait, and for each session that has some the end of the first.
    by_call: BTreeMap<Ticket, SessionIndex>,
    waits: BTreeSet<(Timestamp, SessionIndex)>,
    /// How many holders have their link.
    link_count: usize,
    /// Held sessions whose demand may meet a message.
    busy: BTreeSet<SessionIndex>,
    /// Durable Delayed messages, by session (RTY-22).
    resting: BTreeMap<SessionIndex, Resting>,
    /// Unlocked sessions that have some, by the lowest number of those (RTY-13).
    open_resting: BTreeMap<SequenceNumber, SessionIndex>,
    /// How many sessions have a state.
    state_count: usize,
    states_in_flight: VecDeque<(StageNumber, SessionIndex)>,
    /// The list that is being put together.
    pub(super) listing: Option<Box<Listing>>,
    /// Who waits for a session.
    pub(super) waiting: Waiting,
    /// Sessions that expire; their messages are offered to nobody any more.
    pub(in crate::queue) doomed: VecDeque<Doomed>,
}

impl Sessions {
    pub(in crate::queue) fn get(&self, index: SessionIndex) -> Option<&Session> {
        self.places.get(index.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, index: SessionIndex) -> Option<&mut Session> {
        self.places.get_mut(index.0 as usize)?.as_mut()
    }

    pub(in crate::queue) fn held_mut(&mut self, index: SessionIndex) -> Option<&mut Held> {
        self.get_mut(index)?.held.as_deref_mut()
    }

    /// The session of that id.
    pub(in crate::queue) fn named(&self, name: &str) -> Option<SessionIndex> {
        self.by_name.get(name).copied()
    }

    /// The session that a message belongs to.
    pub(in crate::queue) fn of(&self, sequence: SequenceNumber) -> Option<SessionIndex> {
        self.by_message.get(&sequence).copied()
    }

    /// The id of the session that a message belongs to.
    pub(in crate::queue) fn name_of(&self, sequence: SequenceNumber) -> Option<&Arc<str>> {
        Some(self.get(self.of(sequence)?)?.name())
    }

    /// The session that a receiver holds.
    pub(in crate::queue) fn held_by(&self, receiver: ReceiverId) -> Option<SessionIndex> {
        self.by_receiver.get(&receiver).copied()
    }

    /// Whether the session lock of that name is in force.
    pub(in crate::queue) fn is_in_force(&self, epoch: SessionEpoch, now: Timestamp) -> bool {
        self.by_epoch
            .get(&epoch)
            .and_then(|index| self.get(*index)?.held())
            .is_some_and(|held| held.until > now)
    }

    /// Whether a session lock of that name exists.
    pub(super) fn knows(&self, epoch: SessionEpoch) -> bool {
        self.by_epoch.contains_key(&epoch)
    }

    pub(in crate::queue) fn counts(&self) -> SessionCounts {
        SessionCounts { existing: self.by_name.len() as u64, locked: self.by_receiver.len() as u64 }
    }

    /// How many sessions have a state.
    pub(super) const fn state_count(&self) -> usize {
        self.state_count
    }

    /// Whether somebody holds a session or waits for one (file 01, "active receiver"; TMP-15).
    pub(in crate::queue) fn has_receiver(&self) -> bool {
        !self.by_receiver.is_empty() || !self.waiting.is_empty()
    }

    /// How many links and calls holders have, and how many calls wait for a session.
    pub(in crate::queue) fn receiver_count(&self) -> usize {
        self.link_count + self.by_call.len() + self.waiting.len()
    }

    /// What the holder of a session has under its lock.
    pub(in crate::queue) fn held_of(&self, receiver: ReceiverId) -> Option<&Held> {
        self.get(self.held_by(receiver)?)?.held()
    }

    /// The link of a holder.
    pub(in crate::queue) fn link(&self, receiver: ReceiverId) -> Option<&Link> {
        self.held_of(receiver)?.link.as_ref()
    }

    pub(in crate::queue) fn link_mut(&mut self, receiver: ReceiverId) -> Option<&mut Link> {
        self.held_mut(self.held_by(receiver)?)?.link.as_mut()
    }

    /// Gives a holder a link.
    pub(super) fn open_link(&mut self, index: SessionIndex, link: Link) {
        let Some(held) = self.held_mut(index) else { return };
        let is_new = held.link.replace(link).is_none();
        self.link_count += usize::from(is_new);
    }

    /// Takes the link of a holder away.
    pub(in crate::queue) fn take_link(&mut self, receiver: ReceiverId) -> Option<Link> {
        let link = self.held_mut(self.held_by(receiver)?)?.link.take()?;
        self.link_count -= 1;
        Some(link)
    }

    /// The holders that have a link.
    pub(in crate::queue) fn links(&self) -> impl Iterator<Item = ReceiverId> {
        let linked = |receiver: &&ReceiverId| self.link(**receiver).is_some();
        self.by_receiver.keys().filter(linked).copied()
    }

    /// The calls of holders.
    pub(in crate::queue) fn calls(&self) -> impl Iterator<Item = Ticket> {
        self.by_call.keys().copied()
    }

    /// Lets a call of a holder wait.
    pub(in crate::queue) fn add_call(&mut self, index: SessionIndex, ticket: Ticket, call: Call) {
        self.change_calls(index, |calls| calls.insert(ticket, call));
        self.by_call.insert(ticket, index);
    }

    /// Takes a call of a holder away.
    pub(in crate::queue) fn take_call(&mut self, ticket: Ticket) -> Option<Call> {
        let index = self.by_call.remove(&ticket)?;
        self.change_calls(index, |calls| calls.remove(ticket))?
    }

    fn change_calls<T>(
        &mut self,
        index: SessionIndex,
        change: impl FnOnce(&mut Calls) -> T,
    ) -> Option<T> {
        let held = self.held_mut(index)?;
        let before = held.calls.first_deadline();
        let changed = change(&mut held.calls);
        let after = held.calls.first_deadline();
        if before != after {
            if let Some((deadline, _)) = before {
                self.waits.remove(&(deadline, index));
            }
            if let Some((deadline, _)) = after {
                self.waits.insert((deadline, index));
            }
        }
        Some(changed)
    }

    /// A call of a holder that has waited long enough.
    pub(in crate::queue) fn first_call_over(&self, now: Timestamp) -> Option<Ticket> {
        let (_, index) = self.waits.first().filter(|(deadline, _)| *deadline <= now)?;
        self.get(*index)?.held()?.calls.first_deadline().map(|(_, ticket)| ticket)
    }

    /// The unlocked session whose next message has the lowest number (SES-07).
    pub(in crate::queue) fn first_open(&self) -> Option<(SequenceNumber, SessionIndex)> {
        self.open.first_key_value().map(|(sequence, index)| (*sequence, *index))
    }

    /// The lowest Delayed message of all unlocked sessions.
    pub(super) fn first_open_resting(&self) -> Option<SequenceNumber> {
        self.open_resting.first_key_value().map(|(sequence, _)| *sequence)
    }

    /// A session whose lock has run out.
    pub(super) fn first_ended(&self, now: Timestamp) -> Option<SessionIndex> {
        self.ends.first().filter(|(until, _)| *until <= now).map(|(_, index)| *index)
    }

    /// The next instant at which a session that is held has something to do.
    pub(in crate::queue) fn first_due(&self) -> Option<Timestamp> {
        let firsts = [self.ends.first(), self.waits.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Takes the sessions whose demand may meet a message.
    pub(in crate::queue) fn take_busy(&mut self) -> BTreeSet<SessionIndex> {
        std::mem::take(&mut self.busy)
    }

    /// Notes that demand of a session may meet a message.
    pub(in crate::queue) fn note_busy(&mut self, index: SessionIndex) {
        self.busy.insert(index);
    }

    /// The sessions from an id on, ascending.
    pub(super) fn iter_from(&self, from: Bound<&str>) -> impl Iterator<Item = &Session> {
        let range = self.by_name.range::<str, _>((from, Bound::Unbounded));
        range.filter_map(|(_, index)| self.get(*index))
    }

    /// All sessions, ascending by id.
    pub(in crate::queue) fn iter(&self) -> impl Iterator<Item = (SessionIndex, &Session)> {
        self.by_name.values().filter_map(|index| Some((*index, self.get(*index)?)))
    }

    /// The session of that id; comes into being if it is not there (SES-02).
    pub(super) fn found(&mut self, name: &str) -> SessionIndex {
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
            // A session is far larger than the four billionth part of any memory.
            let index = SessionIndex(u32::try_from(self.places.len()).unwrap_or(u32::MAX));
            self.places.push(Some(session));
            index
        };
        self.by_name.insert(name, index);
        index
    }

    /// Adds a message to its session.
    pub(in crate::queue) fn insert(
        &mut self,
        sequence: SequenceNumber,
        state: SlotState,
        name: &str,
    ) {
        let index = self.found(name);
        self.by_message.insert(sequence, index);
        if let Some(session) = self.get_mut(index) {
            session.members.insert(sequence);
            session.active += u64::from(state == SlotState::Active);
        }
    }

    /// Takes a message out of its session.
    pub(in crate::queue) fn remove(&mut self, sequence: SequenceNumber, state: SlotState) {
        let Some(index) = self.by_message.remove(&sequence) else { return };
        self.wake(index, sequence);
        if let Some(session) = self.get_mut(index) {
            session.members.remove(sequence);
            session.available.remove(sequence);
            session.returning.remove(sequence);
            session.active -= u64::from(state == SlotState::Active).min(session.active);
        }
        self.put_in_place(index);
    }

    /// Notes that a message has changed its state.
    pub(in crate::queue) fn recount(
        &mut self,
        sequence: SequenceNumber,
        before: SlotState,
        after: SlotState,
    ) {
        let Some(session) = self.of(sequence).and_then(|index| self.get_mut(index)) else { return };
        session.active -= u64::from(before == SlotState::Active).min(session.active);
        session.active += u64::from(after == SlotState::Active);
    }

    /// Lets the holder have a message.
    pub(in crate::queue) fn offer(&mut self, sequence: SequenceNumber) {
        let Some(index) = self.of(sequence) else { return };
        self.wake(index, sequence);
        if let Some(session) = self.get_mut(index) {
            session.returning.remove(sequence);
            session.available.insert(sequence);
        }
        self.put_in_place(index);
    }

    /// Keeps a message from the holder.
    pub(in crate::queue) fn withdraw(&mut self, sequence: SequenceNumber) {
        let Some(index) = self.of(sequence) else { return };
        self.wake(index, sequence);
        if let Some(session) = self.get_mut(index) {
            session.available.remove(sequence);
            session.returning.remove(sequence);
        }
        self.put_in_place(index);
    }

    /// Keeps a message, and those behind it, from the holder until it is durable.
    pub(in crate::queue) fn hold_back(&mut self, sequence: SequenceNumber) {
        let Some(index) = self.of(sequence) else { return };
        if let Some(session) = self.get_mut(index) {
            session.available.remove(sequence);
            session.returning.insert(sequence);
        }
        self.put_in_place(index);
    }

    /// Keeps a Delayed message from the holder, and if it holds them up those behind it (RTY-22, RTY-23).
    pub(in crate::queue) fn rest(&mut self, sequence: SequenceNumber, holds: bool) {
        let Some(index) = self.of(sequence) else { return };
        self.resting.entry(index).or_default().all.insert(sequence);
        if let Some(session) = self.get_mut(index) {
            session.available.remove(sequence);
            if holds {
                session.returning.insert(sequence);
            } else {
                session.returning.remove(sequence);
            }
        }
        self.put_in_place(index);
    }

    /// Ends the rest of a message, if it was Delayed.
    fn wake(&mut self, index: SessionIndex, sequence: SequenceNumber) {
        let Some(resting) = self.resting.get_mut(&index) else { return };
        resting.all.remove(sequence);
        if resting.all.is_empty() {
            self.take_resting(index);
        }
    }

    /// Takes the Delayed messages of a session out of the directory.
    fn take_resting(&mut self, index: SessionIndex) -> SequenceSet {
        let Some(resting) = self.resting.remove(&index) else { return SequenceSet::default() };
        if let Some(found_by) = resting.found_by {
            self.open_resting.remove(&found_by);
        }
        resting.all
    }

    /// Whether a message is Delayed and durable.
    pub(in crate::queue) fn is_resting(&self, sequence: SequenceNumber) -> bool {
        let resting = self.of(sequence).and_then(|index| self.resting.get(&index));
        resting.is_some_and(|resting| resting.all.contains(sequence))
    }

    /// The durable Delayed messages of a session.
    pub(super) fn resting_in(&self, index: SessionIndex) -> Option<&SequenceSet> {
        self.resting.get(&index).map(|resting| &resting.all)
    }

    /// Whether a message can be handed out as far as it is concerned itself.
    pub(in crate::queue) fn is_available(&self, sequence: SequenceNumber) -> bool {
        self.of(sequence)
            .and_then(|index| self.get(index))
            .is_some_and(|session| session.available.contains(sequence))
    }

    /// Condemns the available and Delayed messages of a session, because one of them has expired (EXP-41,
    /// RTY-25). Those that were Delayed hold up nobody any more.
    pub(in crate::queue) fn doom(&mut self, cause: SequenceNumber) {
        let Some(index) = self.of(cause) else { return };
        let mut delayed = self.take_resting(index);
        let Some(session) = self.get_mut(index) else { return };
        let mut others = std::mem::take(&mut session.available);
        for sequence in delayed.iter_from(SequenceNumber(0)) {
            session.returning.remove(sequence);
        }
        others.remove(cause);
        delayed.remove(cause);
        self.doomed.push_back(Doomed { others, delayed, cause });
        self.put_in_place(index);
    }

    /// Locks a session for a receiver.
    pub(super) fn lock(&mut self, index: SessionIndex, held: Held) {
        self.by_receiver.insert(held.receiver, index);
        self.by_epoch.insert(held.epoch, index);
        self.ends.insert((held.until, index));
        self.link_count += usize::from(held.link.is_some());
        if let Some(session) = self.get_mut(index) {
            session.held = Some(Box::new(held));
        }
        self.put_in_place(index);
    }

    /// Moves the end of a session lock.
    pub(super) fn renew(&mut self, index: SessionIndex, until: Timestamp) {
        let Some(held) = self.held_mut(index) else { return };
        let before = std::mem::replace(&mut held.until, until);
        self.ends.remove(&(before, index));
        self.ends.insert((until, index));
    }

    /// The hold of a session ends: it is in force no more, and stays with its holder until all locks under it
    /// have ended. Returns whether it has not ended before.
    pub(super) fn begin_to_end(&mut self, index: SessionIndex, end: LinkEnd) -> bool {
        let Some(held) = self.held_mut(index) else { return false };
        if held.ended.is_some() {
            return false;
        }
        held.ended = Some(end);
        self.renew(index, Timestamp::NONE);
        self.ending.insert(index);
        true
    }

    /// Whether there are locks under a hold that has ended.
    pub(in crate::queue) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Ends a session lock.
    pub(super) fn unlock(&mut self, index: SessionIndex) {
        let Some(held) = self.get_mut(index).and_then(|session| session.held.take()) else {
            return;
        };
        self.by_receiver.remove(&held.receiver);
        self.by_epoch.remove(&held.epoch);
        self.ends.remove(&(held.until, index));
        self.ending.remove(&index);
        self.link_count -= usize::from(held.link.is_some());
        for (ticket, call) in held.calls.iter() {
            self.by_call.remove(&ticket);
            self.waits.remove(&(call.deadline, index));
        }
        self.busy.remove(&index);
        self.put_in_place(index);
    }

    /// Sets or clears the state of a session; returns how many bytes the one before had.
    pub(in crate::queue) fn set_state(
        &mut self,
        name: &str,
        state: Option<Bytes>,
        at: Timestamp,
        stage: StageNumber,
    ) -> u64 {
        let index = self.found(name);
        let Some(session) = self.get_mut(index) else { return 0 };
        let before = session.state.take();
        if let Some(bytes) = state {
            let size = bytes.len() as u64;
            let fresh = Some((stage, bytes));
            session.state = Some(Box::new(State { set_at: at, size, fresh }));
            self.state_count += 1;
            self.states_in_flight.push_back((stage, index));
        }
        self.state_count -= usize::from(before.is_some());
        self.put_in_place(index);
        before.map_or(0, |state| state.size)
    }

    /// Takes back what is stored of a state.
    pub(in crate::queue) fn restore_state(&mut self, name: &str, size: u64, set_at: Timestamp) {
        let index = self.found(name);
        if let Some(session) = self.get_mut(index) {
            session.state = Some(Box::new(State { set_at, size, fresh: None }));
            self.state_count += 1;
        }
    }

    /// Forgets the bytes of states that the store has by now.
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

    /// Puts a session where its lock and its messages belong; ends one that owns nothing (SES-04).
    fn put_in_place(&mut self, index: SessionIndex) {
        let Some(session) = self.get_mut(index) else { return };
        let is_open = session.held.is_none();
        let offered = if is_open { session.next_message() } else { None };
        let before = std::mem::replace(&mut session.offered, offered);
        let is_busy = session
            .held
            .as_ref()
            .is_some_and(|held| !held.ring.is_empty() && session.next_message().is_some());
        let exists = session.exists();
        if before != offered {
            if let Some(before) = before {
                self.open.remove(&before);
            }
            if let Some(offered) = offered {
                self.open.insert(offered, index);
            }
        }
        self.put_resting_in_place(index, is_open);
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

    fn put_resting_in_place(&mut self, index: SessionIndex, is_open: bool) {
        let Some(resting) = self.resting.get_mut(&index) else { return };
        let first = resting.all.first().filter(|_| is_open);
        let before = std::mem::replace(&mut resting.found_by, first);
        if before == first {
            return;
        }
        if let Some(before) = before {
            self.open_resting.remove(&before);
        }
        if let Some(first) = first {
            self.open_resting.insert(first, index);
        }
    }

    /// Checks the directory against its sessions.
    pub(in crate::queue) fn check(&self) -> Result<(), String> {
        let mut messages = 0;
        let (mut open, mut held_count, mut states) = (0, 0, 0);
        let (mut links, mut calls, mut waits, mut endings) = (0, 0, 0, 0);
        let (mut rests, mut open_rests) = (0, 0);
        for (name, index) in &self.by_name {
            let Some(session) = self.get(*index) else {
                return Err(format!("session {name} has no place"));
            };
            messages += session.members.len();
            if let Some(resting) = self.resting.get(index) {
                rests += 1;
                let is_rest = |sequence| {
                    session.members.contains(sequence) && !session.available.contains(sequence)
                };
                let all = &resting.all;
                if all.is_empty() || !all.iter_from(SequenceNumber(0)).all(is_rest) {
                    return Err(format!("what rests in session {name} is not in it, or available"));
                }
                let first = all.first().filter(|_| session.held.is_none());
                let found = first.and_then(|first| self.open_resting.get(&first));
                if resting.found_by != first || found != first.and(Some(index)) {
                    return Err(format!("what rests in session {name} is not found (RTY-13)"));
                }
                open_rests += u64::from(first.is_some());
            }
            states += u64::from(session.state.is_some());
            if !session.exists() || session.name != *name {
                return Err(format!("session {name} is in the directory for nothing (SES-04)"));
            }
            let offered = if session.held.is_none() { session.next_message() } else { None };
            if session.offered != offered {
                return Err(format!("session {name} is offered as {:?}", session.offered));
            }
            if let Some(number) = offered {
                open += 1;
                if self.open.get(&number) != Some(index) {
                    return Err(format!("session {name} cannot be accepted (SES-07)"));
                }
            }
            if let Some(held) = &session.held {
                held_count += 1;
                endings += u64::from(held.ended.is_some());
                links += u64::from(held.link.is_some());
                calls += held.calls.len() as u64;
                let first = held.calls.first_deadline();
                waits += u64::from(first.is_some());
                let is_known = first.is_none_or(|(at, _)| self.waits.contains(&(at, *index)));
                if !is_known || !held.calls.is_whole() {
                    return Err(format!("a waiting call for session {name} has no deadline"));
                }
                if self.by_receiver.get(&held.receiver) != Some(index)
                    || self.by_epoch.get(&held.epoch) != Some(index)
                    || !self.ends.contains(&(held.until, *index))
                {
                    return Err(format!("the lock of session {name} is not known (SES-11)"));
                }
            }
        }
        let counts = [
            (messages, self.by_message.len() as u64, "messages"),
            (open, self.open.len() as u64, "open sessions"),
            (rests, self.resting.len() as u64, "sessions with delayed messages"),
            (open_rests, self.open_resting.len() as u64, "open sessions with delayed messages"),
            (states, self.state_count as u64, "states"),
            (held_count, self.by_receiver.len() as u64, "holders"),
            (held_count, self.by_epoch.len() as u64, "locks"),
            (held_count, self.ends.len() as u64, "ends of locks"),
            (endings, self.ending.len() as u64, "holds that end"),
            (links, self.link_count as u64, "links"),
            (calls, self.by_call.len() as u64, "calls"),
            (waits, self.waits.len() as u64, "ends of calls"),
            (
                (self.places.len() - self.free.len()) as u64,
                self.by_name.len() as u64,
                "places of sessions",
            ),
        ];
        for (counted, listed, what) in counts {
            if counted != listed {
                return Err(format!("{counted} {what}, {listed} in the directory"));
            }
        }
        self.waiting.check()
    }
}
