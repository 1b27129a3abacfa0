//! Reads the keys of a policy.

use super::{NamedPolicy, PolicyKeysView};
use crate::connection::{Asked, Conversation, Done};
use crate::operation::Notice;

impl Conversation {
    pub(in crate::operation) fn policy_keys(&mut self, asked: Asked, named: NamedPolicy) -> Done {
        self.manage(asked, |access| async move {
            let keys = access.policy_keys(&named.path, &named.name).await?;
            Ok(Notice::PolicyKeys(Box::new(PolicyKeysView::from(&keys))))
        })
    }
}
