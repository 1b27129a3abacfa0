//! The rules of a subscription: which messages it gets, how they are changed, and why.

use actix_web::http::StatusCode;
use actix_web::web;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::page::page;
use super::{json, large, no_content};
use crate::body;
use crate::delivery::inbound;
use crate::error::{Answer, Problem, Refusal};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::located;
use peeklock_core::Of;
use peeklock_core::contract::Action;
use peeklock_core::path::{EntityAddress, EntityName};
use peeklock_core::permits::Large;
use peeklock_json::{ExplanationView, NewMessage, RuleForm};

/// A page of a subscription's rules in case-insensitive order of their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct RulePage {
    rules: Vec<RuleForm>,
    skip: usize,
    top: usize,
}

/// A message that rules are asked about.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    message: NewMessage,
}

/// What each rule of a subscription makes of a message, in the order of their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct Explained {
    rules: Vec<ExplanationView>,
}

/// List the rules of a subscription.
#[utoipa::path(get, operation_id = "list_rules",
    path = "/topics/{topic}/subscriptions/{subscription}/rules", tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path),
        ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "by default 100, which is also the most")),
    responses((status = 200, body = RulePage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange, path: &str) -> Answer {
    let (_turn, room) = exchange.turn(Large::List, Of::Rules(path)).await?;
    let (skip, top) = page(exchange)?;
    let rules = exchange.make(Large::List, exchange.access.rules(path, skip, top)).await?;
    let rules = rules.iter().map(RuleForm::from).collect();
    large(exchange, room, &RulePage { rules, skip, top }).await
}

/// Add a rule to a subscription.
///
/// It applies to messages that are sent afterwards. A name in the body must be that of the path.
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
    let rule = exchange.access.create_rule(&path, rule).await?;
    let response = json(StatusCode::CREATED, &RuleForm::from(&rule));
    Ok(match location(exchange, &path, &rule.name) {
        Some(location) => located(response, &location),
        None => response,
    })
}

/// Read a rule.
#[utoipa::path(get, operation_id = "get_rule",
    path = "/topics/{topic}/subscriptions/{subscription}/rules/{rule}",
    tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path), ("rule" = String, Path)),
    responses((status = 200, body = RuleForm), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, path: &str, name: &str) -> Answer {
    let path = exchange.allow(Action::ReadRules, path).await?;
    let rule = exchange.access.rule(&path, name).await?;
    Ok(json(StatusCode::OK, &RuleForm::from(&rule)))
}

/// Replace filter and action of a rule, as a whole: what is left out is gone.
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
    let rule = exchange.access.update_rule(&path, rule).await?;
    Ok(json(StatusCode::OK, &RuleForm::from(&rule)))
}

/// Remove a rule, `$Default` too.
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
    exchange.access.delete_rule(&path, name).await?;
    Ok(no_content())
}

/// Tell which rules of a subscription would select a message if it were sent now, and why.
///
/// Nothing is stored.
#[utoipa::path(post, operation_id = "explain_rules",
    path = "/topics/{topic}/subscriptions/{subscription}/explain", tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path)), request_body = Question,
    responses((status = 200, body = Explained), (status = "default", body = Problem)))]
pub(super) async fn explain(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::ReadRules, path).await?;
    let (question, _room): (Question, _) = body::read_json(exchange, payload).await?;
    let message = question.message.into_message().map_err(Refusal::argument)?;
    let message = inbound(&exchange.site, message);
    // Until the answer has room. The request holds room, too, for which others may wait.
    let (_turn, room) = exchange.turn(Large::Explanation, Of::Rules(&path)).await?;
    let explained =
        exchange.make(Large::Explanation, exchange.access.explain(&path, message)).await?;
    let rules = explained.iter().map(ExplanationView::from).collect();
    large(exchange, room, &Explained { rules }).await
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
