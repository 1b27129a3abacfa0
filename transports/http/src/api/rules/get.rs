//! Reads a rule.

use actix_web::http::StatusCode;
use peeklock_core::contract::Action;
use peeklock_json::{RuleForm, size_in_json};

use crate::api::json_in;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Read a rule.
#[utoipa::path(get, operation_id = "get_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    responses((status = 200, body = RuleForm), (status = "default", body = Problem)))]
pub(in crate::api) async fn get(exchange: &Exchange, path: &str, name: &str) -> Answer {
    let path = exchange.allow(Action::ReadRules, path).await?;
    let rule = exchange.access.rule(&path, name).await?;
    let form = RuleForm::from(&rule);
    let room = exchange.room_of(size_in_json(&form)).await?;
    Ok(json_in(exchange, room, StatusCode::OK, &form))
}
