//! Deletes all available messages.

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
    let mut deleted = 0;
    loop {
        let command = Command::DeleteBatch {
            count_max: delete_count_max(exchange),
            enqueued_before: Some(before),
        };
        match exchange.call(&entity, command).await? {
            Outcome::Deleted(0) => return Ok(json(StatusCode::OK, &Deleted { deleted })),
            Outcome::Deleted(count) => deleted += count,
            _ => return Err(Refusal::unexpected()),
        }
    }
}
