//! Messages of a queue: send, schedule, receive, look at, delete.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::Entity;
use peeklock_core::command::{
    Command, InboundMessage, LoadedMessage, Outcome, ReceiveMode, ReceivedMessage,
};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_json::{NewMessage, ReceivedView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{json, no_content, of_json};
use crate::body;
use crate::delivery::{Delivery, bytes_of, inbound, load};
use crate::error::{Answer, Problem, Refusal};
use crate::list::{COUNT_MAX, List};
use crate::room::AnswerRoom;
use crate::route::parameter;
use crate::serve::{self, Exchange};

/// What stands behind `/messages/` beside sequence numbers.
pub(super) const OPERATIONS: [&str; 8] = [
    "batch",
    "schedule",
    "cancel-scheduled",
    "receive",
    "receive-deferred",
    "delete-batch",
    "purge",
    "delete-unlocked",
];

/// How a received message leaves the queue.
#[derive(Clone, Copy, Deserialize, Default, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mode {
    /// Stays under a lock until it is settled or the lock ends.
    #[default]
    PeekLock,
    /// Is removed when it is delivered.
    ReceiveAndDelete,
}

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

/// Messages to be stored together, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBatch {
    #[schema(value_type = Vec<NewMessage>)]
    messages: List<NewMessage>,
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

/// Numbers of messages; 0 stands for a silently dropped duplicate. A message to be scheduled that repeats one
/// that still is has the number of that one.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Numbers {
    sequence_numbers: Vec<u64>,
}

/// What to receive.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Receive {
    /// By default peekLock.
    mode: Option<Mode>,
    /// 1 to 4096, by default 1; an answer ends at 1 MiB of messages but has at least one.
    max_count: Option<u32>,
    /// How long to wait for the first message; 0, the default, does not wait, more than 60 is cut.
    wait_seconds: Option<f64>,
}

/// Which deferred messages to receive, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReceiveDeferred {
    /// By default peekLock.
    mode: Option<Mode>,
    sequence_numbers: Vec<u64>,
}

/// Messages, ascending by number as far as they are available; none is not an error.
#[derive(Serialize, ToSchema)]
pub(crate) struct Messages<'a> {
    messages: Vec<ReceivedView<'a>>,
}

/// Which available messages to delete.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DeleteBatch {
    /// At most the namespace's limit, which is also the default.
    max_count: Option<u32>,
    /// Only messages enqueued before this RFC 3339 instant; by default now.
    enqueued_before_utc: Option<String>,
}

/// How many messages were deleted.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deleted {
    deleted: u64,
}

impl From<Mode> for ReceiveMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::PeekLock => Self::PeekLock,
            Mode::ReceiveAndDelete => Self::ReceiveAndDelete,
        }
    }
}

/// Send a message.
#[utoipa::path(post, path = "/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path)), request_body = NewMessage,
    responses((status = 201, body = Accepted), (status = "default", body = Problem)))]
pub(super) async fn send(exchange: &Exchange, payload: &mut web::Payload, queue: &str) -> Answer {
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

/// Send messages together, all or none.
#[utoipa::path(post, path = "/queues/{queue}/messages/batch", tag = "messages",
    params(("queue" = String, Path)), request_body = NewBatch,
    responses((status = 201, body = Numbers), (status = "default", body = Problem)))]
pub(super) async fn send_batch(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Send, queue).await?;
    let (batch, _room): (NewBatch, _) = body::read_json(exchange, payload).await?;
    let messages = inbound_all(exchange, batch.messages, |_| {})?;
    accept(exchange, &entity, messages).await
}

/// Schedule messages for an instant, all or none; answers with the numbers by which to cancel them.
#[utoipa::path(post, path = "/queues/{queue}/messages/schedule", tag = "messages",
    params(("queue" = String, Path)), request_body = NewSchedule,
    responses((status = 201, body = Numbers), (status = "default", body = Problem)))]
