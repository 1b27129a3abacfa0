//! Rules of a subscription: which messages it gets, how they are changed, and the reasons.
//! `api/mod.rs` routes requests to these functions; `manage` checks rights and carries them out.

use actix_web::http::Method;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::management::{Management, SampleMessage};
use peeklock_json::{NewMessage, RuleForm};
use serde::Deserialize;
use utoipa::{OpenApi, ToSchema};

use super::manage::{Explained, RulePage, manage};
use super::page;
use crate::body;
use crate::delivery::inbound;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(list, create, get, update, delete, explain))]
pub(super) struct Operations;

/// Methods of a rule.
pub(super) const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// Dispatches by method to the operation on one rule.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    path: &str,
    name: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create(exchange, payload, path, name).await,
        "PATCH" => update(exchange, payload, path, name).await,
        "DELETE" => delete(exchange, payload, path, name).await,
        _ => get(exchange, path, name).await,
    }
}

/// List the rules of a subscription.
///
/// A page has at most 1 MiB, or one rule that is larger. It may therefore be shorter than `top`; an
/// empty page ends the list.
#[utoipa::path(get, operation_id = "list_rules",
    path = "/topics/{topic}/subscriptions/{subscription}/rules", tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path),
        ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of rules; at most 100, the \
            default")),
    responses((status = 200, body = RulePage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange, path: &str) -> Answer {
    let path = exchange.allow(Action::ReadRules, path).await?;
    manage(exchange, &path, Management::Rules(page(exchange)?)).await
}

/// Add a rule to a subscription.
///
/// It applies to messages that are sent afterwards. A name in the body must equal the name in the
/// path.
#[utoipa::path(put, operation_id = "create_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    request_body = RuleForm,
    responses((status = 201, body = RuleForm), (status = "default", body = Problem)))]
pub(super) async fn create(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::ChangeRules, path).await?;
    let (form, _room): (RuleForm, _) = body::read_json(exchange, payload).await?;
    let rule = form.named(name)?.to_description()?;
    manage(exchange, &path, Management::CreateRule(Box::new(rule))).await
}

/// Read a rule.
#[utoipa::path(get, operation_id = "get_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    responses((status = 200, body = RuleForm), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, path: &str, name: &str) -> Answer {
    manage(exchange, path, Management::Rule(name.into())).await
}

/// Replace filter and action of a rule as a whole; absent parts are removed.
#[utoipa::path(patch, operation_id = "update_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    request_body = RuleForm,
    responses((status = 200, body = RuleForm), (status = "default", body = Problem)))]
pub(super) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::ChangeRules, path).await?;
    let (form, _room): (RuleForm, _) = body::read_json(exchange, payload).await?;
    let rule = form.named(name)?.to_description()?;
    manage(exchange, &path, Management::UpdateRule(Box::new(rule))).await
}

/// Delete a rule, even `$Default`.
#[utoipa::path(delete, operation_id = "delete_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::ChangeRules, path).await?;
    body::discard(exchange, payload).await?;
    manage(exchange, &path, Management::DeleteRule(name.into())).await
}

/// A message for which to explain the rules.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    message: NewMessage,
}

/// Explain which rules of a subscription would select a message if it were sent now.
///
/// Nothing is stored.
#[utoipa::path(post, operation_id = "explain_rules",
    path = "/topics/{topic}/subscriptions/{subscription}/explain", tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path)), request_body = Question,
    responses((status = 200, body = Explained), (status = "default", body = Problem)))]
pub(super) async fn explain(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::ReadRules, path).await?;
    // The memory of the request is kept until the answer has its own; other requests may wait for
    // it.
    let (question, _room): (Question, _) = body::read_json(exchange, payload).await?;
    let message = question.message.into_message().map_err(Refusal::argument)?;
    let sample = SampleMessage::Inbound(inbound(&exchange.site, message));
    manage(exchange, &path, Management::Explain(Box::new(sample))).await
}
