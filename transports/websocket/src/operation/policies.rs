//! Policies of a queue or topic, or of the namespace where the path is empty: one file for each operation of their
//! management.

mod create;
mod delete;
mod get;
mod keys;
mod list;
mod regenerate;
mod update;

pub(crate) use peeklock_json::{PolicyKeysView, PolicyProperties, PolicyView};

pub(crate) use self::{list::*, regenerate::*};
use super::manage::json_inside;
use crate::frame::bodies;

bodies! {
    struct SetPolicy {
        path: String,
        name: String,
        #[serde(default)]
        properties: PolicyProperties,
    }

    struct NamedPolicy {
        path: String,
        name: String,
    }
}

json_inside!(PolicyProperties, PolicyView, PolicyKeysView);
