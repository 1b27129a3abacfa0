//! Begins a transaction.

use peeklock_core::transaction::Reach;

use super::TransactionOnly;
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Notice;

bodies! {
    struct BeginTransaction {
        /// Whether it also sends to other entities than the first one that it uses, by way of that one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cross_entity: bool,
    }
}

impl Conversation {
    pub(in crate::operation) fn begin_transaction(
        &mut self,
        asked: &Asked,
        begin: &BeginTransaction,
    ) -> Done {
        let reach = if begin.cross_entity { Reach::CrossEntity } else { Reach::OneEntity };
        let id = self.engine.transactions.begin(reach)?;
        let notice = Notice::Transaction(TransactionOnly { transaction: id.0 });
        self.say(asked.id, notice);
        Ok(())
    }
}
