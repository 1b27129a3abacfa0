//! Management of rules.

use serde::{Deserialize, Serialize};

use super::manage::json_inside;
use super::{ListOf, Notice};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

pub(crate) use peeklock_json::RuleForm;

bodies! {
    struct SetRule {
        /// The path of the subscription.
        path: String,
        rule: RuleForm,
    }

    struct NamedRule {
        /// The path of the subscription.
        path: String,
        name: String,
    }
}

/// A page of a subscription's rules in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleList {
    pub(crate) rules: Vec<RuleForm>,
}

json_inside!(RuleForm, RuleList);

impl Conversation {
    pub(super) fn create_rule(&mut self, asked: Asked, set: SetRule) -> Done {
        let rule = set.rule.to_description()?;
        self.manage(asked, |access| async move {
            let rule = access.create_rule(&set.path, rule).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        })
    }

    pub(super) fn get_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        self.manage(asked, |access| async move {
            let rule = access.rule(&named.path, &named.name).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        })
    }

    pub(super) fn update_rule(&mut self, asked: Asked, set: SetRule) -> Done {
        let rule = set.rule.to_description()?;
        self.manage(asked, |access| async move {
            let rule = access.update_rule(&set.path, rule).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        })
    }

    pub(super) fn delete_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        self.manage(asked, |access| async move {
            access.delete_rule(&named.path, &named.name).await?;
            Ok(Notice::Done(Default::default()))
        })
    }

    pub(super) fn list_rules(&mut self, asked: Asked, list: ListOf) -> Done {
        let (skip, top) = self.page(list.skip, list.top);
        self.manage_in_turn(asked, move |access| async move {
            let turn = access.turn_at_rules(&list.path).await?;
            let rules = turn.page(skip, top).await?;
            let rules = rules.iter().map(RuleForm::from).collect();
            Ok((Notice::Rules(RuleList { rules }), turn.into_turn()))
        })
    }
}
