//! What must hold after every step. Checked by the model test and the simulator.

use super::Queue;
use super::demand::Demand;
use super::tally::Tally;
use crate::entity::slot::SlotState;
use crate::path::SubQueue;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct BrokenInvariant(pub String);

impl Queue {
    /// Checks the whole state against itself, in time linear in its size.
    ///
    /// # Errors
    /// With the first invariant that does not hold.
    pub fn check_invariants(&self) -> Result<(), BrokenInvariant> {
        let broken = |what: String| Err(BrokenInvariant(what));
        let mut tally = Tally::default();
        let mut locked = 0;
        for (sequence, slot) in self.slots.iter() {
            tally.add(slot);
            if sequence > self.last_sequence {
                return broken(format!("{sequence} is above the last number"));
            }
            for which in SubQueue::ALL {
                if self.sub_queue(which).members.contains(sequence) != (which == slot.sub_queue) {
                    return broken(format!(
                        "{sequence} is not a member of exactly {:?}",
                        slot.sub_queue
                    ));
                }
            }
            let offered = slot.state == SlotState::Active && slot.lock.is_none() && !slot.in_flight;
            if self.sub_queue(slot.sub_queue).available.contains(sequence) != offered {
                return broken(format!(
                    "{sequence} is available or not against its state {slot:?}"
                ));
            }
            if let Some(lock) = slot.lock {
                locked += 1;
                if self.locks.get(lock).map(|lock| lock.sequence()) != Some(sequence) {
                    return broken(format!("lock of {sequence} names another message (LIF-03)"));
                }
                if slot.in_flight || slot.state == SlotState::Scheduled {
                    return broken(format!("{sequence} is locked while it is offered to nobody"));
                }
            }
            if slot.state == SlotState::Scheduled && slot.sub_queue != SubQueue::Main {
                return broken(format!("{sequence} is scheduled in a sub-queue"));
            }
        }
        if tally != self.tally {
            return broken(format!("tally {:?} against slots {tally:?} (LIF-02)", self.tally));
        }
        if locked != self.locks.len() {
            return broken(format!("{} locks for {locked} locked messages", self.locks.len()));
        }
        let members: u64 =
            SubQueue::ALL.iter().map(|which| self.sub_queue(*which).members.len()).sum();
        if members != self.slots.len() as u64 {
            return broken(format!("{members} members for {} slots", self.slots.len()));
        }
        self.check_demand()
    }

    fn check_demand(&self) -> Result<(), BrokenInvariant> {
        let broken = |what: String| Err(BrokenInvariant(what));
        let mut seats = 0;
        for which in SubQueue::ALL {
            for (turn, demand) in &self.sub_queue(which).ring {
                seats += 1;
                let seated = match demand {
                    Demand::Call(ticket) => self
                        .calls
                        .get(ticket)
                        .is_some_and(|call| call.turn == *turn && call.sub_queue == which),
                    Demand::Link(receiver) => self.links.get(receiver).is_some_and(|link| {
                        link.turn == Some(*turn) && link.sub_queue == which && link.can_be_served()
                    }),
                };
                if !seated {
                    return broken(format!("turn {turn} of {which:?} belongs to nobody"));
                }
            }
        }
        let waiting =
            self.calls.len() + self.links.values().filter(|link| link.can_be_served()).count();
        if seats != waiting {
            return broken(format!("{seats} turns for {waiting} who wait"));
        }
        if self.call_deadlines.len() != self.calls.len() {
            return broken("a waiting call has no deadline".to_owned());
        }
        Ok(())
    }
}
