//! Operations of a management node, by name (AMQP-82). A new operation needs an entry in the table
//! and an arm below.

use super::plan::OperationPlan;
use super::{ManagementRequest, Refusal};
use crate::server::conversation::Conversation;

/// An operation (AMQP-82).
#[derive(Clone, Copy)]
pub(super) enum ManagementOperation {
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
const OPERATIONS: [(&str, ManagementOperation); 14] = [
    ("renew-lock", ManagementOperation::RenewLock),
    ("peek-message", ManagementOperation::Peek),
    ("schedule-message", ManagementOperation::Schedule),
    ("cancel-scheduled-message", ManagementOperation::CancelScheduled),
    ("receive-by-sequence-number", ManagementOperation::ReceiveDeferred),
    ("update-disposition", ManagementOperation::Settle),
    ("renew-session-lock", ManagementOperation::RenewSession),
    ("get-session-state", ManagementOperation::SessionState),
    ("set-session-state", ManagementOperation::SetSessionState),
    ("get-message-sessions", ManagementOperation::ListSessions),
    ("add-rule", ManagementOperation::AddRule),
    ("remove-rule", ManagementOperation::RemoveRule),
    ("enumerate-rules", ManagementOperation::ListRules),
    ("batch-delete-messages", ManagementOperation::DeleteBatch),
];

/// Names of the operations of a management node (AMQP-82).
#[cfg(feature = "testing")]
pub fn operations() -> impl Iterator<Item = String> {
    OPERATIONS.iter().map(|(name, _)| format!("{PREFIX}{name}"))
}

impl ManagementOperation {
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
        operation: ManagementOperation,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        match operation {
            ManagementOperation::RenewLock => self.plan_renew_lock(management).await,
            ManagementOperation::Peek => self.plan_peek(management).await,
            ManagementOperation::Schedule => self.plan_schedule(management).await,
            ManagementOperation::CancelScheduled => self.plan_cancel_scheduled(management).await,
            ManagementOperation::ReceiveDeferred => self.plan_receive_deferred(management).await,
            ManagementOperation::Settle => self.plan_settle(management).await,
            ManagementOperation::RenewSession => self.plan_renew_session(management).await,
            ManagementOperation::SessionState => self.plan_session_state(management).await,
            ManagementOperation::SetSessionState => self.plan_set_session_state(management).await,
            ManagementOperation::ListSessions => self.plan_list_sessions(management).await,
            ManagementOperation::AddRule => self.plan_add_rule(management),
            ManagementOperation::RemoveRule => self.plan_remove_rule(management),
            ManagementOperation::ListRules => self.plan_list_rules(management),
            ManagementOperation::DeleteBatch => self.plan_delete_batch(management).await,
        }
    }
}
