//! Adds a rule to a subscription.

use super::{RuleForm, SetRule};
use crate::connection::{Asked, Conversation, Done};
use crate::operation::Notice;

impl Conversation {
    pub(in crate::operation) fn create_rule(&mut self, asked: Asked, set: SetRule) -> Done {
        let rule = set.rule.to_description()?;
        self.manage(asked, |access| async move {
            let rule = access.create_rule(&set.path, rule).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        })
    }
}
