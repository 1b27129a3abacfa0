//! The contract of an authorizer: who may do what (SEC-01, SEC-05).

use async_trait::async_trait;

use crate::command::Command;
use crate::error::Rejection;
use crate::transaction::Operation;

/// A right on an entity or on the namespace (SEC-01).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Right {
    /// Send, schedule, cancel.
    Send,
    /// Receive, settle, renew, defer, peek, batch delete.
    Listen,
    /// Create, update, delete, list and read entities and runtime information.
    Manage,
}

/// What a client has shown of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Principal {
    /// The token it presented, as text; never logged (SEC-22).
    pub token: Option<Box<str>>,
}

impl Principal {
    /// A client that has shown nothing.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { token: None }
    }
}

impl Right {
    /// The right that a command asks for (SEC-05). A commit asks for none of its own: a transport has
    /// asked for that of each operation before it was issued.
    #[must_use]
    pub const fn for_command(command: &Command) -> Self {
        match command {
            Command::Send { .. }
            | Command::SendBatch { .. }
            | Command::SendVia { .. }
            | Command::CancelScheduled { .. }
            | Command::Check {
                operation:
                    Operation::Send { .. } | Operation::SendBatch { .. } | Operation::SendVia { .. },
            } => Self::Send,
            Command::Receive { .. }
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
            | Command::DeleteBatch { .. }
            | Command::Check {
                operation: Operation::Settle { .. } | Operation::RenewLock { .. },
            }
            | Command::Commit { .. } => Self::Listen,
            Command::DeleteDeferred { .. }
            | Command::DeleteBatchUnlocked { .. }
            | Command::Update { .. }
            | Command::UpdateSubscription { .. }
            | Command::OfTopic(_)
            | Command::TransferIn { .. }
            | Command::TransferOut { .. }
            | Command::TransferFromPeer { .. }
            | Command::Describe => Self::Manage,
        }
    }

    /// The name of the right.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "Send",
            Self::Listen => "Listen",
            Self::Manage => "Manage",
        }
    }
}

/// Decides who may do what. Asked by transports before every operation, also before they know
/// whether the entity exists, so that a refusal discloses nothing (SEC-08).
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Allows or refuses. `resource` is the path of an entity, or empty for the namespace. May wait,
    /// for instance for a directory; the transport waits with it. A panic counts as a refusal.
    ///
    /// # Errors
    /// With `Unauthorized` and a text that says what is missing, without any secret (SEC-14).
    async fn authorize(
        &self,
        principal: &Principal,
        right: Right,
        resource: &str,
    ) -> Result<(), Rejection>;

    /// Whether it lets clients in that have shown nothing. A transport then also checks `Host`
    /// (SEC-23), and listens on loopback only unless told otherwise (SEC-17).
    fn allows_anonymous(&self) -> bool;
}

/// Allows everything: for loopback and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

#[async_trait]
impl Authorizer for AllowAll {
    async fn authorize(&self, _: &Principal, _: Right, _: &str) -> Result<(), Rejection> {
        Ok(())
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}
