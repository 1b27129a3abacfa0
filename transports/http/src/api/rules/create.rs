//! Adds a rule.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::path::{EntityAddress, EntityName};
use peeklock_json::RuleForm;

use super::told_bytes;
use crate::api::json_in;
use crate::body;
use crate::error::{Answer, Problem};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::located;

/// Add a rule to a subscription.
///
/// It applies to messages that are sent afterwards. A name in the body must be that of the path.
#[utoipa::path(put, operation_id = "create_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    request_body = RuleForm,
    responses((status = 201, body = RuleForm), (status = "default", body = Problem)))]
pub(in crate::api) async fn create(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::ChangeRules, path).await?;
    let (form, _room): (RuleForm, _) = body::read_json(exchange, payload).await?;
    let rule = form.named(name)?.to_description()?;
    let room = exchange.room_of(told_bytes(&rule)).await?;
    let rule = exchange.access.create_rule(&path, rule).await?;
    let response = json_in(exchange, room, StatusCode::CREATED, &RuleForm::from(&rule));
    Ok(match location(exchange, &path, &rule.name) {
        Some(location) => located(response, &location),
        None => response,
    })
}

/// The address of a rule.
fn location(exchange: &Exchange, path: &str, rule: &str) -> Option<String> {
    let EntityName::Subscription { topic, name } = EntityAddress::parse(path).ok()?.entity else {
        return None;
    };
    let (topic, name, rule) = (encode_segment(&topic), encode_segment(&name), encode_segment(rule));
    let base = exchange.base_url();
    Some(format!("{base}/$api/v1/topics/{topic}/subscriptions/{name}/rules/{rule}"))
}
