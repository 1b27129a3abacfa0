//! Tells which rules would select a message, and why.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::{ExplanationView, NewMessage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::large;
use crate::body;
use crate::delivery::inbound;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;

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

/// Tell which rules of a subscription would select a message if it were sent now, and why.
///
/// Nothing is stored.
#[utoipa::path(post, operation_id = "explain_rules",
    path = "/topics/{topic}/subscriptions/{subscription}/explain", tag = "rules",
    params(("topic" = String, Path), ("subscription" = String, Path)), request_body = Question,
    responses((status = 200, body = Explained), (status = "default", body = Problem)))]
pub(in crate::api) async fn explain(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    let path = exchange.allow(Action::ReadRules, path).await?;
    let (question, _room): (Question, _) = body::read_json(exchange, payload).await?;
    let message = question.message.into_message().map_err(Refusal::argument)?;
    let message = inbound(&exchange.site, message);
    // Until the answer has room. The request holds room, too, for which others may wait.
    let turn = exchange.access.turn_at_explanation(&path).await?;
    let room = exchange.room().await?;
    let explained = turn.explain(message).await?;
    let rules = explained.iter().map(ExplanationView::from).collect();
    large(exchange, room, &Explained { rules }).await
}
