//! Creates a policy.

use super::{PolicyView, SetPolicy};
use crate::connection::{Asked, Conversation, Done};
use crate::operation::Notice;

impl Conversation {
    pub(in crate::operation) fn create_policy(&mut self, asked: Asked, set: SetPolicy) -> Done {
        let properties = set.properties.to_update()?;
        self.manage(asked, |access| async move {
            let policy = access.create_policy(&set.path, &set.name, properties).await?;
            Ok(Notice::Policy(Box::new(PolicyView::from(&policy))))
        })
    }
}