pub(super) async fn schedule(
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

fn inbound_all(
    exchange: &Exchange,
    messages: List<NewMessage>,
    adjust: impl Fn(&mut peeklock_core::message::Message),
) -> Result<Vec<InboundMessage>, Refusal> {
    let messages = messages.0.into_iter().map(|message| {
        let mut message = message.into_message().map_err(Refusal::argument)?;
        adjust(&mut message);
        Ok(inbound(&exchange.site, message))
    });
    messages.collect()
}

async fn accept(exchange: &Exchange, entity: &Entity, messages: Vec<InboundMessage>) -> Answer {
    match exchange.call(entity, Command::SendBatch { messages }).await? {
        Outcome::AcceptedBatch(numbers) => {
            let sequence_numbers = numbers.into_iter().map(|number| number.0).collect();
            Ok(json(StatusCode::CREATED, &Numbers { sequence_numbers }))
        }
        _ => Err(Refusal::unexpected()),
    }
}

/// Cancel scheduled messages, all or none.
#[utoipa::path(post, path = "/queues/{queue}/messages/cancel-scheduled", tag = "messages",
    params(("queue" = String, Path)), request_body = Numbers,
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn cancel_scheduled(
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

/// Receive messages, under lock or for good.
#[utoipa::path(post, path = "/queues/{queue}/messages/receive", tag = "messages",
    params(("queue" = String, Path)), request_body = Receive,
    responses((status = 200, body = Messages), (status = "default", body = Problem)))]
pub(super) async fn receive(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Receive, queue).await?;
    let limits = &exchange.site.broker.settings().limits;
    let (bytes_max, wait_max) = (limits.peek_bytes_max, limits.receive_wait_http_max);
    let request = receive_request(exchange, payload).await?;
    let Some(wait) = TimeSpan::from_seconds_f64(request.wait_seconds.unwrap_or(0.0)) else {
        return Err(Rejection::out_of_range("waitSeconds is less than 0").into());
    };
    let count_max = request.max_count.unwrap_or(1);
    if count_max == 0 || count_max as usize > COUNT_MAX {
        let detail = format!("maxCount is {count_max}, not 1 to {COUNT_MAX}");
        return Err(Rejection::out_of_range(detail).into());
    }
    let mode = request.mode.unwrap_or_default().into();
    let mut room = exchange.room().await?;
    let receive = serve::Receive { count_max, bytes_max, wait: wait.min(wait_max) };
    let messages = exchange.receive(&entity, &mut room, receive).await?;
    deliver(exchange, &entity, room, Some(mode), messages).await
}

/// Apart, so that a receive that waits holds no room for its body.
async fn receive_request(
    exchange: &Exchange,
    payload: &mut web::Payload,
) -> Result<Receive, Refusal> {
    let (request, _room) = body::read_json(exchange, payload).await?;
    Ok(request)
}

/// Receive deferred messages by their numbers, all or none.
#[utoipa::path(post, path = "/queues/{queue}/messages/receive-deferred", tag = "messages",
    params(("queue" = String, Path)), request_body = ReceiveDeferred,
    responses((status = 200, body = Messages), (status = "default", body = Problem)))]
pub(super) async fn receive_deferred(
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

/// Look at messages without changing them.
#[utoipa::path(get, path = "/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path),
        ("from" = Option<u64>, Query, description = "the first sequence number; by default the lowest"),
        ("count" = Option<u32>, Query, description = "at most so many; by default 1"),
        ("sessionId" = Option<String>, Query, description = "only messages of this session")),
    responses((status = 200, body = Messages), (status = "default", body = Problem)))]
pub(super) async fn peek(exchange: &Exchange, queue: &str) -> Answer {
    let entity = exchange.entity(Action::Peek, queue).await?;
    let from = SequenceNumber(number(exchange, "from")?.unwrap_or(0));
    let count_max = number(exchange, "count")?.unwrap_or(1);
    let command = match parameter(exchange.query(), "sessionid") {
        Some(session) => Command::PeekSession { session: session.into(), from, count_max },
        None => Command::Peek { from, count_max },
    };
    let room = exchange.room().await?;
    match exchange.call(&entity, command).await? {
        Outcome::Peeked(messages) => deliver(exchange, &entity, room, None, messages).await,
        _ => Err(Refusal::unexpected()),
    }
}

/// Delete available messages, lowest numbers first.
#[utoipa::path(post, path = "/queues/{queue}/messages/delete-batch", tag = "messages",
    params(("queue" = String, Path)), request_body = DeleteBatch,
    responses((status = 200, body = Deleted), (status = "default", body = Problem)))]
pub(super) async fn delete_batch(
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
    match exchange.call(&entity, command).await? {
        Outcome::Deleted(deleted) => Ok(json(StatusCode::OK, &Deleted { deleted })),
        _ => Err(Refusal::unexpected()),
    }
}

