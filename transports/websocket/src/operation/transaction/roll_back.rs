//! Forgets a transaction.

use peeklock_core::transaction::TransactionId;

use super::TransactionOnly;
use crate::connection::{Asked, Conversation, Done};

impl Conversation {
    pub(in crate::operation) fn roll_back(
        &mut self,
        asked: &Asked,
        only: &TransactionOnly,
    ) -> Done {
        self.engine.transactions.roll_back(TransactionId(only.transaction))?;
        self.done(asked)
    }
}
