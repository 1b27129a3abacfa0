//! Lists the rules of a subscription.

use serde::{Deserialize, Serialize};

use super::RuleForm;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::manage::json_inside;
use crate::operation::{ListOf, Notice};

/// A page of a subscription's rules in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleList {
    pub(crate) rules: Vec<RuleForm>,
}

json_inside!(RuleList);

impl Conversation {
    pub(in crate::operation) fn list_rules(&mut self, asked: Asked, list: ListOf) -> Done {
        let (skip, top) = self.page(list.skip, list.top);
        self.manage_in_turn(asked, move |access| async move {
            let turn = access.turn_at_rules(&list.path).await?;
            let rules = turn.page(skip, top).await?;
            let rules = rules.iter().map(RuleForm::from).collect();
            Ok((Notice::Rules(RuleList { rules }), turn.into_turn()))
        })
    }
}
