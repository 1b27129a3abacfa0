//! The REST data plane (HTP-01 to HTP-09): send, receive, settle. `serve.rs` calls it after the
//! common checks of requests.

use actix_web::http::{Method, StatusCode, header};
use actix_web::web::{self, Bytes};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::Entity;
use peeklock_core::command::{
    Command, LoadedMessage, MessageFacts, Outcome, ReceiveMode, Settlement, retry_delay_of,
};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Body, Message, Value};
use peeklock_core::time::TimeSpan;
use peeklock_json::PropertyMap;
use serde::Deserialize;

use crate::body::{self, List};
use crate::broker_properties::{self, BrokerProperties};
use crate::delivery::{Delivery, bytes_of, inbound, load, message_id};
use crate::error::{Answer, Refusal};
use crate::exchange::{Exchange, ReceiveBounds};
use crate::header_value::{BROKER_PROPERTIES, RETRY_DELAY, read_properties, write_property};
use crate::route::{encode_path, parameter};
use crate::site::Site;

/// The Content-Type of a batch (HTP-09).
const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// Makes an answer that no cache may keep.
fn answer(status: StatusCode) -> HttpResponseBuilder {
    let mut answer = HttpResponse::build(status);
    answer.insert_header((header::CACHE_CONTROL, "no-store"));
    answer
}

/// `POST /{queue}/messages`: stores a message, or all messages of a batch or none (SND-29).
pub(crate) async fn send(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let Exchange { site, request, .. } = exchange;
    let entity = exchange.entity(Action::Send, path).await?;
    if is_batch(request) {
        let bytes_max = body::json_bytes_max(site);
        let mut body = body::read(exchange, payload, "batch", bytes_max).await?;
        body.have_room_for_parts(site).await?;
        let messages = parse_batch(&body.bytes)?;
        let messages = messages.into_iter().map(|message| inbound(site, message)).collect();
        return match exchange.call(&entity, Command::SendBatch { messages }).await? {
            Outcome::AcceptedBatch(_) => Ok(answer(StatusCode::CREATED).finish()),
            _ => Err(Refusal::unexpected()),
        };
    }
    // Headers are validated before the body is read.
    let mut message = message_of_headers(request)?;
    let bytes_max = site.broker.settings().limits.message_bytes_http_max;
    let body = body::read(exchange, payload, "message", bytes_max).await?;
    message.body = Body::Data(body.bytes.clone());
    let message = inbound(site, message);
    match exchange.call(&entity, Command::Send { message }).await? {
        Outcome::Accepted(_) => Ok(answer(StatusCode::CREATED).finish()),
        _ => Err(Refusal::unexpected()),
    }
}

fn is_batch(request: &HttpRequest) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(BATCH)
}

/// Makes the message that the headers describe, without its body.
fn message_of_headers(request: &HttpRequest) -> Result<Message, Refusal> {
    let mut message = Message::default();
    let mut given = request.headers().get_all(BROKER_PROPERTIES);
    if let Some(header) = given.next() {
        BrokerProperties::parse(header)?.apply_to(&mut message);
    }
    if given.next().is_some() {
        return Err(Refusal::argument("the header BrokerProperties is given twice"));
    }
    if let Some(content_type) = request.headers().get(header::CONTENT_TYPE) {
        let text = std::str::from_utf8(content_type.as_bytes())
            .map_err(|_| Refusal::argument("the header Content-Type is not UTF-8"))?;
        message.content_type = Some(text.to_owned());
    }
    message.application_properties = read_properties(request.headers())?;
    Ok(message)
}

/// One message of a batch.
#[derive(Deserialize)]
struct Item {
    #[serde(rename = "Body")]
    body: Option<String>,
    #[serde(rename = "BodyBase64")]
    body_base64: Option<String>,
    #[serde(rename = "BrokerProperties")]
    broker_properties: Option<BrokerProperties>,
    #[serde(rename = "UserProperties")]
    user_properties: Option<PropertyMap>,
}

/// Reads the messages of a batch.
fn parse_batch(bytes: &[u8]) -> Result<Vec<Message>, Refusal> {
    let items: List<Item> =
        serde_json::from_slice(bytes).map_err(|error| Refusal::parser("the batch", &error))?;
    items.0.into_iter().zip(1usize..).map(|(item, number)| message_of_item(item, number)).collect()
}

