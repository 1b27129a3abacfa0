//! Reads a rule.

use super::{NamedRule, RuleForm};
use crate::connection::{Asked, Conversation, Done};
use crate::operation::Notice;

impl Conversation {
    pub(in crate::operation) fn get_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        self.manage(asked, |access| async move {
            let rule = access.rule(&named.path, &named.name).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        })
    }
}
