//! Deletes what is in sessions that nobody holds.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;

use super::{DeleteBatch, Deleted, delete_count_max};
use crate::api::json;
use crate::api::query::instant;
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;

/// Delete available messages of all sessions that nobody holds, for who may manage the queue.
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
    match exchange.call(&entity, command).await? {
        Outcome::Deleted(deleted) => Ok(json(StatusCode::OK, &Deleted { deleted })),
        _ => Err(Refusal::unexpected()),
    }
}
