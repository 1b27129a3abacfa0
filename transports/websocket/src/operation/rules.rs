//! Rules: one file for each operation of their management.

mod create;
mod delete;
mod get;
mod list;
mod update;

pub(crate) use peeklock_json::RuleForm;

pub(crate) use self::list::*;
use super::manage::json_inside;
use crate::frame::bodies;

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

json_inside!(RuleForm);
