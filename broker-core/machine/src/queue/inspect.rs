//! Inspection: messages, locks, sessions and instants for operators (CON-02, CON-25, CON-27,
//! CON-28). It reads the queue and changes nothing, not even the time of its last use (CON-01).

use std::ops::Bound;
use std::sync::Arc;

use super::Queue;
use super::expire::merged;
use super::facts::MessageView;
use super::session::{Session, SessionHold};
use crate::command::MessageFacts;
use crate::error::Rejection;
use crate::excerpt::{
    ENTRIES_MAX, EXAMINED_MAX, ListPosition, MachineExcerpt, ROW_WORK_MAX, check, first_entry,
    first_number, first_place, is_in_range, page_of_heads, timeline, work_to_count,
    work_to_examine,
};
use crate::ids::{ReceiverId, SequenceNumber};
use crate::inspect::{
    Cursor, Excerpt, HeadFacts, HeadOrder, HeadQuery, HeadState, HeadStates, Inquiry, LockFacts,
    LockOrder, LockQuery, LockRow, SessionOrder, SessionQuery, SessionRow, StateSummary,
    TimelineOf, TimelineQuery,
};
use crate::path::SubQueue;
use crate::sequence_set::SequenceSet;
use crate::slot::{LockIndex, Slot, SlotState};
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of places of the lock table, or of entries by instant of expiry, that a command
/// examines. Both may cost a look at the message.
const LOOKED_UP_MAX: usize = 16_384;
/// Maximum number of scheduled messages that a search for an instant passes over at each probe.
const PASSED_MAX: usize = 16;
/// Number of lock durations after which a waiting session counts as stuck (CON-27).
const STUCK_AFTER_LOCKS: i64 = 10;

impl Queue {
    /// Returns the excerpt that answers an inquiry.
    pub(crate) fn inspect(
        &self,
        sub_queue: SubQueue,
        inquiry: &Inquiry,
        now: Timestamp,
    ) -> Result<MachineExcerpt, Rejection> {
        check(inquiry)?;
        Ok(match inquiry {
            Inquiry::Heads(query) => self.inspect_heads(sub_queue, query, now)?,
            Inquiry::Locks(query) => match &self.sessions {
                Some(_) if sub_queue == SubQueue::Main => self.inspect_session_locks(query),
                _ => self.inspect_locks(sub_queue, query),
            },
            Inquiry::Sessions(query) => self.inspect_sessions(sub_queue, query, now)?,
            Inquiry::SessionState { session } => {
                self.refuse_without_sessions(sub_queue)?;
                let session = self.session_named(session);
                Excerpt::SessionState(session.and_then(|session| self.state_facts(session)))
            }
            Inquiry::Timeline(query) => self.inspect_timeline(sub_queue, query)?,
            Inquiry::Originals { sequences, step } => {
                self.originals(sub_queue, sequences, *step, now)
            }
        })
    }

    /// Work of an inquiry, which is never long unless its first message is.
    pub(crate) fn work_of_inquiry(&self, inquiry: &Inquiry) -> u64 {
        let sessions = self.sessions.as_ref().map(|sessions| sessions.counts());
        match inquiry {
            Inquiry::Heads(query) => {
                let all = self.slots.len() as u64;
                let count = all.min(u64::from(query.count_max));
                let first = 1 + self.tally.overlay_bound(1);
                let rows = (count + self.tally.overlay_bound(count)).min(ROW_WORK_MAX.max(first));
                work_to_examine(all, EXAMINED_MAX) + rows
            }
            Inquiry::Locks(query) => {
                let locked = sessions.map_or(0, |counts| counts.locked);
                let of_sessions = locked.min(u64::from(query.count_max));
                work_to_examine(self.locks.place_count() as u64, LOOKED_UP_MAX)
                    .max(work_to_examine(locked, EXAMINED_MAX) + of_sessions)
            }
            Inquiry::Sessions(query) => {
                let all = sessions.map_or(0, |counts| counts.existing);
                work_to_examine(all, EXAMINED_MAX) + all.min(u64::from(query.count_max))
            }
            Inquiry::SessionState { .. } => 1,
            Inquiry::Originals { sequences, .. } => {
                let count = sequences.len() as u64;
                count + self.tally.overlay_bound(count)
            }
            Inquiry::Timeline(query) => match query.of {
                TimelineOf::Scheduled => work_to_count(self.schedule.len()),
                TimelineOf::Expiring => work_to_examine(self.expiry.len(), LOOKED_UP_MAX),
            },
        }
    }

