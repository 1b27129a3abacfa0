//! Sessions that are held, each with a driver of its own (DESIGN D3): who begins and ends those, and the
//! turn of one.

use super::{Failure, Share, Shell, Turn};
use crate::entity::Machine;
use crate::ids::ReceiverId;
use crate::request::{Release, Request, Way};
use crate::time::Timestamp;

/// Begins and ends the drivers of sessions. A shell without one is driven with its sessions by one driver.
/// Is called within a turn: it must not drive the shell, and must not block.
pub trait SessionHost {
    /// A session was granted; returns the way in to its driver, for whoever accepted it.
    fn begin(&mut self, holder: ReceiverId) -> Option<Way>;

    /// A session is held no more. What waits on the way in to its driver is to be handed to the entity,
    /// which answers it.
    fn end(&mut self, holder: ReceiverId);

    /// The state that a holder has set is stored or refused; what it asked behind that can be run now.
    fn go_on(&mut self, holder: ReceiverId);
}

impl<M: Machine> Shell<M> {
    /// Has somebody drive the sessions that are held.
    pub fn host_sessions(&mut self, host: Box<dyn SessionHost>) {
        self.host = Some(host);
    }

    /// Runs what the holder of a session asks, as [`Shell::run`] does. Ends early when the state that it
    /// sets has to wait for room in the store: what it asks behind that is taken later, so that it is
    /// carried out in its order.
    ///
    /// Nothing that it asks is left to a long turn of the queue, however much it is (decision 33): that has one command
    /// at a time wait for it, which may be there already, and nobody would say that the session is to go on behind it.
    /// Found out ahead is a list of sessions alone, which transports ask of the queue.
    ///
    /// # Errors
    /// When the tree must end.
    pub fn run_in_session(
        &mut self,
        holder: ReceiverId,
        requests: &mut impl Iterator<Item = Request>,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<Turn, Failure> {
        let mut turn = Turn::default();
        if self.share == Share::Turn && self.machine.is_behind() {
            return Ok(turn);
        }
        self.catch_up(now)?;
        self.let_time_pass(now, out, &mut turn)?;
        while !self.waits_for_state_of(holder)
            && self.is_turn_open(&turn)
            && let Some(request) = requests.next()
        {
            turn.steps += 1;
            self.carry_out(request, now, out, &mut turn)?;
        }
        self.finish(now, out, &mut turn)?;
        Ok(turn)
    }

    /// Whether a state that a holder has set waits for room; with the hold there is nothing to wait for.
    pub fn waits_for_state_of(&self, holder: ReceiverId) -> bool {
        self.parked.has_state_of(holder) && self.machine.deadline_of(holder).is_some()
    }
}
