//! Cancels scheduled messages in a transaction, all or none.

use peeklock_core::command::Command;
use peeklock_core::transaction::TransactionId;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Numbered;

bodies! {
    struct CancelScheduledIn {
        transaction: u64,
        cancel_scheduled: Numbered,
    }
}

impl Conversation {
    pub(in crate::operation) async fn cancel_scheduled_in(
        &mut self,
        asked: Asked,
        cancel: CancelScheduledIn,
    ) -> Done {
        let CancelScheduledIn { transaction, cancel_scheduled } = cancel;
        let link = cancel_scheduled.link;
        self.sender(link)?;
        let command = Command::CancelScheduled { sequences: cancel_scheduled.into() };
        self.join_whole(asked, TransactionId(transaction), link, command).await
    }
}
