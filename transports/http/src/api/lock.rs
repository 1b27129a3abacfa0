//! Operations on a message that was received under a lock. `api/mod.rs` routes requests to it.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Command, Outcome, Settlement, retry_delay_of};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::Value;
use peeklock_json::{PropertyMap, PropertyValueSchema};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{json, no_content};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::header_value::RETRY_DELAY;

/// Operations of a lock.
#[derive(Clone, Copy)]
enum LockOperation {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
    Renew,
}

impl LockOperation {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "complete" => Self::Complete,
            "abandon" => Self::Abandon,
            "defer" => Self::Defer,
            "dead-letter" => Self::DeadLetter,
            "release" => Self::Release,
            "renew" => Self::Renew,
            _ => return None,
        })
    }
}

/// Returns the methods of `/locks/{lockToken}/{name}`; none if there is no such resource.
pub(super) fn methods(name: &str) -> Option<&'static str> {
    LockOperation::of(name).map(|_| "POST, OPTIONS")
}

/// Dispatches `/locks/{lockToken}/{name}`.
pub(super) async fn named(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
    name: &str,
) -> Answer {
    let Some(operation) = LockOperation::of(name) else { return Err(Refusal::no_resource()) };
    refuse_delay_header(exchange)?;
    match operation {
        LockOperation::Complete => complete(exchange, payload, queue, token).await,
        LockOperation::Abandon => abandon(exchange, payload, queue, token).await,
        LockOperation::Defer => defer(exchange, payload, queue, token).await,
        LockOperation::DeadLetter => dead_letter(exchange, payload, queue, token).await,
        LockOperation::Release => release(exchange, payload, queue, token).await,
        LockOperation::Renew => renew(exchange, payload, queue, token).await,
    }
}

/// Refuses the header of an abandon without a body. Here an abandon gives its delay in its body,
/// and other operations have no delay (RTY-10, RTY-26).
fn refuse_delay_header(exchange: &Exchange) -> Result<(), Refusal> {
    if !exchange.request.headers().contains_key(RETRY_DELAY) {
        return Ok(());
    }
    Err(Refusal::argument(format!(
        "the header {RETRY_DELAY} does not belong to this API: give delayMilliseconds in the body \
         of an abandon; other operations have no delay"
    )))
}

async fn settle_plainly(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
    settlement: Settlement,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    body::read_nothing(exchange, payload).await?;
    settle(exchange, &entity, token, settlement).await
}

async fn settle(
    exchange: &Exchange,
    entity: &peeklock_core::Entity,
    token: &str,
    settlement: Settlement,
) -> Answer {
    let token = token_of(token)?;
    match exchange.call(entity, Command::Settle { token, settlement }).await? {
        Outcome::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}

fn token_of(token: &str) -> Result<LockToken, Refusal> {
    LockToken::parse(token).ok_or_else(|| {
        Rejection::new(Condition::MessageLockLost, "the lock token in the path must be a GUID")
            .into()
    })
}

/// Complete: the message was processed and is removed.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/complete", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn complete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    settle_plainly(exchange, payload, queue, token, Settlement::Complete).await
}

/// Delay of an abandoned message, and properties to set on it.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Abandonment {
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
    /// Delay in milliseconds before the message is available again, at most 604800000; 0 for none.
    /// By default the retry policy applies.
    delay_milliseconds: Option<i64>,
}

/// Abandon: the message is available again, at once or later, and the delivery counts as failed.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/abandon", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)), request_body = Abandonment,
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn abandon(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    let (abandonment, _room): (Abandonment, _) = body::read_json(exchange, payload).await?;
    let said = abandonment.delay_milliseconds.map(|said| retry_delay_of(&Value::I64(said)));
    let properties = abandonment.application_properties.unwrap_or_default().0;
    let settlement = Settlement::abandon(&properties, said.transpose()?)?;
    settle(exchange, &entity, token, settlement).await
}

/// Properties to set on a message that is deferred.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Modification {
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
}

/// Defer: the message can be received only by its sequence number.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/defer", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)), request_body = Modification,
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn defer(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    let (modification, _room): (Modification, _) = body::read_json(exchange, payload).await?;
    let properties = modification.application_properties.unwrap_or_default().0;
    settle(exchange, &entity, token, Settlement::defer(&properties)?).await
}

/// Reason and description of a dead-lettered message.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DeadLetter {
    /// At most 4096 characters.
    reason: Option<String>,
    /// At most 4096 characters.
    description: Option<String>,
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
}

/// Dead-letter: the message moves to the dead-letter queue.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/dead-letter", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)), request_body = DeadLetter,
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn dead_letter(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    let (request, _room): (DeadLetter, _) = body::read_json(exchange, payload).await?;
    let settlement = Settlement::dead_letter(
        request.reason.as_deref(),
        request.description.as_deref(),
        &request.application_properties.unwrap_or_default().0,
        &exchange.site.broker.settings().limits,
    )?;
    settle(exchange, &entity, token, settlement).await
}

/// Release: the message is available again, and the delivery does not count.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/release", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn release(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    settle_plainly(exchange, payload, queue, token, Settlement::Release).await
}

/// The new end of a lock.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Renewed {
    locked_until_utc: String,
}

/// Renew: extends the lock by another lock duration from now.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/renew", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)),
    responses((status = 200, body = Renewed), (status = "default", body = Problem)))]
pub(super) async fn renew(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::RenewLock, queue).await?;
    body::read_nothing(exchange, payload).await?;
    match exchange.call(&entity, Command::RenewLock { token: token_of(token)? }).await? {
        Outcome::Renewed(until) => {
            Ok(json(StatusCode::OK, &Renewed { locked_until_utc: until.to_string() }))
        }
        _ => Err(Refusal::unexpected()),
    }
}