fn message_of_item(item: Item, number: usize) -> Result<Message, Refusal> {
    let body = body_of_item(item.body, item.body_base64)
        .map_err(|reason| Refusal::argument(format!("message {number} of the batch: {reason}")))?;
    let mut message = Message { body, ..Message::default() };
    if let Some(properties) = item.broker_properties {
        properties.apply_to(&mut message);
    }
    if let Some(PropertyMap(properties)) = item.user_properties {
        message.application_properties = properties;
    }
    Ok(message)
}

/// Returns a body given as text or as Base64, but not as both; the empty body is valid (MSG-01).
fn body_of_item(text: Option<String>, base64: Option<String>) -> Result<Body, &'static str> {
    match (text, base64) {
        (Some(_), Some(_)) => Err("the body is given both as text and as Base64"),
        (Some(text), None) => Ok(Body::Data(Bytes::from(text))),
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(Body::Data(Bytes::from(bytes))),
            Err(_) => Err("the body must be Base64"),
        },
        (None, None) => Ok(Body::default()),
    }
}

/// `POST` or `DELETE /{entity}/messages/head`: returns the first available message, or 204.
pub(crate) async fn receive(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    path: &str,
) -> Answer {
    let entity = exchange.entity(Action::Receive, path).await?;
    let wait = wait(&exchange.site, exchange.query())?;
    body::discard(exchange, payload).await?;
    let mode = if method == Method::DELETE {
        ReceiveMode::ReceiveAndDelete
    } else {
        ReceiveMode::PeekLock
    };
    let mut room = exchange.reserve_answer().await?;
    let receive = ReceiveBounds { count_max: 1, bytes_max: u64::MAX, wait };
    let mut messages = exchange.receive(&entity, &mut room, receive).await?;
    let mut delivery = Delivery::new(&entity, mode, &mut messages);
    room.fit_messages(bytes_of(&messages)).await?;
    let status = match mode {
        ReceiveMode::PeekLock => StatusCode::CREATED,
        ReceiveMode::ReceiveAndDelete => StatusCode::OK,
    };
    let Some(received) = messages.first() else {
        return Ok(answer(StatusCode::NO_CONTENT).finish());
    };
    let loaded = load(received).await?;
    let mut response = answer(status);
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

/// Returns the wait of a receive (HTP-08).
fn wait(site: &Site, query: &str) -> Result<TimeSpan, Refusal> {
    let most = site.broker.settings().limits.receive_wait_http_max;
    let Some(text) = parameter(query, "timeout") else { return Ok(most) };
    let seconds: Option<f64> = text.parse().ok();
    match seconds.and_then(TimeSpan::from_seconds_f64) {
        Some(wait) => Ok(wait.min(most)),
        None => Err(Refusal::argument("the query parameter timeout must be a number of seconds")),
    }
}

/// Writes properties as headers (HTP-03, HTP-05).
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

/// Returns the URL that settles the lock (HTP-06).
fn location(exchange: &Exchange, entity: &Entity, facts: &MessageFacts) -> Option<String> {
    let token = facts.lock?.token;
    let base = exchange.base_url();
    Some(format!("{base}/{}/messages/{}/{token}", encode_path(entity.path()), facts.sequence))
}

/// Makes the answer to a settlement.
fn settled() -> HttpResponse {
    answer(StatusCode::OK).finish()
}

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
    body::discard(exchange, payload).await?;
    let delay = delay_of(exchange, method)?;
    let Some(token) = LockToken::parse(token) else {
        let detail = "the lock token in the path must be a GUID";
        return Err(Rejection::new(Condition::MessageLockLost, detail).into());
    };
    refuse_foreign(exchange, &entity, reference, token).await?;
    if method == Method::POST {
        return match exchange.call(&entity, Command::RenewLock { token }).await? {
            Outcome::Renewed(until) => Ok(answer(StatusCode::OK)
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

/// Returns the delay of an abandon, whose body is empty by contract (RTY-26); other settlements
/// have none (RTY-10).
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

/// HTP-07: checks that the reference is the sequence number or the MessageId of the message that
/// the token locks.
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
