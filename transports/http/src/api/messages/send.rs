//! Sends messages, now or at an instant, and cancels scheduled ones. `api/messages/mod.rs` routes
//! requests to it. A batch is stored whole or not at all.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::ids::SequenceNumber;
use peeklock_json::NewMessage;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Numbers, accept, call, inbound_all, sequences};
use crate::api::{instant, json, no_content};
use crate::body::{self, List};
use crate::delivery::inbound;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;

/// Number and id of a stored message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Accepted {
    /// 0 for a discarded duplicate. If a scheduled message duplicates another scheduled one, the
    /// number of that message.
    sequence_number: u64,
    /// The given id, or the id that the broker has assigned.
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
    match call(exchange, &entity, Command::Send { message }).await? {
        Outcome::Accepted(SequenceNumber(sequence_number)) => {
            Ok(json(StatusCode::CREATED, &Accepted { sequence_number, message_id }))
        }
        _ => Err(Refusal::unexpected()),
    }
}

/// Messages to be stored together, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBatch {
    #[schema(value_type = Vec<NewMessage>)]
    messages: List<NewMessage>,
}

/// Send messages together, all or none.
#[utoipa::path(post, path = "/queues/{queue}/messages/batch", tag = "messages",
    params(("queue" = String, Path)), request_body = NewBatch,
    responses((status = 201, body = Numbers), (status = "default", body = Problem)))]
pub(in crate::api) async fn send_batch(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Send, queue).await?;
    let (batch, _room): (NewBatch, _) = body::read_json(exchange, payload).await?;
    let messages = inbound_all(exchange, batch.messages, |_| {})?;
    accept(exchange, &entity, messages).await
}

/// Messages to be enqueued at an instant, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewSchedule {
    /// An RFC 3339 instant.
    scheduled_enqueue_time_utc: String,
    #[schema(value_type = Vec<NewMessage>)]
    messages: List<NewMessage>,
}

/// Schedule messages for an instant, all or none; the returned numbers serve to cancel them.
#[utoipa::path(post, path = "/queues/{queue}/messages/schedule", tag = "messages",
    params(("queue" = String, Path)), request_body = NewSchedule,
    responses((status = 201, body = Numbers), (status = "default", body = Problem)))]
pub(in crate::api) async fn schedule(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Send, queue).await?;
    let (schedule, _room): (NewSchedule, _) = body::read_json(exchange, payload).await?;
    let at = instant("scheduledEnqueueTimeUtc", Some(&schedule.scheduled_enqueue_time_utc))?;
    let messages =
        inbound_all(exchange, schedule.messages, |message| message.scheduled_enqueue_time = at)?;
    accept(exchange, &entity, messages).await
}

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
    match call(exchange, &entity, Command::CancelScheduled { sequences }).await? {
        Outcome::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}
