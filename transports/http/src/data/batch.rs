//! The body of a batch (HTP-09).

use std::fmt;

use actix_web::web::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::message::{Body, Message};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::broker_properties::BrokerProperties;
use crate::error::Refusal;
use peeklock_json::PropertyMap;

/// Messages of one batch over HTTP: bounds what an empty object of two bytes can cost.
pub(crate) const MESSAGE_COUNT_MAX: usize = 4_096;

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

/// At most so many items.
struct Items(Vec<Item>);

/// Reads the messages of a batch.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Message>, Refusal> {
    let items: Items =
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
            Err(_) => Err("the body is not Base64"),
        },
        (None, None) => Ok(Body::default()),
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            if read.len() == MESSAGE_COUNT_MAX {
                let text = format!("a batch has at most {MESSAGE_COUNT_MAX} messages");
                return Err(serde::de::Error::custom(text));
            }
            read.push(item);
        }
        Ok(Items(read))
    }
}