/// Delete all available messages that were enqueued before an instant (DEL-06).
#[utoipa::path(post, path = "/queues/{queue}/messages/purge", tag = "messages",
    params(("queue" = String, Path)), request_body = DeleteBatch,
    responses((status = 200, body = Deleted), (status = "default", body = Problem)))]
pub(super) async fn purge(exchange: &Exchange, payload: &mut web::Payload, queue: &str) -> Answer {
    let entity = exchange.entity(Action::DeleteBatch, queue).await?;
    let (request, _room): (DeleteBatch, _) = body::read_json(exchange, payload).await?;
    if request.max_count.is_some() {
        return Err(Refusal::argument("maxCount is not for a purge, which deletes all"));
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

/// Delete available messages of all sessions that nobody holds, for who may manage the queue.
#[utoipa::path(post, path = "/queues/{queue}/messages/delete-unlocked", tag = "messages",
    params(("queue" = String, Path)), request_body = DeleteBatch,
    responses((status = 200, body = Deleted), (status = "default", body = Problem)))]
pub(super) async fn delete_unlocked(
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

/// Delete one deferred message, expired or not (DEL-09).
#[utoipa::path(delete, path = "/queues/{queue}/messages/{sequenceNumber}", tag = "messages",
    params(("queue" = String, Path), ("sequenceNumber" = u64, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete_deferred(
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

/// Answers with messages; what cannot be delivered is given back (RCV-14).
async fn deliver(
    exchange: &Exchange,
    entity: &Entity,
    mut room: AnswerRoom,
    mode: Option<ReceiveMode>,
    mut messages: Vec<ReceivedMessage>,
) -> Answer {
    let mut delivery = mode.map(|mode| Delivery::new(entity, mode, &mut messages));
    room.fit_messages(bytes_of(&messages)).await?;
    let mut bytes = written(&messages).await?;
    // Base64 and escapes make a text longer than its messages.
    room.fit_messages(bytes.len() as u64).await?;
    if let (Some(delivery), Some(ReceiveMode::ReceiveAndDelete)) = (&mut delivery, mode) {
        let count = messages.len();
        delivery.remove(&mut messages).await?;
        if messages.len() < count {
            bytes = written(&messages).await?;
        }
    }
    exchange.hand_over(room, bytes.len(), delivery);
    Ok(of_json(bytes))
}

/// The text of messages.
async fn written(messages: &[ReceivedMessage]) -> Result<Vec<u8>, Refusal> {
    let mut loaded = Vec::with_capacity(messages.len());
    for received in messages {
        loaded.push(load(received).await?);
    }
    let views =
        loaded.iter().zip(messages).map(|(LoadedMessage { message, dead_letter_source }, of)| {
            ReceivedView::new(message, &of.facts, dead_letter_source.as_deref())
        });
    serde_json::to_vec(&Messages { messages: views.collect() })
        .map_err(|_| Rejection::internal("the messages cannot be written as JSON").into())
}

fn delete_count_max(exchange: &Exchange) -> u32 {
    let count_max = exchange.site.broker.settings().limits.batch_delete_count_max;
    u32::try_from(count_max).unwrap_or(u32::MAX)
}

fn sequences(numbers: Vec<u64>) -> Result<Vec<SequenceNumber>, Refusal> {
    refuse_count(numbers.len(), "sequenceNumbers")?;
    Ok(numbers.into_iter().map(SequenceNumber).collect())
}

fn refuse_count(count: usize, what: &str) -> Result<(), Refusal> {
    if count <= COUNT_MAX {
        return Ok(());
    }
    let detail = format!("{what}: {count} are more than {COUNT_MAX}");
    Err(Rejection::out_of_range(detail).into())
}

/// A number of the query.
pub(super) fn number<T: std::str::FromStr>(
    exchange: &Exchange,
    name: &str,
) -> Result<Option<T>, Refusal> {
    let Some(text) = parameter(exchange.query(), name) else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => {
            Err(Refusal::argument(format!("the query parameter {name} is not a number in range")))
        }
    }
}

/// An instant of a request; `name` is its property.
pub(super) fn instant(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    match Timestamp::parse(text) {
        Some(instant) => Ok(Some(instant)),
        None => Err(Refusal::argument(format!("{name} is not an RFC 3339 instant"))),
    }
}
