//! Lists policies, without their keys.

pub(crate) use peeklock_json::PolicyList;

use crate::connection::{Asked, Conversation, Done};
use crate::operation::manage::json_inside;
use crate::operation::{Notice, PathOnly};

json_inside!(PolicyList);

impl Conversation {
    pub(in crate::operation) fn list_policies(&mut self, asked: Asked, of: PathOnly) -> Done {
        self.manage(asked, |access| async move {
            let policies = access.policies(&of.path).await?;
            Ok(Notice::Policies(PolicyList::from(&*policies)))
        })
    }
}
