//! Deletes messages without receiving them: batches, purges and single numbers.
//! `api/messages/mod.rs` routes requests to it. Locked messages are never deleted.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::ids::SequenceNumber;

use super::{DeleteBatch, Deleted, begin_audit, call, delete_count_max, result_of};
use crate::api::{instant, json, no_content};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;

/// Delete available messages, lowest numbers first.
#[utoipa::path(post, path = "/queues/{queue}/messages/delete-batch", tag = "messages",
    params(("queue" = String, Path)), request_body = DeleteBatch,
    responses((status = 200, body = Deleted), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete_batch(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::DeleteBatch, queue).await?;
    let (request, _room): (DeleteBatch, _) = body::read_json(exchange, payload).await?;
    let command = Command::DeleteBatch {
        count_max: request.max_count.unwrap_or_else(|| delete_count_max(exchange)),
        enqueued_before: instant("enqueuedBeforeUtc", request.enqueued_before_utc.as_deref())?,
    };
    match call(exchange, &entity, command).await? {
        Outcome::Deleted(deleted) => Ok(json(StatusCode::OK, &Deleted { deleted })),
        _ => Err(Refusal::unexpected()),
    }
}

/// Delete all available messages that were enqueued before an instant (DEL-06).
#[utoipa::path(post, path = "/queues/{queue}/messages/purge", tag = "messages",
    params(("queue" = String, Path)), request_body = DeleteBatch,
    responses((status = 200, body = Deleted), (status = "default", body = Problem)))]
pub(in crate::api) async fn purge(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::DeleteBatch, queue).await?;
    let (request, _room): (DeleteBatch, _) = body::read_json(exchange, payload).await?;
    if request.max_count.is_some() {
        return Err(Refusal::argument("a purge deletes all messages; leave out maxCount"));
    }
    let before = instant("enqueuedBeforeUtc", request.enqueued_before_utc.as_deref())?;
    let before = before.unwrap_or_else(|| exchange.site.broker.now());
    let command = || Command::DeleteBatch {
        count_max: delete_count_max(exchange),
        enqueued_before: Some(before),
    };
    let audited = begin_audit(exchange, &entity, &command()).await?;
    let mut deleted = 0;
    let outcome = loop {
        match exchange.call(&entity, command()).await {
            Ok(Outcome::Deleted(0)) => break Ok(()),
            Ok(Outcome::Deleted(count)) => deleted += count,
            Ok(_) => break Err(Refusal::unexpected()),
            Err(refusal) => break Err(refusal),
        }
    };
    audited.end(result_of(&outcome), Some(deleted)).await;
    outcome.map(|()| json(StatusCode::OK, &Deleted { deleted }))
}

/// Delete available messages of all unlocked sessions; needs the right Manage.
#[utoipa::path(post, path = "/queues/{queue}/messages/delete-unlocked", tag = "messages",
    params(("queue" = String, Path)), request_body = DeleteBatch,
    responses((status = 200, body = Deleted), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete_unlocked(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::DeleteUnlocked, queue).await?;
    let (request, _room): (DeleteBatch, _) = body::read_json(exchange, payload).await?;
    let command = Command::DeleteBatchUnlocked {
        count_max: request.max_count.unwrap_or_else(|| delete_count_max(exchange)),
        enqueued_before: instant("enqueuedBeforeUtc", request.enqueued_before_utc.as_deref())?,
    };
    match call(exchange, &entity, command).await? {
        Outcome::Deleted(deleted) => Ok(json(StatusCode::OK, &Deleted { deleted })),
        _ => Err(Refusal::unexpected()),
    }
}

/// Delete one deferred message, expired or not (DEL-09).
#[utoipa::path(delete, path = "/queues/{queue}/messages/{sequenceNumber}", tag = "messages",
    params(("queue" = String, Path), ("sequenceNumber" = u64, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete_deferred(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    number: &str,
) -> Answer {
    let entity = exchange.entity(Action::DeleteDeferred, queue).await?;
    body::discard(exchange, payload).await?;
    let Ok(sequence) = number.parse().map(SequenceNumber) else {
        return Err(Refusal::argument("the sequence number has more than 64 bits"));
    };
    match call(exchange, &entity, Command::DeleteDeferred { sequence }).await? {
        Outcome::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}
