//! Declarations: what would be done, and doing it (file 27 of the specification); one file for each.

mod carry_out;
mod plan;

pub(crate) use peeklock_json::DeclarationForm;

pub(crate) use self::{carry_out::*, plan::*};
use super::manage::json_inside;

json_inside!(DeclarationForm);
