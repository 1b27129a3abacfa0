//! What a command leaves open when it is carried out, so that it can be ended with what it rests on.

use super::{Command, SessionCommand};
use crate::ids::ReceiverId;
use crate::time::TimeSpan;

/// What a command leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opens {
    /// A link, which lasts until it is detached.
    pub link: Option<ReceiverId>,
    /// A call that waits for something, until it has come or [`Command::CancelReceive`].
    pub waits: bool,
}

impl Command {
    /// What it leaves open.
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
            | Self::TransferOut { .. }
            | Self::TransferFromPeer { .. }
            | Self::CancelScheduled { .. }
            | Self::CancelReceive { .. }
            | Self::ReceiveDeferred { .. }
            | Self::Grant { .. }
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
            | Self::Describe => Opens::default(),
        }
    }
}
