//! Sends one message or a batch.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, web};
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::message::{Body, Message};

use super::batch;
use crate::body;
use crate::broker_properties::BrokerProperties;
use crate::delivery::inbound;
use crate::error::{Answer, Refusal};
use crate::header_value::{BROKER_PROPERTIES, read_properties};
use crate::serve::Exchange;

/// `POST /{queue}/messages`: stores a message, or all messages of a batch or none (SND-29).
pub(crate) async fn send(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let Exchange { site, request, .. } = exchange;
    let entity = exchange.entity(Action::Send, path).await?;
    if is_batch(request) {
        let bytes_max = body::json_bytes_max(site);
        let mut body = body::read(exchange, payload, "batch", bytes_max).await?;
        body.have_room_for_parts(site).await?;
        let messages = batch::parse(&body.bytes)?;
        let messages = messages.into_iter().map(|message| inbound(site, message)).collect();
        return match exchange.call(&entity, Command::SendBatch { messages }).await? {
            Outcome::AcceptedBatch(_) => Ok(super::answer(StatusCode::CREATED).finish()),
            _ => Err(Refusal::unexpected()),
        };
    }
    // What the headers say is judged before the body is read.
    let mut message = headers(request)?;
    let bytes_max = site.broker.settings().limits.message_bytes_http_max;
    let body = body::read(exchange, payload, "message", bytes_max).await?;
    message.body = Body::Data(body.bytes.clone());
    let message = inbound(site, message);
    match exchange.call(&entity, Command::Send { message }).await? {
        Outcome::Accepted(_) => Ok(super::answer(StatusCode::CREATED).finish()),
        _ => Err(Refusal::unexpected()),
    }
}

fn is_batch(request: &HttpRequest) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(super::BATCH)
}

/// The message that the headers describe, without its body.
fn headers(request: &HttpRequest) -> Result<Message, Refusal> {
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
