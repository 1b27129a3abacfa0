//! Work that a machine does ahead of a command, in slices of about a millisecond: a topic evaluates
//! the rules for a publish, and a queue walks its sessions for a list. A plain send needs no
//! preparation: [`Shell::prepare`] returns true at once, and nothing is kept here.
//!
//! ```text
//!              prepare: true                              ┌─► carried out
//!  command ──┬─────────────────────────────────────────── ┘
//!            └ false ─► unfinished: the shell takes no other command
//!                         │ next turn, or a long turn if other entities wait
//!                         └─► prepare again, with the same command
//! ```

use super::{ArbiterShare, Shell};
use crate::command::Command;
use crate::machine::{Machine, MoveLimit, Preparation};
use crate::request::{Request, RequesterId};
use crate::store::Reserved;
use crate::time::Timestamp;

/// State of a preparation that has not finished; empty for most entities at most times.
#[derive(Default)]
pub(super) struct UnfinishedPreparation {
    /// Whether the last slice did not finish, so that no other command may be taken.
    pub(super) is_unfinished: bool,
    /// The command that waits, unless it is parked.
    pub(super) request: Option<Request>,
    /// Whether the last slice was for the first parked command, and did not finish.
    pub(super) is_of_parked: bool,
    /// Steps of rule evaluation in this turn.
    pub(super) steps: u64,
}

impl UnfinishedPreparation {
    /// Whether a command has begun, and not only a message that has become due.
    pub(super) const fn is_of_command(&self) -> bool {
        self.request.is_some() || (self.is_unfinished && self.is_of_parked)
    }
}

impl<M: Machine> Shell<M> {
    /// Lets the machine prepare a command for one slice. Returns whether the command can be carried
    /// out now.
    pub(super) fn prepare(&mut self, preparation: Preparation<'_>, now: Timestamp) -> bool {
        if self.share == ArbiterShare::Turn && self.is_long(preparation, now) {
            self.preparation.is_unfinished = true;
            return false;
        }
        let is_finished = self
            .with_context(now, Reserved::Granted, |machine, ctx| machine.prepare(preparation, ctx));
        self.preparation.steps += self.machine.take_evaluation_steps();
        self.preparation.is_unfinished = !is_finished;
        is_finished
    }

    /// Returns the command that waits, if it may go on in this turn. In an ordinary turn it waits
    /// for a long one.
    pub(super) fn take_prepared(&mut self) -> Option<Request> {
        let preparation = &mut self.preparation;
        preparation.is_unfinished |=
            self.share == ArbiterShare::Turn && preparation.request.is_some();
        preparation.request.take_if(|_| !preparation.is_unfinished)
    }

    /// Whether work needs a long turn. For a transaction, property changes on messages of another
    /// machine count too.
    fn is_long(&self, preparation: Preparation<'_>, now: Timestamp) -> bool {
        if self.machine.is_long(preparation, now, &self.limits) {
            return true;
        }
        let Preparation::Command { command, .. } = preparation else { return false };
        let Command::Commit { parts } = command else { return false };
        let set = self.overlays_on_other_machine(parts);
        let work = || self.machine.work_of(command, now, &self.limits).saturating_add(set);
        set > 0 && work() > MoveLimit::Few.max() as u64
    }

    /// Whether the next work needs a long turn: a preparation, or moving many due messages. The
    /// machine takes no command before.
    pub fn wants_long_turn(&self) -> bool {
        self.is_preparing() || self.machine.is_behind()
    }

    /// The client whose command needs the long turn; none for due messages.
    pub fn requester_of_long_turn(&self) -> Option<RequesterId> {
        if self.machine.is_behind() {
            return None;
        }
        self.preparation.request.as_ref()?.reply.requester()
    }

    /// Whether the machine prepares a command in slices. It then needs another turn after all ready
    /// work, and takes no commands in a turn.
    pub const fn is_preparing(&self) -> bool {
        // Turns of sessions in between reset `is_unfinished` but keep the command.
        self.preparation.is_unfinished || self.preparation.request.is_some()
    }
}
