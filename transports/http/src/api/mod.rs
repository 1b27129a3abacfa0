//! The JSON API under `/$api/v1` (HTP-10): everything the broker can do, as resources.
//!
//! A queue or topic, or with its suffix a sub-queue, is one percent-encoded segment. Management is
//! `/queues` and `/queues/{queue}`, and `/topics` with subscriptions and their rules below them;
//! messages are below each, and operations on them are verbs in the last segment; a lock is a resource
//! of its own, so that every settlement names it in the path.

mod declaration;
mod lock;
mod messages;
mod namespace;
mod openapi;
mod page;
mod policies;
mod queues;
mod rules;
mod sessions;
mod subscriptions;
mod topics;

pub(crate) use lock::is_operation as is_lock_operation;
pub use openapi::openapi_json;

use std::sync::LazyLock;

use actix_web::http::{Method, StatusCode, header};
use actix_web::{HttpResponse, web};
use peeklock_core::error::Rejection;
use serde::Serialize;

use crate::error::{Answer, Refusal};
use crate::room::AnswerRoom;
use crate::route::{ApiRoute, parameter_names};
use crate::serve::Exchange;

/// The methods of `/queues/{queue}/messages/{name}`; none if there is no such resource.
pub(crate) fn message_methods(name: &str) -> Option<&'static str> {
    if messages::OPERATIONS.contains(&name) {
        return Some("POST, OPTIONS");
    }
    name.bytes().all(|byte| byte.is_ascii_digit()).then_some("DELETE, OPTIONS")
}

/// The query parameters of an operation, as they are documented.
fn parameters(method: &Method, route: &ApiRoute) -> &'static [&'static str] {
    match route {
        ApiRoute::Messages { .. } if method == Method::GET => &["from", "count", "sessionId"],
        ApiRoute::Sessions { .. } => &["skip", "top", "withActiveMessages", "stateSetAfterUtc"],
        ApiRoute::Queues
        | ApiRoute::Topics
        | ApiRoute::Subscriptions { .. }
        | ApiRoute::Rules { .. } => &["skip", "top"],
        ApiRoute::Declaration => &["dryRun", "digest", "stepsMax"],
        ApiRoute::Document
        | ApiRoute::Namespace
        | ApiRoute::Queue { .. }
        | ApiRoute::Messages { .. }
        | ApiRoute::Message { .. }
        | ApiRoute::Lock { .. }
        | ApiRoute::Topic { .. }
        | ApiRoute::Subscription { .. }
        | ApiRoute::Rule { .. }
        | ApiRoute::Explain { .. }
        | ApiRoute::Policies { .. }
        | ApiRoute::Policy { .. }
        | ApiRoute::PolicyKeys { .. }
        | ApiRoute::RegenerateKey { .. } => &[],
    }
}

/// Refuses query parameters that the operation has not: they are misspelt, or mean what it does not do.
fn refuse_unknown(query: &str, known: &[&str]) -> Result<(), Refusal> {
    let unknown = parameter_names(query)
        .find(|name| !known.iter().any(|known| known.eq_ignore_ascii_case(name)));
    let Some(name) = unknown else { return Ok(()) };
    let name: String = name.chars().take(64).collect();
    let has = match known {
        [] => "none".to_owned(),
        known => known.join(", "),
    };
    Err(Refusal::argument(format!(
        "the query parameter `{name}` is not one of this operation, which has {has}"
    )))
}

