//! Receives one message, under lock or for good.

use actix_web::http::{Method, StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder, web};
use peeklock_core::Entity;
use peeklock_core::command::{LoadedMessage, MessageFacts, ReceiveMode};
use peeklock_core::contract::Action;
use peeklock_core::time::TimeSpan;

use crate::broker_properties;
use crate::delivery::{Delivery, bytes_of, load};
use crate::error::{Answer, Refusal};
use crate::header_value::{BROKER_PROPERTIES, write_property};
use crate::route::{encode_path, parameter};
use crate::serve::{Exchange, ReceiveBounds};
use crate::site::Site;

/// `POST` or `DELETE /{entity}/messages/head`: the first available message, or 204.
pub(crate) async fn receive(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    path: &str,
) -> Answer {
    let entity = exchange.entity(Action::Receive, path).await?;
    let wait = wait(&exchange.site, exchange.query())?;
    crate::body::discard(exchange, payload).await?;
    let mode = if method == Method::DELETE {
        ReceiveMode::ReceiveAndDelete
    } else {
        ReceiveMode::PeekLock
    };
    let mut room = exchange.room().await?;
    let receive = ReceiveBounds { count_max: 1, bytes_max: u64::MAX, wait };
    let mut messages = exchange.receive(&entity, &mut room, receive).await?;
    let mut delivery = Delivery::new(&entity, mode, &mut messages);
    room.fit_messages(bytes_of(&messages)).await?;
    let status = match mode {
        ReceiveMode::PeekLock => StatusCode::CREATED,
        ReceiveMode::ReceiveAndDelete => StatusCode::OK,
    };
    let Some(received) = messages.first() else {
        return Ok(super::answer(StatusCode::NO_CONTENT).finish());
    };
    let loaded = load(received).await?;
    let mut response = super::answer(status);
    write_headers(&mut response, &loaded, &received.facts);
    if let Some(location) = location(exchange, &entity, &received.facts) {
        response.insert_header((header::LOCATION, location));
    }
    let body = loaded.message.body.as_bytes().clone();
    if mode == ReceiveMode::ReceiveAndDelete {
        delivery.remove(&mut messages).await?;
    }
    exchange.hand_over(room, body.len(), Some(delivery));
    Ok(response.body(body))
}

/// The wait of a receive (HTP-08).
fn wait(site: &Site, query: &str) -> Result<TimeSpan, Refusal> {
    let most = site.broker.settings().limits.receive_wait_http_max;
    let Some(text) = parameter(query, "timeout") else { return Ok(most) };
    let seconds: Option<f64> = text.parse().ok();
    match seconds.and_then(TimeSpan::from_seconds_f64) {
        Some(wait) => Ok(wait.min(most)),
        None => Err(Refusal::argument("the query parameter timeout must be a number of seconds")),
    }
}

/// Properties as headers (HTP-03, HTP-05).
fn write_headers(response: &mut HttpResponseBuilder, loaded: &LoadedMessage, facts: &MessageFacts) {
    let LoadedMessage { message, dead_letter_source } = loaded;
    let properties = broker_properties::write(message, facts, dead_letter_source.as_deref());
    response.insert_header((BROKER_PROPERTIES, properties));
    let content_type = message.content_type.as_deref();
    if let Some(value) =
        content_type.and_then(|text| header::HeaderValue::from_bytes(text.as_bytes()).ok())
    {
        response.insert_header((header::CONTENT_TYPE, value));
    }
    for (key, value) in &message.application_properties {
        if let Some((name, value)) = write_property(key, value) {
            response.append_header((name, value));
        }
    }
}

/// The address under which the lock is settled (HTP-06).
fn location(exchange: &Exchange, entity: &Entity, facts: &MessageFacts) -> Option<String> {
    let token = facts.lock?.token;
    let base = exchange.base_url();
    Some(format!("{base}/{}/messages/{}/{token}", encode_path(entity.path()), facts.sequence))
}

/// The answer to a settlement.
pub(super) fn settled() -> HttpResponse {
    super::answer(StatusCode::OK).finish()
}
