//! Operations on the messages of a queue, and the parts that several operations share. `api/mod.rs`
//! routes requests to it.

pub(super) mod delete;
pub(super) mod receive;
pub(super) mod send;

use actix_web::http::{Method, StatusCode};
use actix_web::web;
use peeklock_core::command::{
    Command, InboundMessage, LoadedMessage, Outcome, ReceiveMode, ReceivedMessage,
};
use peeklock_core::contract::AuditResult;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::{Audited, Entity, message_count};
use peeklock_json::{NewMessage, ReceivedView, message_in_json_max};
use peeklock_link::Steps;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{json_in, of_json};
use crate::body::{COUNT_MAX, List};
use crate::delivery::{Delivery, inbound, load};
use crate::error::{Answer, Refusal};
use crate::exchange::{Exchange, is_page};
use crate::room::AnswerRoom;

/// End of an answer whose last property is a list of messages.
const LIST_END: &str = "]}";

/// Maximum size of a sequence number in an answer, in bytes.
const NUMBER_BYTES: usize = 21;

/// Named operations below `/messages/`; any other segment is a sequence number.
#[derive(Clone, Copy)]
enum MessageOperation {
    Batch,
    Schedule,
    CancelScheduled,
    Receive,
    ReceiveDeferred,
    DeleteBatch,
    Purge,
    DeleteUnlocked,
}

impl MessageOperation {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "batch" => Self::Batch,
            "schedule" => Self::Schedule,
            "cancel-scheduled" => Self::CancelScheduled,
            "receive" => Self::Receive,
            "receive-deferred" => Self::ReceiveDeferred,
            "delete-batch" => Self::DeleteBatch,
            "purge" => Self::Purge,
            "delete-unlocked" => Self::DeleteUnlocked,
            _ => return None,
        })
    }
}

/// Whether the operation removes messages without settling them.
pub(super) fn is_purge(name: &str) -> bool {
    use MessageOperation::{DeleteBatch, DeleteUnlocked, Purge};
    matches!(MessageOperation::of(name), Some(DeleteBatch | Purge | DeleteUnlocked))
}

/// Returns the methods of `/queues/{queue}/messages/{name}`; none if there is no such resource.
pub(super) fn methods(name: &str) -> Option<&'static str> {
    if MessageOperation::of(name).is_some() {
        return Some("POST, OPTIONS");
    }
    name.bytes().all(|byte| byte.is_ascii_digit()).then_some("DELETE, OPTIONS")
}

/// Dispatches `/messages`.
pub(super) async fn all(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    queue: &str,
) -> Answer {
    if method == Method::POST {
        return send::send(exchange, payload, queue).await;
    }
    receive::peek(exchange, queue).await
}

/// Dispatches `/messages/{name}`.
pub(super) async fn named(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    name: &str,
) -> Answer {
    let Some(named) = MessageOperation::of(name) else {
        return delete::delete_deferred(exchange, payload, queue, name).await;
    };
    match named {
        MessageOperation::Batch => send::send_batch(exchange, payload, queue).await,
        MessageOperation::Schedule => send::schedule(exchange, payload, queue).await,
        MessageOperation::CancelScheduled => send::cancel_scheduled(exchange, payload, queue).await,
        MessageOperation::Receive => receive::receive(exchange, payload, queue).await,
        MessageOperation::ReceiveDeferred => {
            receive::receive_deferred(exchange, payload, queue).await
        }
        MessageOperation::DeleteBatch => delete::delete_batch(exchange, payload, queue).await,
        MessageOperation::Purge => delete::purge(exchange, payload, queue).await,
        MessageOperation::DeleteUnlocked => delete::delete_unlocked(exchange, payload, queue).await,
    }
}

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

impl From<Mode> for ReceiveMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::PeekLock => Self::PeekLock,
            Mode::ReceiveAndDelete => Self::ReceiveAndDelete,
        }
    }
}

/// Sequence numbers of messages; 0 stands for a discarded duplicate. A scheduled message that
/// duplicates another scheduled one has the number of that message.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Numbers {
    sequence_numbers: Vec<u64>,
}

/// Messages, with available ones in ascending order of their numbers. An empty list is not an
/// error.
#[derive(Serialize, ToSchema)]
pub(crate) struct Messages<'a> {
    messages: Vec<ReceivedView<'a>>,
}

/// Available messages to delete.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DeleteBatch {
    /// At most the namespace's limit, which is also the default.
    max_count: Option<u32>,
    /// Only messages enqueued before this RFC 3339 instant; by default now.
    enqueued_before_utc: Option<String>,
}

/// Number of deleted messages.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deleted {
    deleted: u64,
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

