//! Replaces or clears the state of a session in a transaction.

use peeklock_core::command::SessionCommand;
use peeklock_core::transaction::TransactionId;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::SetSessionState;

bodies! {
    struct SetSessionStateIn {
        transaction: u64,
        set_session_state: SetSessionState,
    }
}

impl Conversation {
    pub(in crate::operation) async fn set_session_state_in(
        &mut self,
        asked: Asked,
        set: SetSessionStateIn,
    ) -> Done {
        let SetSessionStateIn { transaction, set_session_state } = set;
        let SetSessionState { link, state } = set_session_state;
        let command = self.session_command(link, SessionCommand::SetState { state })?;
        self.join_whole(asked, TransactionId(transaction), link, command).await
    }
}
