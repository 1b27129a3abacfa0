//! Queues: one file for each operation of their management.

mod create;
mod delete;
mod get;
mod list;
mod update;

pub(crate) use peeklock_json::{QueueProperties, QueueView};

pub(crate) use self::{create::*, list::*, update::*};
use super::manage::json_inside;

json_inside!(QueueProperties, QueueView);
