//! Sends one message.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::ids::SequenceNumber;
use peeklock_json::NewMessage;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::json;
use crate::body;
use crate::delivery::inbound;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;

/// The number under which a message is stored.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Accepted {
    /// 0 for a silently dropped duplicate; if the message was to be scheduled and repeats one that still is,
    /// the number of that one.
    sequence_number: u64,
    /// The id given, or the one that the broker gave.
    message_id: Option<String>,
}

/// Send a message.
#[utoipa::path(post, path = "/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path)), request_body = NewMessage,
    responses((status = 201, body = Accepted), (status = "default", body = Problem)))]
pub(in crate::api) async fn send(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Send, queue).await?;
    let (message, _room): (NewMessage, _) = body::read_json(exchange, payload).await?;
    let message = message.into_message().map_err(Refusal::argument)?;
    let message = inbound(&exchange.site, message);
    let message_id = message.content.message_id().map(std::borrow::Cow::into_owned);
    match exchange.call(&entity, Command::Send { message }).await? {
        Outcome::Accepted(SequenceNumber(sequence_number)) => {
            Ok(json(StatusCode::CREATED, &Accepted { sequence_number, message_id }))
        }
        _ => Err(Refusal::unexpected()),
    }
}
