//! Work of a command, known before it runs: the maximum of messages that it moves or
//! shows, with their overlays. A command that exceeds a turn needs a long turn, so that it does not
//! delay other entities of its arbiter (DESIGN D6).

use super::{COMMAND_MOVES_MAX, Queue, SERVED_PER_STEP};
use crate::command::{Command, OperatorCommand, ReceiveMode, SessionCommand};
use crate::ids::SequenceNumber;
use crate::limits::Limits;
use crate::time::Timestamp;
use crate::transaction::{Operation, Part};
use crate::transfer::Departure;

/// Number of in-flight messages that count as one unit of work when a command skips them.
const PASSED_PER_UNIT: u64 = 16;

impl Queue {
    /// Returns the work, at least 1. The match names every command, so that a new one
    /// must define it.
    pub(super) fn work_of_command(
        &self,
        command: &Command,
        now: Timestamp,
        limits: &Limits,
    ) -> u64 {
        let existing = |count_max: u64| count_max.min(self.slots.len() as u64);
        let peeked =
            |count_max: u32| existing(u64::from(count_max).min(limits.peek_count_max as u64));
        let deleted = |count_max: u32| {
            existing(u64::from(count_max).min(limits.batch_delete_count_max as u64))
        };
        let overlay_bound = |count: u64| self.tally.overlay_bound(count);
        let with_overlays = |count: u64| count + overlay_bound(count);
        let ended =
            |locks: usize| locks.min(COMMAND_MOVES_MAX) as u64 + overlay_bound(locks as u64);
        let passed_over = || self.in_flight.len() as u64 / PASSED_PER_UNIT;
        let work = match command {
            // One for the message, one for its id.
            Command::Send { .. } => 2,
            Command::SendBatch { messages } | Command::SendVia { messages, .. } => {
                2 * messages.len() as u64
            }
            // The overlays of a message move too.
            Command::TransferIn { messages, .. } => {
                2 * messages.iter().map(|one| 1 + one.overlays.len() as u64).sum::<u64>()
            }
            // In addition, the message is remembered, and another source may be forgotten for it.
            Command::TransferFromPeer { messages, .. } => 4 * messages.len() as u64,
            // Within the broker the destination removes the overlays here.
            Command::EndTransfer { departures, .. } => {
                let delivered = departures.iter().filter(|one| matches!(one, Departure::Delivered));
                departures.len() as u64 + overlay_bound(delivered.count() as u64)
            }
            Command::CancelScheduled { sequences } => self.work_with_overlays(sequences),
            Command::ReceiveDeferred { mode, sequences, .. } => {
                overlay_factor(*mode) * self.work_with_overlays(sequences)
            }
            // The messages count once more when they are delivered.
            Command::Receive { mode, count_max, .. } => {
                let count = existing(u64::from(*count_max));
                count + overlay_factor(*mode) * overlay_bound(count)
            }
            // The mode of the session is not known here, so the larger count applies.
            Command::InSession { command, .. } => match command {
                SessionCommand::Receive { count_max, .. } => {
                    let count = existing(u64::from(*count_max));
                    count + overlay_factor(ReceiveMode::ReceiveAndDelete) * overlay_bound(count)
                }
                SessionCommand::ReceiveDeferred { sequences } => {
                    overlay_factor(ReceiveMode::ReceiveAndDelete)
                        * self.work_with_overlays(sequences)
                }
                SessionCommand::DeleteBatch { count_max, .. } => with_overlays(deleted(*count_max)),
                SessionCommand::Attach
                | SessionCommand::Renew
                | SessionCommand::GetState
                | SessionCommand::SetState { .. } => 1,
            },
            // An unfinished drain is completed first.
            Command::SetCredit { receiver, .. } => {
                match self.link(*receiver).is_some_and(|link| link.drain.is_some()) {
                    true => {
                        let count = existing((COMMAND_MOVES_MAX + SERVED_PER_STEP) as u64);
                        count + overlay_factor(ReceiveMode::ReceiveAndDelete) * overlay_bound(count)
                    }
                    false => 1,
                }
            }
            Command::Detach { receiver, .. } => {
                let hold = self.sessions.as_ref().and_then(|all| all.hold_of(*receiver));
                let in_session = hold.map_or(0, |hold| hold.locks.len());
                ended(in_session + self.locks.len_of(*receiver))
            }
            Command::AcceptSession { session, .. } => {
                let hold = session.as_deref().and_then(|name| self.hold_of(name));
                let over = hold.filter(|hold| hold.until <= now);
                ended(over.map_or(0, |hold| hold.locks.len()))
            }
            Command::OfOperator(command) => match command {
                OperatorCommand::BreakLocks { sequences, .. } => ended(sequences.len()),
                OperatorCommand::BreakSession { session, .. } => {
                    ended(self.hold_of(session).map_or(0, |hold| hold.locks.len()))
                }
                // Two more for the receipt of the step, and for a receipt that makes way.
                OperatorCommand::Act(act) => {
                    2 + self.work_with_overlays(&act.sequences) + act.deed.overlay_count()
                }
                OperatorCommand::SetSessionState { .. } | OperatorCommand::ForgetJob(_) => 1,
            },
            Command::Peek { count_max, .. } | Command::PeekSession { count_max, .. } => {
                with_overlays(peeked(*count_max)) + passed_over()
            }
            Command::DeleteBatch { count_max, .. } => {
                with_overlays(deleted(*count_max)) + passed_over()
            }
            Command::DeleteBatchUnlocked { count_max, .. } => with_overlays(deleted(*count_max)),
            Command::Inspect(inquiry) => self.work_of_inquiry(inquiry),
            Command::Settle { token, .. } => self.work_with_overlays(&[token.sequence()]),
            Command::DeleteDeferred { sequence } => self.work_with_overlays(&[*sequence]),
            // A new destination or retry order applies to all of these, and waiting receivers may
            // be rejected.
            Command::Update { .. } | Command::UpdateSubscription { .. } => {
                let dead_letters = self.dead_letter.members.len();
                let delayed = self.delays.len() as u64;
                let most = COMMAND_MOVES_MAX as u64;
                1 + dead_letters.min(most) + delayed.min(most) + self.receiver_count() as u64
            }
            Command::Commit { parts } => {
                let work_of = |Part { operation, .. }: &Part| {
                    2 * operation.count() + self.overlays_settled_by(operation)
                };
                parts.iter().map(work_of).sum::<u64>()
            }
            // The length of a list depends on the number of sessions ([`super::session`]).
            Command::ListSessions { .. }
            | Command::CancelReceive { .. }
            | Command::Attach { .. }
            | Command::RenewLock { .. }
            | Command::Check { .. }
            | Command::OfTopic(_)
            | Command::Describe => 1,
        };
        work.max(1)
    }

