//! Prolongs locks in a transaction.

use peeklock_core::transaction::TransactionId;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Renew;
use crate::operation::keyed::OfLock;

bodies! {
    struct RenewIn {
        transaction: u64,
        renew: Renew,
    }
}

impl Conversation {
    pub(in crate::operation) async fn renew_in(&mut self, asked: Asked, renew: RenewIn) -> Done {
        let RenewIn { transaction, renew } = renew;
        self.receiver(renew.link)?;
        let keyed = self.keyed(renew.link, &renew.ranges, &renew.lock_tokens)?;
        self.join_each(asked, TransactionId(transaction), keyed, OfLock::Renew).await
    }
}
