//! Operators act on locks, sessions and clients of others (CON-24, CON-26, CON-27).
//! `api/mod.rs` routes requests to it.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::OperatorCommand;
use peeklock_core::contract::Action;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::ClientId;
use peeklock_core::management::{Managed, Management};
use peeklock_json::state_bytes;
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::{json, no_content};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(break_locks, break_session, set_state, clear_state, close_client))]
pub(super) struct Operations;

/// Locks of messages to break.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LockBreak {
    /// Locked messages, at most 500.
    #[schema(value_type = Vec<u64>)]
    sequence_numbers: body::List<u64>,
    /// Whether the deliveries count as failed; by default they do not.
    #[serde(default)]
    counted: bool,
}

/// Break of the lock of a session.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SessionBreak {
    /// Whether the deliveries under the lock count as failed; by default they do not.
    counted: Option<bool>,
}

/// Number of locks that were ended.
#[derive(Serialize, ToSchema)]
pub(crate) struct Broken {
    broken: u64,
}

/// New state of a session, as text or in Base64.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewState {
    state: Option<String>,
    state_base64: Option<String>,
}

/// Break locks of messages, regardless of their holders.
///
/// Each message is available at once, or deferred again. The next settlement of its holder fails
/// with `MessageLockLost`. Messages without a lock are skipped. Needs the rights Send and Listen.
#[utoipa::path(post, operation_id = "break_locks", path = "/queues/{queue}/locks/break",
    tag = "operate", params(("queue" = String, Path)), request_body = LockBreak,
    responses((status = 200, body = Broken), (status = "default", body = Problem)))]
pub(super) async fn break_locks(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    exchange.allow(Action::Operate, path).await?;
    let (request, _room): (LockBreak, _) = body::read_json(exchange, payload).await?;
    let LockBreak { sequence_numbers, counted: counts } = request;
    let sequences = sequence_numbers.0.into_iter().map(SequenceNumber).collect();
    operate(exchange, path, OperatorCommand::BreakLocks { sequences, counts }).await
}

/// Break the lock of a session, regardless of its holder.
///
/// All messages under the lock are available at once, or deferred again. The holder gets
/// `SessionLockLost`. The answer is 0 if no receiver holds the session. Needs the rights Send and
/// Listen.
#[utoipa::path(post, operation_id = "break_session",
    path = "/queues/{queue}/sessions/{sessionId}/break", tag = "operate",
    params(("queue" = String, Path), ("sessionId" = String, Path)), request_body = SessionBreak,
    responses((status = 200, body = Broken), (status = "default", body = Problem)))]
pub(super) async fn break_session(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    session: &str,
) -> Answer {
    exchange.allow(Action::Operate, path).await?;
    let (request, _room): (SessionBreak, _) = body::read_json(exchange, payload).await?;
    let counts = request.counted.unwrap_or(false);
    operate(exchange, path, OperatorCommand::BreakSession { session: session.into(), counts }).await
}

/// Set the state of a session that no receiver holds.
///
/// A session that is held refuses this with `SessionCannotBeLocked`. Needs the rights Send and
/// Listen.
#[utoipa::path(put, operation_id = "set_session_state",
    path = "/queues/{queue}/sessions/{sessionId}/state", tag = "operate",
    params(("queue" = String, Path), ("sessionId" = String, Path)), request_body = NewState,
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn set_state(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    session: &str,
) -> Answer {
    exchange.allow(Action::Operate, path).await?;
    let (new, _room): (NewState, _) = body::read_json(exchange, payload).await?;
    let Some(state) = state_bytes(new.state, new.state_base64).map_err(Refusal::argument)? else {
        let detail = "give state or stateBase64; DELETE clears the state";
        return Err(Refusal::argument(detail));
    };
    let command = OperatorCommand::SetSessionState { session: session.into(), state: Some(state) };
    operate(exchange, path, command).await
}

/// Clear the state of a session that no receiver holds.
#[utoipa::path(delete, operation_id = "clear_session_state",
    path = "/queues/{queue}/sessions/{sessionId}/state", tag = "operate",
    params(("queue" = String, Path), ("sessionId" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn clear_state(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    session: &str,
) -> Answer {
    exchange.allow(Action::Operate, path).await?;
    body::discard(exchange, payload).await?;
    let command = OperatorCommand::SetSessionState { session: session.into(), state: None };
    operate(exchange, path, command).await
}

/// Close the connection of a client.
///
/// Its links end as when the broker stops: messages in its hands are available at once, and their
/// deliveries do not count. A client over HTTP keeps its locks; its connection is closed after the
/// request in progress. Needs the right Manage of the namespace.
#[utoipa::path(delete, operation_id = "close_client", path = "/clients/{client}", tag = "operate",
    params(("client" = u64, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn close_client(
    exchange: &Exchange,
    payload: &mut web::Payload,
    client: &str,
) -> Answer {
    exchange.allow(Action::CloseClients, "").await?;
    body::discard(exchange, payload).await?;
    let Ok(client) = client.parse() else {
        return Err(Refusal::argument("the number of the client must be a number of 64 bits"));
    };
    let close = Management::CloseClient(ClientId(client));
    match exchange.access.manage("", close).await? {
        Managed::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}

async fn operate(exchange: &Exchange, path: &str, command: OperatorCommand) -> Answer {
    match exchange.access.manage(path, Management::Operate(command)).await? {
        Managed::Done => Ok(no_content()),
        Managed::LocksBroken(broken) => Ok(json(StatusCode::OK, &Broken { broken })),
        _ => Err(Refusal::unexpected()),
    }
}
