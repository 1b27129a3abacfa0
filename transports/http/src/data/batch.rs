//! The body of a batch (HTP-09).

use actix_web::web::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::message::{Body, Message};
use serde::Deserialize;

use crate::broker_properties::BrokerProperties;
use crate::error::Refusal;
use crate::list::List;
use peeklock_json::PropertyMap;

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
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Message>, Refusal> {
    let items: List<Item> =
        serde_json::from_slice(bytes).map_err(|error| Refusal::parser("the batch", &error))?;
    items.0.into_iter().zip(1usize..).map(|(item, number)| message(item, number)).collect()
}

fn message(item: Item, number: usize) -> Result<Message, Refusal> {
    let body = body(item.body, item.body_base64)
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

/// A body given as text or as Base64, not as both; the empty body is legal (MSG-01).
fn body(text: Option<String>, base64: Option<String>) -> Result<Body, &'static str> {
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
