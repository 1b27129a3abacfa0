//! Receives messages, available or deferred, and peeks at messages. `api/messages/mod.rs` routes
//! requests to it. Memory for the answer is reserved before messages are taken.

use actix_web::web;
use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::TimeSpan;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Messages, Mode, deliver, sequences};
use crate::api::number;
use crate::body::{self, COUNT_MAX};
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::{Exchange, ReceiveBounds};
use crate::route::parameter;

/// Limits of a receive.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Receive {
    /// By default peekLock.
    mode: Option<Mode>,
    /// 1 to 4096, by default 1. An answer ends at 1 MiB of messages but has at least one message.
    max_count: Option<u32>,
    /// Maximum wait for the first message in seconds; by default 0, which does not wait. Values
    /// above 60 are reduced to 60.
    wait_seconds: Option<f64>,
}

/// Receive messages, under lock or with permanent removal.
#[utoipa::path(post, path = "/queues/{queue}/messages/receive", tag = "messages",
    params(("queue" = String, Path)), request_body = Receive,
    responses((status = 200, body = Messages), (status = "default", body = Problem)))]
pub(in crate::api) async fn receive(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Receive, queue).await?;
    let limits = &exchange.site.broker.settings().limits;
    let (bytes_max, wait_max) = (limits.peek_bytes_max, limits.receive_wait_http_max);
    let request = receive_request(exchange, payload).await?;
    let Some(wait) = TimeSpan::from_seconds_f64(request.wait_seconds.unwrap_or(0.0)) else {
        return Err(Rejection::out_of_range("waitSeconds must be 0 or more").into());
    };
    let count_max = request.max_count.unwrap_or(1);
    if count_max == 0 || count_max as usize > COUNT_MAX {
        let detail = format!("maxCount is {count_max}; it must be 1 to {COUNT_MAX}");
        return Err(Rejection::out_of_range(detail).into());
    }
    let mode = request.mode.unwrap_or_default().into();
    let mut room = exchange.reserve_answer().await?;
    let receive = ReceiveBounds { count_max, bytes_max, wait: wait.min(wait_max) };
    let messages = exchange.receive(&entity, &mut room, receive).await?;
    deliver(exchange, &entity, room, Some(mode), messages).await
}

/// A separate function, so that a waiting receive holds no memory for its body.
async fn receive_request(
    exchange: &Exchange,
    payload: &mut web::Payload,
) -> Result<Receive, Refusal> {
    let (request, _room) = body::read_json(exchange, payload).await?;
    Ok(request)
}

/// Deferred messages to receive, all or none.
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
    let room = exchange.reserve_answer().await?;
    let command = Command::ReceiveDeferred {
        mode: ReceiveMode::PeekLock,
        sequences: sequences(request.sequence_numbers)?,
        holder: exchange.holder(),
    };
    match exchange.call(&entity, command).await? {
        Outcome::Received(messages) => deliver(exchange, &entity, room, Some(mode), messages).await,
        _ => Err(Refusal::unexpected()),
    }
}

/// Peek at messages without changing them.
#[utoipa::path(get, path = "/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path),
        ("from" = Option<u64>, Query, description = "the first sequence number; by default the lowest"),
        ("count" = Option<u32>, Query, description = "maximum number of messages; by default 1"),
        ("sessionId" = Option<String>, Query, description = "only messages of this session")),
    responses((status = 200, body = Messages), (status = "default", body = Problem)))]
pub(in crate::api) async fn peek(exchange: &Exchange, queue: &str) -> Answer {
    let entity = exchange.entity(Action::Peek, queue).await?;
    let from = SequenceNumber(number(exchange, "from")?.unwrap_or(0));
    let count_max = number(exchange, "count")?.unwrap_or(1);
    let command = match parameter(exchange.query(), "sessionid") {
        Some(session) => Command::PeekSession { session: session.into(), from, count_max },
        None => Command::Peek { from, count_max },
    };
    let room = exchange.reserve_answer().await?;
    match exchange.call(&entity, command).await? {
        Outcome::Peeked(messages) => deliver(exchange, &entity, room, None, messages).await,
        _ => Err(Refusal::unexpected()),
    }
}
