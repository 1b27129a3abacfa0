//! Operations of a management node, by name (AMQP-82). A new operation needs an entry in the table
//! and an arm below.

use super::plan::OperationPlan;
use super::{Question, Refusal};
use crate::server::conversation::Conversation;

/// An operation (AMQP-82).
#[derive(Clone, Copy)]
pub(super) enum Operation {
    RenewLock,
    Peek,
    Schedule,
    CancelScheduled,
    ReceiveDeferred,
    Settle,
    RenewSession,
    SessionState,
    SetSessionState,
    ListSessions,
    AddRule,
    RemoveRule,
    ListRules,
    DeleteBatch,
}

/// Prefix of the names.
const PREFIX: &str = "com.microsoft:";
/// All operations, by name without the prefix.
const OPERATIONS: [(&str, Operation); 14] = [
    ("renew-lock", Operation::RenewLock),
    ("peek-message", Operation::Peek),
    ("schedule-message", Operation::Schedule),
    ("cancel-scheduled-message", Operation::CancelScheduled),
    ("receive-by-sequence-number", Operation::ReceiveDeferred),
    ("update-disposition", Operation::Settle),
    ("renew-session-lock", Operation::RenewSession),
    ("get-session-state", Operation::SessionState),
    ("set-session-state", Operation::SetSessionState),
    ("get-message-sessions", Operation::ListSessions),
    ("add-rule", Operation::AddRule),
    ("remove-rule", Operation::RemoveRule),
    ("enumerate-rules", Operation::ListRules),
    ("batch-delete-messages", Operation::DeleteBatch),
];

/// Names of the operations of a management node (AMQP-82).
#[cfg(feature = "testing")]
pub fn operations() -> impl Iterator<Item = String> {
    OPERATIONS.iter().map(|(name, _)| format!("{PREFIX}{name}"))
}

impl Operation {
    /// Returns whether requests of the operation carry contents, so that they may be as large as
    /// messages of the entity.
    pub(super) const fn takes_contents(self) -> bool {
        matches!(self, Self::Schedule | Self::SetSessionState)
    }

    /// Returns the operation of a name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?;
        OPERATIONS.iter().find(|(known, _)| *known == name).map(|(_, operation)| *operation)
    }
}

impl Conversation {
    /// Returns the plan of a request; each operation has an arm.
    pub(super) async fn plan_operation(
        &mut self,
        operation: Operation,
        question: &Question<'_>,
    ) -> Result<OperationPlan, Refusal> {
        match operation {
            Operation::RenewLock => self.plan_renew_lock(question).await,
            Operation::Peek => self.plan_peek(question).await,
            Operation::Schedule => self.plan_schedule(question).await,
            Operation::CancelScheduled => self.plan_cancel_scheduled(question).await,
            Operation::ReceiveDeferred => self.plan_receive_deferred(question).await,
            Operation::Settle => self.plan_settle(question).await,
            Operation::RenewSession => self.plan_renew_session(question).await,
            Operation::SessionState => self.plan_session_state(question).await,
            Operation::SetSessionState => self.plan_set_session_state(question).await,
            Operation::ListSessions => self.plan_list_sessions(question).await,
            Operation::AddRule => self.plan_add_rule(question),
            Operation::RemoveRule => self.plan_remove_rule(question),
            Operation::ListRules => self.plan_list_rules(question),
            Operation::DeleteBatch => self.plan_delete_batch(question).await,
        }
    }
}
