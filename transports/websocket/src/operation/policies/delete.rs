//! Deletes a policy.

use super::NamedPolicy;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::Notice;

impl Conversation {
    pub(in crate::operation) fn delete_policy(&mut self, asked: Asked, named: NamedPolicy) -> Done {
        self.manage(asked, |access| async move {
            access.delete_policy(&named.path, &named.name).await?;
            Ok(Notice::Done(Default::default()))
        })
    }
}
