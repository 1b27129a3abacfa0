//! How much a command is for others on its arbiter, known before it is carried out: the messages that it moves or shows
//! at most, and what is set on them, as things are. What is more than a turn holds is left to a long turn (DESIGN D6).

use super::{MOVES_PER_STEP, Queue, SERVED_PER_STEP};
use crate::command::{Command, ReceiveMode, SessionCommand};
use crate::ids::SequenceNumber;
use crate::limits::Limits;
use crate::time::Timestamp;
use crate::transaction::{Operation, Part};
use crate::transfer::Departure;

/// So many messages that are only passed over, because they are on their way to the store, are a step.
const PASSED_PER_STEP: u64 = 16;

impl Queue {
    /// So many messages, a command at least one. Names every command, so that a new one has to say it.
    pub(super) fn steps_of_command(
        &self,
        command: &Command,
        now: Timestamp,
        limits: &Limits,
    ) -> u64 {
        let there = |count_max: u64| count_max.min(self.slots.len() as u64);
        let peeked = |count_max: u32| there(u64::from(count_max).min(limits.peek_count_max as u64));
        let deleted =
            |count_max: u32| there(u64::from(count_max).min(limits.batch_delete_count_max as u64));
        let set_on = |count: u64| self.tally.set_on(count);
        let with_set = |count: u64| count + set_on(count);
        let ended = |locks: usize| locks.min(MOVES_PER_STEP) as u64 + set_on(locks as u64);
        let passed_over = || self.in_flight.len() as u64 / PASSED_PER_STEP;
        let steps = match command {
            // Each with its id.
            Command::Send { .. } => 2,
            Command::SendBatch { messages } | Command::SendVia { messages, .. } => {
                2 * messages.len() as u64
            }
            // What is set on one is moved, too.
            Command::TransferIn { messages, .. } => {
                2 * messages.iter().map(|one| 1 + one.overlays.len() as u64).sum::<u64>()
            }
            // And with what is remembered of it, for which another source may be forgotten.
            Command::TransferFromPeer { messages, .. } => 4 * messages.len() as u64,
            // Within the broker it is who takes a message that removes what is set on it here.
            Command::TransferOut { departures, .. } => {
                let delivered = departures.iter().filter(|one| matches!(one, Departure::Delivered));
                departures.len() as u64 + set_on(delivered.count() as u64)
            }
            Command::CancelScheduled { sequences } => self.steps_with_set(sequences),
            Command::ReceiveDeferred { mode, sequences, .. } => {
                times_taken(*mode) * self.steps_with_set(sequences)
            }
            // Messages themselves count once more as they are delivered.
            Command::Receive { mode, count_max, .. } => {
                let count = there(u64::from(*count_max));
                count + times_taken(*mode) * set_on(count)
            }
            // In whatever mode the session is held.
            Command::InSession { command, .. } => match command {
                SessionCommand::Receive { count_max, .. } => {
                    let count = there(u64::from(*count_max));
                    count + times_taken(ReceiveMode::ReceiveAndDelete) * set_on(count)
                }
                SessionCommand::ReceiveDeferred { sequences } => {
                    times_taken(ReceiveMode::ReceiveAndDelete) * self.steps_with_set(sequences)
                }
                SessionCommand::DeleteBatch { count_max, .. } => with_set(deleted(*count_max)),
                SessionCommand::Attach
                | SessionCommand::Renew
                | SessionCommand::GetState
                | SessionCommand::SetState { .. } => 1,
            },
            // A drain before it is carried out first.
            Command::Grant { receiver, .. } => {
                match self.link(*receiver).is_some_and(|link| link.drain.is_some()) {
                    true => {
                        let count = there((MOVES_PER_STEP + SERVED_PER_STEP) as u64);
                        count + times_taken(ReceiveMode::ReceiveAndDelete) * set_on(count)
                    }
                    false => 1,
                }
            }
            Command::Detach { receiver, .. } => {
                let held = self.sessions.as_ref().and_then(|all| all.held_of(*receiver));
                let in_session = held.map_or(0, |held| held.locks.len());
                ended(in_session + self.locks.len_of(*receiver))
            }
            Command::AcceptSession { session, .. } => {
                let named = |name| {
                    let sessions = self.sessions.as_ref()?;
                    sessions.get(sessions.named(name)?)?.held()
                };
                let over = session.as_deref().and_then(named).filter(|held| held.until <= now);
                ended(over.map_or(0, |held| held.locks.len()))
            }
            Command::Peek { count_max, .. } | Command::PeekSession { count_max, .. } => {
                with_set(peeked(*count_max)) + passed_over()
            }
            Command::DeleteBatch { count_max, .. } => with_set(deleted(*count_max)) + passed_over(),
            Command::DeleteBatchUnlocked { count_max, .. } => with_set(deleted(*count_max)),
            Command::Settle { token, .. } => self.steps_with_set(&[token.sequence()]),
            Command::DeleteDeferred { sequence } => self.steps_with_set(&[*sequence]),
            // A new destination or order is for all of these, and who receives may be turned away.
            Command::Update { .. } | Command::UpdateSubscription { .. } => {
                let dead_letters = self.dead_letter.members.len();
                let delayed = self.delays.len() as u64;
                let most = MOVES_PER_STEP as u64;
                1 + dead_letters.min(most) + delayed.min(most) + self.receiver_count() as u64
            }
            Command::Commit { parts } => {
                let steps_of = |Part { operation, .. }: &Part| {
                    2 * operation.count() + self.set_on_message_of(operation)
                };
                parts.iter().map(steps_of).sum::<u64>()
            }
            // A list is a matter of how many sessions there are ([`super::session`]).
            Command::ListSessions { .. }
            | Command::CancelReceive { .. }
            | Command::Attach { .. }
            | Command::RenewLock { .. }
            | Command::Check { .. }
            | Command::OfTopic(_)
            | Command::Describe => 1,
        };
        steps.max(1)
    }

    /// These messages, and how often properties were set on them, which is shown or goes with them.
    fn steps_with_set(&self, sequences: &[SequenceNumber]) -> u64 {
        sequences.len() as u64 + self.set_on_these(sequences)
    }

    /// How often properties were set on the messages that an operation of a transaction settles or cancels.
    pub(super) fn set_on_message_of(&self, operation: &Operation) -> u64 {
        match operation {
            Operation::Settle { token, .. } => self.set_on_these(&[token.sequence()]),
            Operation::CancelScheduled { sequences } => self.set_on_these(sequences),
            Operation::Send { .. }
            | Operation::SendBatch { .. }
            | Operation::SendVia { .. }
            | Operation::RenewLock { .. }
            | Operation::SetSessionState { .. } => 0,
        }
    }

    /// How often properties were set on these messages. Where nothing is set on any message, none is looked up.
    fn set_on_these(&self, sequences: &[SequenceNumber]) -> u64 {
        if self.tally.overlay_count == 0 {
            return 0;
        }
        sequences.iter().map(|sequence| self.overlay_count(*sequence) as u64).sum()
    }

    /// Whether a command is for a long turn. What the holder of a session asks is carried out in the turns of that.
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
        crate::is_long(self.steps_of_command(command, now, limits))
    }
}

/// How often what is set on a message counts when it is received: it is shown, and removed if the message is.
const fn times_taken(mode: ReceiveMode) -> u64 {
    match mode {
        ReceiveMode::PeekLock => 1,
        ReceiveMode::ReceiveAndDelete => 2,
    }
}
