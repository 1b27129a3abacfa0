//! Invariants of a queue after every step. The model test and the simulator check them.

use std::collections::{BTreeMap, BTreeSet};

use super::Queue;
use super::demand::{Demand, Lane, Ring};
use super::tally::Tally;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::slot::SlotState;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct BrokenInvariant(pub String);

impl Queue {
    /// Checks the whole state against itself, in time linear in its size.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check_invariants(&self) -> Result<(), BrokenInvariant> {
        let broken = |detail: String| Err(BrokenInvariant(detail));
        let mut tally = Tally::default();
        let (mut locked, mut delayed, mut watched, mut scheduled) = (0, 0, 0, 0);
        let mut expiring = self.expiring();
        for (_, session) in self.sessions.iter().flat_map(|sessions| sessions.iter()) {
            tally.size_bytes += session.state().map_or(0, |state| state.size);
        }
        for (sequence, slot) in self.slots.iter() {
            tally.add(slot);
            if sequence > self.last_sequence {
                return broken(format!("{sequence} is above the last number"));
            }
            for which in SubQueue::ALL {
                let belongs = which == slot.sub_queue && slot.state != SlotState::Pending;
                if self.sub_queue(which).members.contains(sequence) != belongs {
                    return broken(format!(
                        "{sequence} is not a member of exactly {:?}",
                        slot.sub_queue
                    ));
                }
            }
            let rests = slot.state == SlotState::Active
                && slot.lock.is_none()
                && !slot.is_in_flight()
                && !slot.is_transferring();
            let rests = rests
                && !expiring.remove(&sequence)
                && !self.transfers.is_to_be_reoffered(sequence);
            let until = self.delays.until(slot.sub_queue, sequence);
            if until.is_some() != slot.is_delayed()
                || self.is_durably_delayed(sequence) != (rests && slot.is_delayed())
            {
                return broken(format!(
                    "{sequence} is delayed or not, contrary to its state {slot:?}"
                ));
            }
            delayed += usize::from(slot.is_delayed());
            let offered = rests && !slot.is_delayed();
            if self.is_available(sequence, slot.sub_queue) != offered {
                return broken(format!(
                    "{sequence} is available or not, contrary to its state {slot:?}"
                ));
            }
            let is_watched = self.expiry.watches(sequence, slot);
            watched += u64::from(is_watched);
            if slot.sub_queue == SubQueue::Main
                && slot.state == SlotState::Active
                && rests
                && !is_watched
            {
                return broken(format!("the expiry of {sequence} is not indexed (EXP-31)"));
            }
            if slot.state == SlotState::Scheduled
                && !slot.is_in_flight()
                && !self.schedule.contains(slot.enqueued_at, sequence)
            {
                return broken(format!("the due time of {sequence} is not indexed (SCH-07)"));
            }
            scheduled += usize::from(slot.state == SlotState::Scheduled && !slot.is_in_flight());
            if let Some(lock) = slot.lock {
                locked += 1;
                let known = self.lock_table(sequence, slot.sub_queue).and_then(|all| all.get(lock));
                if known.map(|lock| lock.sequence()) != Some(sequence) {
                    return broken(format!("lock of {sequence} names another message (LIF-03)"));
                }
                let is_offered = matches!(slot.state, SlotState::Active | SlotState::Deferred);
                let is_kept = slot.is_in_flight() || slot.is_transferring() || slot.is_delayed();
                if is_kept || !is_offered {
                    return broken(format!("{sequence} is locked but was offered to no receiver"));
                }
            }
            if slot.state == SlotState::Scheduled && slot.sub_queue != SubQueue::Main {
                return broken(format!("{sequence} is scheduled in a sub-queue"));
            }
        }
        if delayed != self.delays.len() || !self.delays.is_whole() {
            return broken(format!("{delayed} messages are delayed, not {}", self.delays.len()));
        }
        if watched != self.expiry.len() || scheduled != self.schedule.len() {
            return broken("an instant is kept for a message that no longer exists".to_owned());
        }
        if tally != self.tally {
            return broken(format!("tally {:?} against slots {tally:?} (LIF-02)", self.tally));
        }
        let sessions = self.sessions.iter().flat_map(|sessions| sessions.iter());
        let of_sessions = sessions.filter_map(|(_, session)| Some(session.hold()?.locks.len()));
        let locks = self.locks.len() + of_sessions.sum::<usize>();
        if locked != locks {
            return broken(format!("{locks} locks for {locked} locked messages"));
        }
        if let Some(sequence) = expiring.first() {
            return broken(format!("{sequence} expires with its session but does not exist"));
        }
        let members: u64 =
            SubQueue::ALL.iter().map(|which| self.sub_queue(*which).members.len()).sum();
        let members = members + self.transfers.pending_count() as u64;
        if members != self.slots.len() as u64 {
            return broken(format!("{members} members for {} slots", self.slots.len()));
        }
        self.check_sessions()?;
        self.check_transfers()?;
        self.check_demand()
    }

    /// Messages of expired sessions that are not removed yet.
    fn expiring(&self) -> BTreeSet<SequenceNumber> {
        self.sessions
            .iter()
            .flat_map(|sessions| &sessions.expiring)
            .flat_map(|expiring| {
                let others = expiring.others.iter_from(SequenceNumber(0));
                others.chain(expiring.delayed.iter_from(SequenceNumber(0))).chain([expiring.cause])
            })
            .collect()
    }

    /// LIF-05: a message in transfer is on exactly one list, and a message that waits at an exit
    /// will leave by it.
    fn check_transfers(&self) -> Result<(), BrokenInvariant> {
        let broken = |detail: String| Err(BrokenInvariant(detail));
        self.transfers.check().map_err(BrokenInvariant)?;
        let mut under_way = BTreeSet::new();
        for sequence in self.transfers.under_way() {
            if !under_way.insert(sequence) {
                return broken(format!("{sequence} is on two lists"));
            }
        }
        for (sequence, slot) in self.slots.iter() {
            // A list may name messages that were removed; a frozen message is on a list, or waits
            // for a list of its job.
            if slot.is_transferring() && !under_way.contains(&sequence) {
                return broken(format!("{sequence} is transferring and on no list"));
            }
            let pending = slot.state == SlotState::Pending;
            if pending != self.transfers.destination_of(sequence).is_some() {
                return broken(format!(
                    "{sequence} is pending or not, contrary to its destination"
                ));
            }
        }
        for which in SubQueue::ALL {
            for sequence in self
                .transfers
                .waiting_of(which)
                .into_iter()
                .flat_map(|waiting| waiting.iter_from(SequenceNumber(0)))
            {
                let leaves = self.slots.get(sequence).is_some_and(|slot| {
                    slot.sub_queue == which && slot.lock.is_none() && self.leaves(slot)
                });
                if !leaves || self.sub_queue(which).available.contains(sequence) {
                    return broken(format!("{sequence} waits at an exit that it does not use"));
                }
            }
        }
        Ok(())
    }

    fn check_sessions(&self) -> Result<(), BrokenInvariant> {
        let Some(sessions) = &self.sessions else { return Ok(()) };
        sessions.check().map_err(BrokenInvariant)?;
        if !self.main.available.is_empty() || !self.main.ring.is_empty() {
            return Err(BrokenInvariant(
                "messages of sessions are offered without sessions".to_owned(),
            ));
        }
        let mut counts = BTreeMap::<_, (u64, u64)>::new();
        for (sequence, slot) in self.slots.iter() {
            if let Some(index) = sessions.of(sequence) {
                let (active, scheduled) = counts.entry(index).or_default();
                *active += u64::from(slot.state == SlotState::Active);
                *scheduled += u64::from(slot.state == SlotState::Scheduled);
            }
            let belongs = slot.sub_queue == SubQueue::Main && slot.state != SlotState::Pending;
            if sessions.of(sequence).is_some() != belongs {
                return Err(BrokenInvariant(format!("{sequence} is not in exactly one session")));
            }
            let hold = sessions.of(sequence).and_then(|index| sessions.get(index)?.hold());
            if slot.sub_queue == SubQueue::Main && slot.lock.is_some() && hold.is_none() {
                return Err(BrokenInvariant(format!(
                    "{sequence} is locked in a session without a holder (SES-11)"
                )));
            }
        }
        for (index, session) in sessions.iter() {
            let counted = counts.remove(&index).unwrap_or_default();
            if counted != (session.active, session.scheduled) {
                return Err(BrokenInvariant(format!(
                    "session {} has {counted:?} active and scheduled messages, but counts {:?} \
                     (CON-27)",
                    session.name(),
                    (session.active, session.scheduled)
                )));
            }
        }
        Ok(())
    }

    fn check_demand(&self) -> Result<(), BrokenInvariant> {
        let broken = |detail: String| Err(BrokenInvariant(detail));
        let mut seats = 0;
        let sessions = self.sessions.iter().flat_map(|sessions| sessions.iter());
        let lanes = SubQueue::ALL
            .into_iter()
            .map(Lane::SubQueue)
            .chain(sessions.map(|(index, _)| Lane::Session(index)));
        for lane in lanes {
            for (turn, demand) in self.ring(lane).into_iter().flat_map(Ring::iter) {
                seats += 1;
                let seated = match demand {
                    Demand::Call(ticket) => self
                        .call(lane, ticket)
                        .is_some_and(|call| call.turn == turn && call.lane == lane),
                    Demand::Link(receiver) => self.link(receiver).is_some_and(|link| {
                        link.turn == Some(turn) && link.lane == lane && link.can_be_served()
                    }),
                };
                if !seated {
                    return broken(format!("turn {turn} of {lane:?} has no owner"));
                }
            }
        }
        let links = self.all_links().into_iter().filter_map(|receiver| self.link(receiver));
        let waiting = self.all_calls().len() + links.filter(|link| link.can_be_served()).count();
        if seats != waiting {
            return broken(format!("{seats} turns for {waiting} waiting receivers"));
        }
        if !self.calls.is_whole() {
            return broken(
                "a waiting call has no deadline, or its holder does not know it".to_owned(),
            );
        }
        for which in SubQueue::ALL {
            let lane = Lane::SubQueue(which);
            let with_credit =
                self.links.iter().filter(|(_, link)| link.lane == lane && link.credit() > 0);
            if !with_credit.map(|(receiver, _)| receiver).eq(&self.sub_queue(which).credited) {
                return broken(format!(
                    "receivers with credit in {which:?} are not indexed (EXP-32)"
                ));
            }
        }
        Ok(())
    }
}
