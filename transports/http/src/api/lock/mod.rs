//! Locks: what becomes of a message that was received under one. One file for each operation.

pub(super) mod abandon;
pub(super) mod complete;
pub(super) mod dead_letter;
pub(super) mod defer;
pub(super) mod release;
pub(super) mod renew;

use actix_web::web;
use peeklock_core::command::{Command, Outcome, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;

use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Refusal};
use crate::header_value::RETRY_DELAY;
use crate::serve::Exchange;

/// The operations of a lock.
#[derive(Clone, Copy)]
enum Named {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
    Renew,
}

impl Named {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "complete" => Self::Complete,
            "abandon" => Self::Abandon,
            "defer" => Self::Defer,
            "dead-letter" => Self::DeadLetter,
            "release" => Self::Release,
            "renew" => Self::Renew,
            _ => return None,
        })
    }
}

/// The methods of `/locks/{lockToken}/{name}`; none if there is no such resource.
pub(super) fn methods(name: &str) -> Option<&'static str> {
    Named::of(name).map(|_| "POST, OPTIONS")
}

/// `/locks/{lockToken}/{name}`.
pub(super) async fn named(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
    name: &str,
) -> Answer {
    let Some(operation) = Named::of(name) else { return Err(Refusal::no_resource()) };
    refuse_delay_header(exchange)?;
    match operation {
        Named::Complete => complete::complete(exchange, payload, queue, token).await,
        Named::Abandon => abandon::abandon(exchange, payload, queue, token).await,
        Named::Defer => defer::defer(exchange, payload, queue, token).await,
        Named::DeadLetter => dead_letter::dead_letter(exchange, payload, queue, token).await,
        Named::Release => release::release(exchange, payload, queue, token).await,
        Named::Renew => renew::renew(exchange, payload, queue, token).await,
    }
}

/// Refuses the header that is for an abandon without a body: here an abandon says its delay in its body, and nothing else
/// has one (RTY-10, RTY-26).
fn refuse_delay_header(exchange: &Exchange) -> Result<(), Refusal> {
    if !exchange.request.headers().contains_key(RETRY_DELAY) {
        return Ok(());
    }
    Err(Refusal::argument(format!(
        "the header {RETRY_DELAY} does not belong to this API: give delayMilliseconds in the body \
         of an abandon; other operations have no delay"
    )))
}

async fn settle_plainly(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
    settlement: Settlement,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    body::read_nothing(exchange, payload).await?;
    settle(exchange, &entity, token, settlement).await
}

async fn settle(
    exchange: &Exchange,
    entity: &peeklock_core::Entity,
    token: &str,
    settlement: Settlement,
) -> Answer {
    let token = parse(token)?;
    match exchange.call(entity, Command::Settle { token, settlement }).await? {
        Outcome::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}

fn parse(token: &str) -> Result<LockToken, Refusal> {
    LockToken::parse(token).ok_or_else(|| {
        Rejection::new(Condition::MessageLockLost, "the lock token in the path must be a GUID")
            .into()
    })
}
