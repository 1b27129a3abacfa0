//! Reads a rule.

use actix_web::http::StatusCode;
use peeklock_core::contract::Action;
use peeklock_json::RuleForm;

use crate::api::json;
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
    Ok(json(StatusCode::OK, &RuleForm::from(&rule)))
}
