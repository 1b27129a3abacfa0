//! Held sessions with drivers of their own (DESIGN D3): the interface that begins and ends the
//! drivers, and the turn of a session.

use super::{ArbiterShare, Shell, TreeFault, TurnResults};
use crate::ids::ReceiverId;
use crate::machine::Machine;
use crate::request::{Release, Request, SessionEntrance};
use crate::time::Timestamp;

/// Begins and ends the drivers of sessions. In a shell without one, one driver drives the machine
/// with its sessions. Called within a turn: it must not drive the shell, and must not block.
pub trait SessionHost {
    /// Begins the driver of a granted session; returns its entrance for the client that accepted
    /// the session.
    fn begin(&mut self, holder: ReceiverId) -> Option<SessionEntrance>;

    /// Ends the driver of a session that is no longer held. It must move requests that wait on its
    /// way to the entity, which answers them.
    fn end(&mut self, holder: ReceiverId);

    /// Called when the state that a holder set is stored or refused, so that its later requests can
    /// run.
    fn resume(&mut self, holder: ReceiverId);
}

impl<M: Machine> Shell<M> {
    /// Installs the host of the held sessions.
    pub fn host_sessions(&mut self, host: Box<dyn SessionHost>) {
        self.host = Some(host);
    }

    /// Runs requests of a session's holder, like [`Shell::run`]. Ends early when a session state
    /// must wait for room in the store: later requests are taken afterwards, so that their order is
    /// kept.
    ///
    /// No request of a holder is left to a long turn of the queue, even a large one (decision 33):
    /// only one command at a time can wait for that, which may be taken already, and the session
    /// would not be resumed afterwards. The only command evaluated ahead is a list of sessions,
    /// which transports send to the queue.
    ///
    /// # Errors
    /// A failure that must end the tree.
    pub fn run_in_session(
        &mut self,
        holder: ReceiverId,
        requests: &mut impl Iterator<Item = Request>,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<TurnResults, TreeFault> {
        let mut turn = TurnResults::default();
        if self.share == ArbiterShare::Turn && self.machine.is_behind() {
            return Ok(turn);
        }
        self.catch_up(now)?;
        self.show_accepted(now, out, &mut turn)?;
        self.advance_time(now, out, &mut turn)?;
        while !self.waits_for_state_of(holder)
            && self.is_turn_open(&turn)
            && let Some(request) = requests.next()
        {
            turn.work += 1;
            self.carry_out(request, now, out, &mut turn)?;
        }
        self.finish(now, out, &mut turn)?;
        Ok(turn)
    }

    /// Whether a state set by a holder waits for room; false after the end of the hold.
    pub fn waits_for_state_of(&self, holder: ReceiverId) -> bool {
        self.parked.has_state_of(holder) && self.machine.deadline_of(holder).is_some()
    }
}
