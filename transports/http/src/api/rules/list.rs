//! Lists the rules of a subscription.

use peeklock_json::RuleForm;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::large;
use crate::api::page::page;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// A page of a subscription's rules in case-insensitive order of their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct RulePage {
    rules: Vec<RuleForm>,
    skip: usize,
    top: usize,
}

/// List the rules of a subscription.
///
/// A page has at most 1 MiB of them, or one, and is shorter than `top` where they are more: the list ends with an empty page.
#[utoipa::path(get, operation_id = "list_rules",
    path = "/topics/{topic}/subscriptions/{subscription}/rules", tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path),
        ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of rules; at most 100, the \
            default")),
    responses((status = 200, body = RulePage), (status = "default", body = Problem)))]
pub(in crate::api) async fn list(exchange: &Exchange, path: &str) -> Answer {
    let turn = exchange.access.turn_at_rules(path).await?;
    let room = exchange.room().await?;
    let (skip, top) = page(exchange)?;
    let rules = turn.page(skip, top).await?;
    let rules = rules.iter().map(RuleForm::from).collect();
    large(exchange, room, &RulePage { rules, skip, top }).await
}