    /// Number of these messages and of their overlays, which are shown or removed with them.
    fn work_with_overlays(&self, sequences: &[SequenceNumber]) -> u64 {
        sequences.len() as u64 + self.overlays_on(sequences)
    }

    /// Number of overlays on the messages that an operation of a transaction settles or cancels.
    pub(super) fn overlays_settled_by(&self, operation: &Operation) -> u64 {
        match operation {
            Operation::Settle { token, .. } => self.overlays_on(&[token.sequence()]),
            Operation::CancelScheduled { sequences } => self.overlays_on(sequences),
            Operation::Send { .. }
            | Operation::SendBatch { .. }
            | Operation::SendVia { .. }
            | Operation::RenewLock { .. }
            | Operation::SetSessionState { .. } => 0,
        }
    }

    /// Number of overlays on these messages. Without any overlay in the queue, no message is looked
    /// up.
    fn overlays_on(&self, sequences: &[SequenceNumber]) -> u64 {
        if self.tally.overlay_count == 0 {
            return 0;
        }
        sequences.iter().map(|sequence| self.overlay_count(*sequence) as u64).sum()
    }

    /// Whether a command needs a long turn. Commands of a session's holder run in the turns of that
    /// session.
    pub(super) fn is_long_command(
        &self,
        command: &Command,
        now: Timestamp,
        limits: &Limits,
    ) -> bool {
        if matches!(command, Command::InSession { .. }) {
            return false;
        }
        if matches!(command, Command::ListSessions { .. }) {
            return self.sessions.as_ref().is_some_and(|sessions| sessions.is_long_to_list());
        }
        crate::is_long(self.work_of_command(command, now, limits))
    }
}

/// Factor for overlays of received messages: they are shown, and removed if the message is.
const fn overlay_factor(mode: ReceiveMode) -> u64 {
    match mode {
        ReceiveMode::PeekLock => 1,
        ReceiveMode::ReceiveAndDelete => 2,
    }
}
