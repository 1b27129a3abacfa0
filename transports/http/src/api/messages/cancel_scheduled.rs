//! Cancels scheduled messages.

use actix_web::web;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;

use super::{Numbers, sequences};
use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;

/// Cancel scheduled messages, all or none.
#[utoipa::path(post, path = "/queues/{queue}/messages/cancel-scheduled", tag = "messages",
    params(("queue" = String, Path)), request_body = Numbers,
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn cancel_scheduled(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::CancelScheduled, queue).await?;
    let (numbers, _room): (Numbers, _) = body::read_json(exchange, payload).await?;
    let sequences = sequences(numbers.sequence_numbers)?;
    match exchange.call(&entity, Command::CancelScheduled { sequences }).await? {
        Outcome::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}
