//! Settles or renews by the address that a receive gave.

use actix_web::http::{Method, StatusCode};
use actix_web::web;
use peeklock_core::Entity;
use peeklock_core::command::{Command, Outcome, Settlement, retry_delay_of};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::Value;
use peeklock_core::time::TimeSpan;

use super::receive::settled;
use crate::broker_properties;
use crate::delivery::message_id;
use crate::error::{Answer, Refusal};
use crate::header_value::{BROKER_PROPERTIES, RETRY_DELAY};
use crate::serve::Exchange;

/// `DELETE`, `PUT`, `POST /{entity}/messages/{reference}/{token}`: completes, abandons, renews.
pub(crate) async fn settle(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    path: &str,
    reference: &str,
    token: &str,
) -> Answer {
    let purpose = if method == Method::POST { Action::RenewLock } else { Action::Settle };
    let entity = exchange.entity(purpose, path).await?;
    crate::body::discard(exchange, payload).await?;
    let delay = delay_of(exchange, method)?;
    let Some(token) = LockToken::parse(token) else {
        let detail = "the lock token in the path must be a GUID";
        return Err(Rejection::new(Condition::MessageLockLost, detail).into());
    };
    refuse_foreign(exchange, &entity, reference, token).await?;
    if method == Method::POST {
        return match exchange.call(&entity, Command::RenewLock { token }).await? {
            Outcome::Renewed(until) => Ok(super::answer(StatusCode::OK)
                .insert_header((BROKER_PROPERTIES, broker_properties::write_renewed(until)))
                .finish()),
            _ => Err(Refusal::unexpected()),
        };
    }
    let settlement = if method == Method::PUT {
        Settlement::Abandon { properties: None, delay }
    } else {
        Settlement::Complete
    };
    match exchange.call(&entity, Command::Settle { token, settlement }).await? {
        Outcome::Done => Ok(settled()),
        _ => Err(Refusal::unexpected()),
    }
}

/// The delay of an abandon, whose body is empty by contract (RTY-26); nothing else has one (RTY-10).
fn delay_of(exchange: &Exchange, method: &Method) -> Result<Option<TimeSpan>, Rejection> {
    let Some(value) = exchange.request.headers().get(RETRY_DELAY) else { return Ok(None) };
    if method != Method::PUT {
        return Err(Rejection::argument(format!(
            "the header {RETRY_DELAY} is for an abandon only"
        )));
    }
    let text = value.to_str().unwrap_or_default().trim();
    retry_delay_of(&Value::from(text)).map(Some)
}

/// HTP-07: the reference must be of the message that the token locks, its number or its MessageId.
async fn refuse_foreign(
    exchange: &Exchange,
    entity: &Entity,
    reference: &str,
    token: LockToken,
) -> Result<(), Refusal> {
    let sequence = token.sequence();
    if reference == sequence.to_string() {
        return Ok(());
    }
    let foreign = || Refusal::from(Rejection::message_lock_lost(token));
    let peek = Command::Peek { from: sequence, count_max: 1 };
    let Outcome::Peeked(messages) = exchange.call(entity, peek).await? else {
        return Err(Refusal::unexpected());
    };
    let Some(message) = messages.first().filter(|message| message.facts.sequence == sequence)
    else {
        return Err(foreign());
    };
    if message_id(message).await?.as_deref() == Some(reference) {
        return Ok(());
    }
    Err(foreign())
}
