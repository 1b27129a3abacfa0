//! Locks: what becomes of a message that was received under one.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Command, Outcome, Settlement, retry_delay_of};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::Value;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{json, no_content};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;
use peeklock_json::{PropertyMap, PropertyValueSchema};

const OPERATIONS: [&str; 6] = ["complete", "abandon", "defer", "dead-letter", "release", "renew"];

/// Whether `/locks/{lockToken}/{name}` is an operation.
pub(crate) fn is_operation(name: &str) -> bool {
    OPERATIONS.contains(&name)
}

/// Properties to set on a message that goes back or aside.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Modification {
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
}

/// When a message that goes back is available again, and properties to set on it.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Abandonment {
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
    /// For how long nobody gets it, at most 604800000; 0 for not at all, and left out for as long as the
    /// retry policy says.
    delay_milliseconds: Option<i64>,
}

/// Why a message is dead-lettered.
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

/// The new end of a lock.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Renewed {
    locked_until_utc: String,
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

/// Defer: the message is set aside, to be received by its sequence number.
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

/// Release: the message is available again as if it had never been delivered.
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

/// Renew: the lock lasts for another lock duration from now.
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
    body::discard(exchange, payload).await?;
    match exchange.call(&entity, Command::RenewLock { token: parse(token)? }).await? {
        Outcome::Renewed(until) => {
            Ok(json(StatusCode::OK, &Renewed { locked_until_utc: until.to_string() }))
        }
        _ => Err(Refusal::unexpected()),
    }
}

async fn settle_plainly(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
    settlement: Settlement,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    body::discard(exchange, payload).await?;
    settle(exchange, &entity, token, settlement).await
}

async fn settle(
    exchange: &Exchange,
    entity: &peeklock_core::Entity,
    token: &str,
    settlement: Settlement,
) -> Answer {
    let token = parse(token)?;
    match exchange.call(entity, Command::Settle { token, settlement }).await? {
        Outcome::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}

fn parse(token: &str) -> Result<LockToken, Refusal> {
    LockToken::parse(token).ok_or_else(|| {
        Rejection::new(Condition::MessageLockLost, "the lock token of the path is not a GUID")
            .into()
    })
}
