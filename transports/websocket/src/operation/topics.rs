//! Topics: one file for each operation of their management.

mod create;
mod delete;
mod get;
mod list;
mod update;

pub(crate) use peeklock_json::{TopicProperties, TopicView};

pub(crate) use self::{create::*, list::*, update::*};
use super::manage::json_inside;

json_inside!(TopicProperties, TopicView);
