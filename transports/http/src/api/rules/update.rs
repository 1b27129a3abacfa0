//! Replaces a rule.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::RuleForm;

use super::told_bytes;
use crate::api::json_in;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Replace filter and action of a rule, as a whole: what is left out is gone.
#[utoipa::path(patch, operation_id = "update_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    request_body = RuleForm,
    responses((status = 200, body = RuleForm), (status = "default", body = Problem)))]
pub(in crate::api) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::ChangeRules, path).await?;
    let (form, _room): (RuleForm, _) = body::read_json(exchange, payload).await?;
    let rule = form.named(name)?.to_description()?;
    let room = exchange.room_of(told_bytes(&rule)).await?;
    let rule = exchange.access.update_rule(&path, rule).await?;
    Ok(json_in(exchange, room, StatusCode::OK, &RuleForm::from(&rule)))
}
