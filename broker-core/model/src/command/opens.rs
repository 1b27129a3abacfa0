//! Links and waiting calls that a command leaves open. The broker ends them when the rights end on
//! which they depend.

use super::{Command, SessionCommand};
use crate::ids::ReceiverId;
use crate::time::TimeSpan;

/// Open results of a command.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opens {
    /// A link, open until it is detached.
    pub link: Option<ReceiverId>,
    /// Whether a call may wait, until its result or [`Command::CancelReceive`].
    pub waits: bool,
}

impl Command {
    /// Returns the link and the waiting call that the command leaves open.
    #[must_use]
    pub fn opens(&self) -> Opens {
        match self {
            Self::Attach { receiver, .. }
            | Self::InSession { receiver, command: SessionCommand::Attach } => {
                Opens { link: Some(*receiver), waits: false }
            }
            Self::AcceptSession { receiver, wait, .. } => {
                Opens { link: Some(*receiver), waits: *wait > TimeSpan::ZERO }
            }
            Self::Receive { wait, .. }
            | Self::InSession { command: SessionCommand::Receive { wait, .. }, .. } => {
                Opens { link: None, waits: *wait > TimeSpan::ZERO }
            }
            Self::InSession {
                command:
                    SessionCommand::ReceiveDeferred { .. }
                    | SessionCommand::Renew
                    | SessionCommand::GetState
                    | SessionCommand::SetState { .. }
                    | SessionCommand::DeleteBatch { .. },
                ..
            }
            | Self::Send { .. }
            | Self::SendBatch { .. }
            | Self::SendVia { .. }
            | Self::TransferIn { .. }
            | Self::EndTransfer { .. }
            | Self::TransferFromPeer { .. }
            | Self::CancelScheduled { .. }
            | Self::CancelReceive { .. }
            | Self::ReceiveDeferred { .. }
            | Self::SetCredit { .. }
            | Self::Detach { .. }
            | Self::Settle { .. }
            | Self::RenewLock { .. }
            | Self::Peek { .. }
            | Self::PeekSession { .. }
            | Self::ListSessions { .. }
            | Self::DeleteBatchUnlocked { .. }
            | Self::DeleteBatch { .. }
            | Self::DeleteDeferred { .. }
            | Self::Update { .. }
            | Self::Check { .. }
            | Self::Commit { .. }
            | Self::UpdateSubscription { .. }
            | Self::OfTopic(_)
            | Self::OfOperator(_)
            | Self::Inspect(_)
            | Self::Describe => Opens::default(),
        }
    }
}
