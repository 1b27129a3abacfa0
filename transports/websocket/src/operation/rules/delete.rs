//! Removes a rule.

use super::NamedRule;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::Notice;

impl Conversation {
    pub(in crate::operation) fn delete_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        self.manage(asked, |access| async move {
            access.delete_rule(&named.path, &named.name).await?;
            Ok(Notice::Done(Default::default()))
        })
    }
}
