//! How much a command is for others on its arbiter, known before it is carried out: the messages that it moves or shows
//! at most, as things are. What is more than a turn holds is left to a long turn (DESIGN D6).

use super::{MOVES_PER_STEP, Queue, SERVED_PER_STEP};
use crate::command::{Command, SessionCommand};
use crate::limits::Limits;
use crate::time::Timestamp;

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
        let moved = |count: usize| count.min(MOVES_PER_STEP) as u64;
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
            Command::TransferOut { departures, .. } => departures.len() as u64,
            Command::CancelScheduled { sequences } | Command::ReceiveDeferred { sequences, .. } => {
                sequences.len() as u64
            }
            Command::Receive { count_max, .. } => there(u64::from(*count_max)),
            Command::InSession { command, .. } => match command {
                SessionCommand::Receive { count_max, .. } => there(u64::from(*count_max)),
                SessionCommand::ReceiveDeferred { sequences } => sequences.len() as u64,
                SessionCommand::DeleteBatch { count_max, .. } => deleted(*count_max),
                SessionCommand::Attach
                | SessionCommand::Renew
                | SessionCommand::GetState
                | SessionCommand::SetState { .. } => 1,
            },
            // A drain before it is carried out first.
            Command::Grant { receiver, .. } => {
                match self.link(*receiver).is_some_and(|link| link.drain.is_some()) {
                    true => there((MOVES_PER_STEP + SERVED_PER_STEP) as u64),
                    false => 1,
                }
            }
            Command::Detach { receiver, .. } => {
                let held = self.sessions.as_ref().and_then(|all| all.held_of(*receiver));
                let in_session = held.map_or(0, |held| held.locks.len());
                moved(in_session + self.locks.len_of(*receiver))
            }
            Command::AcceptSession { session, .. } => {
                let named = |name| {
                    let sessions = self.sessions.as_ref()?;
                    sessions.get(sessions.named(name)?)?.held()
                };
                let ended = session.as_deref().and_then(named).filter(|held| held.until <= now);
                moved(ended.map_or(0, |held| held.locks.len()))
            }
            Command::Peek { count_max, .. } | Command::PeekSession { count_max, .. } => {
                peeked(*count_max) + passed_over()
            }
            Command::DeleteBatch { count_max, .. } => deleted(*count_max) + passed_over(),
            Command::DeleteBatchUnlocked { count_max, .. } => deleted(*count_max),
            // A new destination or order is for all of these, and who receives may be turned away.
            Command::Update { .. } | Command::UpdateSubscription { .. } => {
                let dead_letters = self.dead_letter.members.len();
                let delayed = self.delays.len() as u64;
                let most = MOVES_PER_STEP as u64;
                1 + dead_letters.min(most) + delayed.min(most) + self.receiver_count() as u64
            }
            Command::Commit { parts } => {
                2 * parts.iter().map(|part| part.operation.count()).sum::<u64>()
            }
            // A list is a matter of how many sessions there are ([`super::session`]).
            Command::ListSessions { .. }
            | Command::CancelReceive { .. }
            | Command::Attach { .. }
            | Command::Settle { .. }
            | Command::RenewLock { .. }
            | Command::DeleteDeferred { .. }
            | Command::Check { .. }
            | Command::OfTopic(_)
            | Command::Describe => 1,
        };
        steps.max(1)
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
