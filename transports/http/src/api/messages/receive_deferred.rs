//! Receives deferred messages by their numbers.

use actix_web::web;
use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::contract::Action;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Messages, Mode, deliver, sequences};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;

/// Which deferred messages to receive, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReceiveDeferred {
    /// By default peekLock.
    mode: Option<Mode>,
    sequence_numbers: Vec<u64>,
}

/// Receive deferred messages by their numbers, all or none.
#[utoipa::path(post, path = "/queues/{queue}/messages/receive-deferred", tag = "messages",
    params(("queue" = String, Path)), request_body = ReceiveDeferred,
    responses((status = 200, body = Messages), (status = "default", body = Problem)))]
pub(in crate::api) async fn receive_deferred(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::ReceiveDeferred, queue).await?;
    let (request, _room): (ReceiveDeferred, _) = body::read_json(exchange, payload).await?;
    let mode = request.mode.unwrap_or_default().into();
    let room = exchange.room().await?;
    let command = Command::ReceiveDeferred {
        mode: ReceiveMode::PeekLock,
        sequences: sequences(request.sequence_numbers)?,
        holder: None,
    };
    match exchange.call(&entity, command).await? {
        Outcome::Received(messages) => deliver(exchange, &entity, room, Some(mode), messages).await,
        _ => Err(Refusal::unexpected()),
    }
}
