//! Sends messages in a transaction.

use peeklock_core::transaction::TransactionId;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Send;

bodies! {
    struct SendIn {
        transaction: u64,
        /// Several messages are a batch, with its limit.
        send: Send,
    }
}

impl Conversation {
    pub(in crate::operation) async fn send_in(&mut self, asked: Asked, sent: SendIn) -> Done {
        let SendIn { transaction, send } = sent;
        let link = send.link;
        let command = self.send_command(send)?;
        self.join_whole(asked, TransactionId(transaction), link, command).await
    }
}