/// Sends a command to an entity, with entries in the audit trail if it is recorded (CON-23).
async fn call(exchange: &Exchange, entity: &Entity, command: Command) -> Result<Outcome, Refusal> {
    let audited = begin_audit(exchange, entity, &command).await?;
    let outcome = exchange.call(entity, command).await;
    let count = outcome.as_ref().ok().and_then(message_count);
    audited.end(result_of(&outcome), count).await;
    outcome
}

async fn begin_audit(
    exchange: &Exchange,
    entity: &Entity,
    command: &Command,
) -> Result<Audited, Refusal> {
    let is_page = is_page(&exchange.request);
    Ok(exchange.access.audit_command(entity.path(), command, is_page).await?)
}

fn result_of<T>(outcome: &Result<T, Refusal>) -> AuditResult {
    match outcome {
        Ok(_) => AuditResult::Done,
        Err(refusal) => AuditResult::Failed(refusal.condition()),
    }
}

async fn accept(exchange: &Exchange, entity: &Entity, messages: Vec<InboundMessage>) -> Answer {
    let room = exchange.room_of(messages.len() * NUMBER_BYTES).await?;
    match call(exchange, entity, Command::SendBatch { messages }).await? {
        Outcome::AcceptedBatch(numbers) => {
            let sequence_numbers = numbers.into_iter().map(|number| number.0).collect();
            Ok(json_in(exchange, room, StatusCode::CREATED, &Numbers { sequence_numbers }))
        }
        _ => Err(Refusal::unexpected()),
    }
}

/// Answers with messages; messages that cannot be delivered are given back (RCV-14).
async fn deliver(
    exchange: &Exchange,
    entity: &Entity,
    mut room: AnswerRoom,
    mode: Option<ReceiveMode>,
    mut messages: Vec<ReceivedMessage>,
) -> Answer {
    let mut delivery = mode.map(|mode| Delivery::new(entity, mode, &mut messages));
    // Base64 and escapes make a text longer than its messages. Memory for the longest possible text
    // is reserved before any message is read, so that a request that waits for memory holds none
    // that is not counted.
    room.fit_messages(text_bytes_max(exchange, &messages)).await?;
    let mut bytes = written(&messages).await?;
    room.shrink(bytes.len() as u64);
    if let (Some(delivery), Some(ReceiveMode::ReceiveAndDelete)) = (&mut delivery, mode) {
        let count = messages.len();
        delivery.remove(&mut messages).await?;
        if messages.len() < count {
            // Frees the old text before the new one is built.
            drop(bytes);
            bytes = written(&messages).await?;
        }
    }
    exchange.hand_over(room, bytes.len(), delivery);
    Ok(of_json(bytes))
}

/// Returns the maximum size of the text of messages, in bytes.
fn text_bytes_max(exchange: &Exchange, messages: &[ReceivedMessage]) -> u64 {
    let header_bytes_max = exchange.site.broker.settings().limits.header_bytes_max;
    let sizes = messages.iter().map(|message| u64::from(message.facts.size));
    sizes.map(|size| message_in_json_max(size, header_bytes_max)).sum()
}

/// Writes the text of messages. They are read one at a time, since a decoded message may be many
/// times as large as it is stored. The task yields between messages.
async fn written(messages: &[ReceivedMessage]) -> Result<Vec<u8>, Refusal> {
    let unwritten = |_| Rejection::internal("the messages cannot be written as JSON");
    let mut text = serde_json::to_vec(&Messages { messages: Vec::new() }).map_err(unwritten)?;
    let end = text.split_off(text.len().saturating_sub(LIST_END.len()));
    let mut steps = Steps::default();
    for (place, received) in messages.iter().enumerate() {
        steps.add(1);
        steps.add_bytes(u64::from(received.facts.size));
        steps.yield_if_due().await;
        if place > 0 {
            text.push(b',');
        }
        let LoadedMessage { message, dead_letter_source } = load(received).await?;
        let view = ReceivedView::new(&message, &received.facts, dead_letter_source.as_deref());
        serde_json::to_writer(&mut text, &view).map_err(unwritten)?;
    }
    text.extend(end);
    // Growing may have left a capacity of up to twice the size.
    text.shrink_to_fit();
    Ok(text)
}

fn delete_count_max(exchange: &Exchange) -> u32 {
    let count_max = exchange.site.broker.settings().limits.batch_delete_count_max;
    u32::try_from(count_max).unwrap_or(u32::MAX)
}

fn sequences(numbers: Vec<u64>) -> Result<Vec<SequenceNumber>, Refusal> {
    refuse_count(numbers.len(), "sequenceNumbers")?;
    Ok(numbers.into_iter().map(SequenceNumber).collect())
}

fn refuse_count(count: usize, list: &str) -> Result<(), Refusal> {
    if count <= COUNT_MAX {
        return Ok(());
    }
    let detail = format!("{list}: {count} are more than {COUNT_MAX}; send several requests");
    Err(Rejection::out_of_range(detail).into())
}
