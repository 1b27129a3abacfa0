//! Reads a policy, without its keys.

use super::{NamedPolicy, PolicyView};
use crate::connection::{Asked, Conversation, Done};
use crate::operation::Notice;

impl Conversation {
    pub(in crate::operation) fn get_policy(&mut self, asked: Asked, named: NamedPolicy) -> Done {
        self.manage(asked, |access| async move {
            let policy = access.policy(&named.path, &named.name).await?;
            Ok(Notice::Policy(Box::new(PolicyView::from(&policy))))
        })
    }
}
