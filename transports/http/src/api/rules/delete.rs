//! Removes a rule.

use actix_web::web;
use peeklock_core::contract::Action;

use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Remove a rule, `$Default` too.
#[utoipa::path(delete, operation_id = "delete_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::ChangeRules, path).await?;
    body::discard(exchange, payload).await?;
    exchange.access.delete_rule(&path, name).await?;
    Ok(no_content())
}
