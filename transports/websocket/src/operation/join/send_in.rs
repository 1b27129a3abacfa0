//! Sends messages in a transaction.

use peeklock_core::transaction::TransactionId;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Send;
use crate::operation::keyed::Keyed;

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
        let command = std::iter::once(self.send_command(send)?);
        let keyed = Keyed { keys: vec![0], ..Keyed::none(link) };
        self.join(asked, TransactionId(transaction), keyed, command, true).await
    }
}
