//! Settles messages in a transaction.

use peeklock_core::transaction::TransactionId;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Settle;
use crate::operation::keyed::OfLock;

bodies! {
    struct SettleIn {
        transaction: u64,
        settle: Settle,
    }
}

impl Conversation {
    pub(in crate::operation) async fn settle_in(&mut self, asked: Asked, settle: SettleIn) -> Done {
        let SettleIn { transaction, settle } = settle;
        self.receiver(settle.link)?;
        let of_lock = OfLock::Settle(self.settlement(&settle)?);
        let keyed = self.keyed(settle.link, &settle.ranges, &settle.lock_tokens)?;
        self.join_each(asked, TransactionId(transaction), keyed, of_lock).await
    }
}
