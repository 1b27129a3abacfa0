//! Deletes one deferred message by its number.

use actix_web::web;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::ids::SequenceNumber;

use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;

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
    match exchange.call(&entity, Command::DeleteDeferred { sequence }).await? {
        Outcome::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}