    pub(super) fn session_named(&self, name: &str) -> Option<&Session> {
        let sessions = self.sessions.as_ref()?;
        sessions.get(sessions.named(name)?)
    }

    fn inspect_heads(
        &self,
        sub_queue: SubQueue,
        query: &HeadQuery,
        now: Timestamp,
    ) -> Result<MachineExcerpt, Rejection> {
        let session = match query.session.as_deref() {
            None => None,
            Some(name) => {
                self.refuse_without_sessions(sub_queue)?;
                let Some(session) = self.session_named(name) else {
                    return Ok(Excerpt::Heads { heads: Vec::new(), next: None, examined: 0 });
                };
                Some(session)
            }
        };
        let head = |sequence: SequenceNumber| {
            let slot = self.slots.get(sequence)?;
            let is_member = match session {
                Some(session) => session.members().contains(sequence),
                None => slot.sub_queue == sub_queue,
            };
            let is_shown = is_member
                && !slot.is_in_flight()
                && query.states.contains(self.head_state(slot, now))
                && (slot.state == SlotState::Scheduled || is_in_range(query, slot.enqueued_at));
            is_shown.then(|| self.head(sequence, slot, now))
        };
        let places: Box<dyn Iterator<Item = ListPosition> + '_> = match query.order {
            HeadOrder::Number => {
                let numbers = self.numbers(sub_queue, session, query);
                Box::new(numbers.map(|sequence| (Timestamp::NONE, sequence)))
            }
            HeadOrder::ScheduledAt => {
                self.refuse_instants(sub_queue)?;
                let place = first_place(query)?;
                match query.is_descending {
                    false => Box::new(self.schedule.range(place..)),
                    true => Box::new(self.schedule.range(..place).rev()),
                }
            }
            HeadOrder::ExpiresAt => {
                self.refuse_instants(sub_queue)?;
                let place = first_place(query)?;
                let by_default = self.description.default_message_time_to_live;
                match query.is_descending {
                    false => Box::new(self.expiry.iter_from(&self.slots, by_default, place)),
                    true => Box::new(self.expiry.iter_back_from(&self.slots, by_default, place)),
                }
            }
        };
        Ok(page_of_heads(places, query.count_max, head))
    }

    /// Returns the numbers among which a list in the order of numbers selects, in its direction.
    fn numbers<'a>(
        &'a self,
        sub_queue: SubQueue,
        session: Option<&'a Session>,
        query: &HeadQuery,
    ) -> Box<dyn Iterator<Item = SequenceNumber> + 'a> {
        let members = session.map_or(&self.sub_queue(sub_queue).members, Session::members);
        let at = |instant| self.number_at(members, instant, query.is_descending);
        let first = first_number(query, at);
        let can_exist = HeadState::ALL
            .into_iter()
            .any(|state| query.states.contains(state) && self.can_have(sub_queue, state));
        let Some(first) = first.filter(|_| can_exist) else {
            return Box::new(std::iter::empty());
        };
        if session.is_none()
            && let Some(mut few) = self.few_in_states(sub_queue, query.states)
        {
            few.sort_unstable();
            return match query.is_descending {
                false => Box::new(few.into_iter().filter(move |number| *number >= first)),
                true => Box::new(few.into_iter().rev().filter(move |number| *number <= first)),
            };
        }
        // Messages that wait for a named destination are members of no sub-queue.
        let has_pending = session.is_none() && sub_queue == SubQueue::Main;
        let pending = has_pending.then_some(&self.transfers).into_iter();
        let none = std::iter::empty();
        match query.is_descending {
            false => {
                let pending = pending.flat_map(move |all| all.pending_from(first));
                Box::new(merged(members.iter_from(first), pending, none, Ord::min))
            }
            true => {
                let pending = pending.flat_map(move |all| all.pending_back_from(first));
                Box::new(merged(members.iter_back_from(first), pending, none, Ord::max))
            }
        }
    }

    /// Whether a sub-queue may have messages in a state, in constant time.
    fn can_have(&self, sub_queue: SubQueue, state: HeadState) -> bool {
        let (counts, is_main) = (&self.tally.counts, sub_queue == SubQueue::Main);
        match state {
            HeadState::Transferring => counts.transfer > 0,
            HeadState::Locked => self.has_locks(),
            HeadState::Scheduled => is_main && counts.scheduled > 0,
            HeadState::Deferred => !is_main || counts.deferred > 0,
            HeadState::Expired => is_main,
            HeadState::Delayed => self.delays.len() > 0,
            HeadState::Active => !is_main || counts.active > 0,
        }
    }

    /// Returns the messages that an index has for these states, unless they are many. There may be
    /// messages of other sub-queues among them.
    fn few_in_states(
        &self,
        sub_queue: SubQueue,
        states: HeadStates,
    ) -> Option<Vec<SequenceNumber>> {
        let only = |state| states == HeadStates::default().with(state);
        let is_main = sub_queue == SubQueue::Main;
        if only(HeadState::Scheduled) && self.schedule.len() <= EXAMINED_MAX {
            return Some(self.schedule.range(..).map(|(_, sequence)| sequence).collect());
        }
        if only(HeadState::Delayed) && self.delays.len() <= EXAMINED_MAX {
            return Some(self.delays.iter_from(sub_queue, SequenceNumber(0)).collect());
        }
        if only(HeadState::Locked)
            && !(is_main && self.sessions.is_some())
            && self.locks.place_count() <= EXAMINED_MAX
        {
            return Some(self.locks.iter().map(|(_, lock)| lock.sequence()).collect());
        }
        None
    }

    /// Returns the number at which a list begins that starts at an instant of enqueueing, found by
    /// binary search: instants ascend with numbers, unless the clock was set back. Scheduled
    /// messages have instants in the future and are passed over; where they are many, the list may
    /// begin too early.
    fn number_at(
        &self,
        members: &SequenceSet,
        at: Timestamp,
        is_descending: bool,
    ) -> Option<SequenceNumber> {
        let is_before = |instant: Timestamp| match is_descending {
            false => instant < at,
            true => instant <= at,
        };
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut passed = middle;
            let found = members.iter_from(SequenceNumber(middle)).take(PASSED_MAX).find_map(|it| {
                passed = it.0;
                let slot = self.slots.get(it)?;
                (slot.state != SlotState::Scheduled).then_some(slot.enqueued_at)
            });
            let is_before = match found {
                Some(instant) => is_before(instant),
                None => is_descending && members.first_from(SequenceNumber(middle)).is_some(),
            };
            match is_before {
                true => low = passed.saturating_add(1),
                false => high = middle,
            }
        }
        match is_descending {
            false => Some(SequenceNumber(low)),
            true => low.checked_sub(1).map(SequenceNumber),
        }
    }

    /// Refuses a list by instant of a sub-queue, whose messages are neither scheduled nor expire.
    fn refuse_instants(&self, sub_queue: SubQueue) -> Result<(), Rejection> {
        match sub_queue {
            SubQueue::Main => Ok(()),
            SubQueue::DeadLetter | SubQueue::TransferDeadLetter => {
                Err(Rejection::invalid_operation(format!(
                    "`{}{}` has no scheduled messages, and its messages do not expire",
                    self.path(),
                    sub_queue.suffix()
                )))
            }
        }
    }

    /// State of a message for an operator: the first that applies in the order of [`HeadState`].
    fn head_state(&self, slot: &Slot, now: Timestamp) -> HeadState {
        if slot.state == SlotState::Pending || slot.is_transferring() {
            return HeadState::Transferring;
        }
        if slot.lock.is_some() {
            return HeadState::Locked;
        }
        match slot.state {
            SlotState::Scheduled => HeadState::Scheduled,
            SlotState::Deferred => HeadState::Deferred,
            SlotState::Active | SlotState::Pending if self.is_expired(slot, now) => {
                HeadState::Expired
            }
            SlotState::Active | SlotState::Pending if slot.is_delayed() => HeadState::Delayed,
            SlotState::Active | SlotState::Pending => HeadState::Active,
        }
    }

    pub(super) fn head(
        &self,
        sequence: SequenceNumber,
        slot: &Slot,
        now: Timestamp,
    ) -> HeadFacts<MessageFacts> {
        let expires = slot.sub_queue == SubQueue::Main && slot.state != SlotState::Pending;
        HeadFacts {
            message: self.facts(sequence, slot, MessageView::Peeked),
            state: self.head_state(slot, now),
            expires_at: if expires { self.expires_at(slot) } else { Timestamp::NEVER },
            is_expired: self.is_expired(slot, now),
            hops: slot.hops,
            header_size: slot.header_size,
            session: self.session_name(sequence).cloned(),
            destination: self.transfers.destination_of(sequence).cloned(),
            lock: self.lock_facts(sequence, slot),
        }
    }

    fn lock_facts(&self, sequence: SequenceNumber, slot: &Slot) -> Option<LockFacts> {
        let index = slot.lock?;
        match (&self.sessions, slot.sub_queue) {
            (Some(sessions), SubQueue::Main) => {
                Some(session_lock(sessions.get(sessions.of(sequence)?)?.hold()?))
            }
            _ => self.message_lock(index),
        }
    }

    fn message_lock(&self, index: LockIndex) -> Option<LockFacts> {
        let lock = self.locks.get(index)?;
        Some(LockFacts {
            taken_at: lock.taken_at,
            until: lock.until,
            renewals: self.locks.renewals(index),
            holder: lock.holder,
            is_of_session: false,
        })
    }

    /// Lists the first locks of a part of the table. A caller merges the parts.
    fn inspect_locks(&self, sub_queue: SubQueue, query: &LockQuery) -> MachineExcerpt {
        let from = usize::try_from(query.from).unwrap_or(usize::MAX);
        let mut found: Vec<(Cursor, LockIndex)> = Vec::new();
        let counts = &self.tally.counts;
        let has_dead_letters = counts.dead_letter + counts.transfer_dead_letter > 0;
        let is_listed = |sequence| {
            let is_only = sub_queue == SubQueue::Main && !has_dead_letters;
            is_only || self.slots.get(sequence).is_some_and(|slot| slot.sub_queue == sub_queue)
        };
        let mut count = 0;
        for (index, lock) in self.locks.iter_places(from, LOOKED_UP_MAX) {
            count += u64::from(is_listed(lock.sequence()));
            let at = match query.order {
                LockOrder::End => lock.until,
                LockOrder::Age => lock.taken_at,
            };
            let key = Cursor { at, sequence: lock.sequence() };
            if query.after.is_none_or(|last| key > last) {
                found.push((key, index));
            }
        }
        found.sort_unstable();
        let row = |(key, index): (Cursor, LockIndex)| {
            let slot = self.slots.get(key.sequence)?;
            let lock = self.message_lock(index).filter(|_| slot.sub_queue == sub_queue)?;
            Some(LockRow {
                sequence: key.sequence,
                session: None,
                message_count: 1,
                delivery_count: slot.delivery_count,
                lock,
            })
        };
        let locks = found.into_iter().filter_map(row).take(query.count_max as usize).collect();
        let end = from.saturating_add(LOOKED_UP_MAX);
        let next = (end < self.locks.place_count()).then_some(end as u64);
        Excerpt::Locks { locks, next, count }
    }

    /// Lists the first locks of a part of the held sessions, in the order of their holders. A
    /// caller merges the parts.
    fn inspect_session_locks(&self, query: &LockQuery) -> MachineExcerpt {
        let Some(sessions) = &self.sessions else {
            return Excerpt::Locks { locks: Vec::new(), next: None, count: 0 };
        };
        let mut holds = sessions.holders_from(ReceiverId(query.from)).peekable();
        let (mut locks, mut count) = (Vec::new(), 0);
        for (session, hold) in holds.by_ref().take(EXAMINED_MAX) {
            let row = LockRow {
                sequence: hold.locks.first().map_or(SequenceNumber(0), |lock| lock.sequence()),
                session: Some(Arc::clone(session.name())),
                message_count: hold.locks.len() as u64,
                delivery_count: 0,
                lock: session_lock(hold),
            };
            let is_listed = query.after.is_none_or(|last| row.key(query.order) > last);
            count += u64::from(hold.ended.is_none());
            if is_listed && hold.ended.is_none() {
                locks.push(row);
            }
        }
        locks.sort_by_cached_key(|row| row.key(query.order));
        locks.truncate(query.count_max as usize);
        let next = holds.peek().map(|(_, hold)| hold.receiver.0);
        Excerpt::Locks { locks, next, count }
    }

    /// Lists the first sessions of a part of all, in the order of their names. A caller merges the
    /// parts.
    fn inspect_sessions(
        &self,
        sub_queue: SubQueue,
        query: &SessionQuery,
        now: Timestamp,
    ) -> Result<MachineExcerpt, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        let Some(sessions) = &self.sessions else {
            return Ok(Excerpt::Sessions { rows: Vec::new(), next: None, count: 0 });
        };
        let from = query.from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = sessions.iter_from(from).peekable();
        let (mut found, mut last): (Vec<(SessionRow, &Session)>, _) = (Vec::new(), None);
        let (order, count_max) = (query.order, query.count_max as usize);
        let is_by_name = order == SessionOrder::Name && !query.is_descending;
        let mut left = EXAMINED_MAX;
        while left > 0
            && let Some(session) = rest.next()
        {
            left -= 1;
            last = Some(session.name());
            if !session.is_selected(query.filter) {
                continue;
            }
            let sorted_by_oldest = order == SessionOrder::Oldest;
            let oldest_at = sorted_by_oldest.then(|| self.oldest_in(session, &mut left)).flatten();
            let row = session_row(session, oldest_at);
            let is_listed = query.beyond.as_ref().is_none_or(|last| {
                let key = row.key(order);
                if query.is_descending { key < *last } else { key > *last }
            });
            if is_listed {
                found.push((row, session));
            }
            if is_by_name && found.len() == count_max {
                break;
            }
        }
        found.sort_by_cached_key(|(row, _)| row.key(order));
        if query.is_descending {
            found.reverse();
        }
        found.truncate(count_max);
        let stuck_after = self.stuck_after();
        let row = |(row, session): (SessionRow, &Session)| {
            let oldest_at = row.oldest_at.or_else(|| self.oldest_in(session, &mut { PASSED_MAX }));
            let is_stuck = oldest_at.is_some_and(|at| now.since(at) > stuck_after);
            SessionRow { oldest_at, is_stuck, ..row }
        };
        let next = last.filter(|_| rest.peek().is_some()).map(|name| (**name).into());
        let rows = found.into_iter().map(row).collect();
        Ok(Excerpt::Sessions { rows, next, count: sessions.counts().existing })
    }

    /// Time for which the oldest message of a stuck session waits at least.
    fn stuck_after(&self) -> TimeSpan {
        let ticks = self.description.lock_duration.ticks();
        TimeSpan::from_ticks(ticks.saturating_mul(STUCK_AFTER_LOCKS))
    }

    /// Instant of enqueueing of the first message of a session that is not scheduled. Each message
    /// that is passed over takes one from `left`.
    fn oldest_in(&self, session: &Session, left: &mut usize) -> Option<Timestamp> {
        let first = session.members().iter_from(SequenceNumber(0)).take(PASSED_MAX);
        let mut slots = first.filter_map(|sequence| self.slots.get(sequence));
        let oldest = slots.find(|slot| {
            let is_scheduled = slot.state == SlotState::Scheduled;
            *left = left.saturating_sub(usize::from(is_scheduled));
            !is_scheduled
        });
        oldest.map(|slot| slot.enqueued_at)
    }

    fn inspect_timeline(
        &self,
        sub_queue: SubQueue,
        query: &TimelineQuery,
    ) -> Result<MachineExcerpt, Rejection> {
        self.refuse_instants(sub_queue)?;
        let first = first_entry(query);
        Ok(match query.of {
            TimelineOf::Scheduled => timeline(self.schedule.range(first..), query, ENTRIES_MAX),
            TimelineOf::Expiring => {
                let by_default = self.description.default_message_time_to_live;
                let entries = self.expiry.iter_from(&self.slots, by_default, first);
                timeline(entries, query, LOOKED_UP_MAX)
            }
        })
    }
}

fn session_lock(hold: &SessionHold) -> LockFacts {
    LockFacts {
        taken_at: hold.taken_at,
        until: hold.until,
        renewals: hold.renewals,
        holder: Some(hold.receiver),
        is_of_session: true,
    }
}

fn session_row(session: &Session, oldest_at: Option<Timestamp>) -> SessionRow {
    let Session { active, scheduled, .. } = *session;
    SessionRow {
        name: Arc::clone(session.name()),
        active,
        deferred: session.members().len().saturating_sub(active + scheduled),
        scheduled,
        oldest_at,
        is_stuck: false,
        state: session.state().map(|state| StateSummary { size: state.size, set_at: state.set_at }),
        lock: session.hold().filter(|hold| hold.ended.is_none()).map(session_lock),
    }
}
