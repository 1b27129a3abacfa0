//! How much a command is for others on its arbiter, known before it is carried out: a message that is published is as
//! many copies as there are subscriptions, at most. What is more than a turn holds is left to a long turn (DESIGN D6).

use super::Topic;
use crate::Machine as _;
use crate::command::Command;
use crate::limits::Limits;
use crate::time::Timestamp;

impl Topic {
    /// So many messages, a command at least one. Names every command, so that a new one has to say it.
    pub(super) fn steps_of_command(
        &self,
        command: &Command,
        now: Timestamp,
        limits: &Limits,
    ) -> u64 {
        let copies = self.subscriptions.len() as u64;
        let of_outbox = || self.outbox.as_ref().map_or(1, |all| all.steps_of(command, now, limits));
        match command {
            Command::Send { .. } => 2 + copies,
            Command::SendBatch { messages } => (2 + copies) * messages.len() as u64,
            Command::TransferIn { messages, .. } => (2 + copies) * messages.len() as u64,
            Command::TransferFromPeer { messages, .. } => (4 + copies) * messages.len() as u64,
            Command::Commit { parts } => {
                (2 + copies) * parts.iter().map(|part| part.operation.count()).sum::<u64>()
            }
            Command::CancelScheduled { sequences } => sequences.len() as u64,
            Command::SendVia { messages, .. } => 2 * messages.len() as u64,
            // What is asked of it as a topic is one step; all else is its outbox's.
            Command::OfTopic(_) | Command::Describe | Command::Check { .. } => 1,
            Command::TransferOut { .. }
            | Command::Receive { .. }
            | Command::CancelReceive { .. }
            | Command::ReceiveDeferred { .. }
            | Command::Attach { .. }
            | Command::Grant { .. }
            | Command::Detach { .. }
            | Command::Settle { .. }
            | Command::RenewLock { .. }
            | Command::Peek { .. }
            | Command::AcceptSession { .. }
            | Command::InSession { .. }
            | Command::PeekSession { .. }
            | Command::ListSessions { .. }
            | Command::DeleteBatchUnlocked { .. }
            | Command::DeleteBatch { .. }
            | Command::DeleteDeferred { .. }
            | Command::Update { .. }
            | Command::UpdateSubscription { .. } => of_outbox(),
        }
        .max(1)
    }
}
