//! The rules of a subscription: which messages it gets, how they are changed, and why. One file for each operation.

pub(super) mod create;
pub(super) mod delete;
pub(super) mod explain;
pub(super) mod get;
pub(super) mod list;
pub(super) mod update;

use actix_web::http::Method;
use actix_web::web;
use peeklock_core::rule::RuleDescription;
use peeklock_json::{RuleForm, size_in_json};

use crate::error::Answer;
use crate::serve::Exchange;

/// What it takes to tell when a rule was created.
const CREATED_AT_BYTES: usize = 64;

/// How large an answer with this rule is, once it is there.
fn told_bytes(rule: &RuleDescription) -> usize {
    size_in_json(&RuleForm::from(rule)) + CREATED_AT_BYTES
}

/// One of them.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    path: &str,
    name: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create::create(exchange, payload, path, name).await,
        "PATCH" => update::update(exchange, payload, path, name).await,
        "DELETE" => delete::delete(exchange, payload, path, name).await,
        _ => get::get(exchange, path, name).await,
    }
}