/// Carries out an operation; the method is one that the resource has.
pub(crate) async fn dispatch(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    route: &ApiRoute,
) -> Answer {
    refuse_unknown(exchange.query(), parameters(method, route))?;
    match route {
        ApiRoute::Document => {
            static DOCUMENT: LazyLock<String> = LazyLock::new(openapi_json);
            Ok(HttpResponse::Ok().content_type("application/json").body(DOCUMENT.as_str()))
        }
        ApiRoute::Queues => queues::list(exchange).await,
        ApiRoute::Queue { queue } => match method.as_str() {
            "PUT" => queues::create(exchange, payload, queue).await,
            "PATCH" => queues::update(exchange, payload, queue).await,
            "DELETE" => queues::delete(exchange, payload, queue).await,
            _ => queues::get(exchange, queue).await,
        },
        ApiRoute::Messages { queue } if method == Method::POST => {
            messages::send(exchange, payload, queue).await
        }
        ApiRoute::Messages { queue } => messages::peek(exchange, queue).await,
        ApiRoute::Message { queue, name } => match name.as_str() {
            "batch" => messages::send_batch(exchange, payload, queue).await,
            "schedule" => messages::schedule(exchange, payload, queue).await,
            "cancel-scheduled" => messages::cancel_scheduled(exchange, payload, queue).await,
            "receive" => messages::receive(exchange, payload, queue).await,
            "receive-deferred" => messages::receive_deferred(exchange, payload, queue).await,
            "delete-batch" => messages::delete_batch(exchange, payload, queue).await,
            "purge" => messages::purge(exchange, payload, queue).await,
            "delete-unlocked" => messages::delete_unlocked(exchange, payload, queue).await,
            number => messages::delete_deferred(exchange, payload, queue, number).await,
        },
        ApiRoute::Lock { queue, token, operation } => match operation.as_str() {
            "complete" => lock::complete(exchange, payload, queue, token).await,
            "abandon" => lock::abandon(exchange, payload, queue, token).await,
            "defer" => lock::defer(exchange, payload, queue, token).await,
            "dead-letter" => lock::dead_letter(exchange, payload, queue, token).await,
            "release" => lock::release(exchange, payload, queue, token).await,
            "renew" => lock::renew(exchange, payload, queue, token).await,
            _ => Err(Refusal::no_resource()),
        },
        ApiRoute::Declaration => declaration::declare(exchange, payload).await,
        ApiRoute::Namespace => namespace::get(exchange).await,
        ApiRoute::Sessions { path } => sessions::list(exchange, path).await,
        ApiRoute::Topics => topics::list(exchange).await,
        ApiRoute::Topic { topic } => match method.as_str() {
            "PUT" => topics::create(exchange, payload, topic).await,
            "PATCH" => topics::update(exchange, payload, topic).await,
            "DELETE" => topics::delete(exchange, payload, topic).await,
            _ => topics::get(exchange, topic).await,
        },
        ApiRoute::Subscriptions { topic } => subscriptions::list(exchange, topic).await,
        ApiRoute::Subscription { topic, name } => match method.as_str() {
            "PUT" => subscriptions::create(exchange, payload, topic, name).await,
            "PATCH" => subscriptions::update(exchange, payload, topic, name).await,
            "DELETE" => subscriptions::delete(exchange, payload, topic, name).await,
            _ => subscriptions::get(exchange, topic, name).await,
        },
        ApiRoute::Rules { path } => rules::list(exchange, path).await,
        ApiRoute::Rule { path, name } => match method.as_str() {
            "PUT" => rules::create(exchange, payload, path, name).await,
            "PATCH" => rules::update(exchange, payload, path, name).await,
            "DELETE" => rules::delete(exchange, payload, path, name).await,
            _ => rules::get(exchange, path, name).await,
        },
        ApiRoute::Explain { path } => rules::explain(exchange, payload, path).await,
        ApiRoute::Policies { owner } => policies::list(exchange, owner).await,
        ApiRoute::Policy { owner, name } => match method.as_str() {
            "PUT" => policies::create(exchange, payload, owner, name).await,
            "PATCH" => policies::update(exchange, payload, owner, name).await,
            "DELETE" => policies::delete(exchange, payload, owner, name).await,
            _ => policies::get(exchange, owner, name).await,
        },
        ApiRoute::PolicyKeys { owner, name } => {
            policies::keys(exchange, payload, owner, name).await
        }
        ApiRoute::RegenerateKey { owner, name } => {
            policies::regenerate(exchange, payload, owner, name).await
        }
    }
}

/// An answer of this API.
fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    HttpResponse::build(status).insert_header((header::CACHE_CONTROL, "no-store")).json(value)
}

/// An answer that may be large, in room that was taken before it was made.
async fn large(exchange: &Exchange, mut room: AnswerRoom, value: &impl Serialize) -> Answer {
    let Ok(bytes) = serde_json::to_vec(value) else {
        return Err(Rejection::internal("the answer cannot be written as JSON").into());
    };
    room.fit_messages(bytes.len() as u64).await?;
    exchange.hand_over(room, bytes.len(), None);
    Ok(of_json(bytes))
}

fn of_json(bytes: Vec<u8>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(bytes)
}

fn no_content() -> HttpResponse {
    HttpResponse::NoContent().finish()
}
