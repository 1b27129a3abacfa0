//! Requests at management nodes, and their replies (AMQP-80, AMQP-81).

use bytes::Bytes;
use peeklock_words::amqp::write::Sink;
use peeklock_words::amqp::{Reader, Scalar, code, descriptor, write};
use peeklock_words::message::{Body, Content, Message, MessageId, Value};

use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::error::{AmqpError, condition};

/// An encoded value.
#[must_use]
pub fn value(value: impl Into<Value>) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.into().encode_to(&mut bytes);
    bytes
}

/// An encoded map with string keys.
#[must_use]
pub fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut items = Vec::new();
    for (key, encoded) in entries {
        write::text(&mut items, key);
        items.put(encoded);
    }
    compound(code::MAP32, entries.len() * 2, &items)
}

/// An encoded list of encoded items.
#[must_use]
pub fn list(items: &[Vec<u8>]) -> Vec<u8> {
    compound(code::LIST32, items.len(), &items.concat())
}

/// Lock tokens.
#[must_use]
pub fn uuids(tokens: &[u128]) -> Vec<u8> {
    array(code::UUID, &tokens.iter().map(|token| token.to_be_bytes()).collect::<Vec<_>>())
}

/// Sequence numbers.
#[must_use]
pub fn longs(numbers: &[i64]) -> Vec<u8> {
    array(code::LONG, &numbers.iter().map(|number| number.to_be_bytes()).collect::<Vec<_>>())
}

/// An array of values with the same constructor.
#[must_use]
pub fn array<const N: usize>(constructor: u8, elements: &[[u8; N]]) -> Vec<u8> {
    let mut items = vec![constructor];
    items.put(&elements.concat());
    compound(code::ARRAY32, elements.len(), &items)
}

fn compound(code: u8, count: usize, items: &[u8]) -> Vec<u8> {
    let mut bytes = vec![code];
    bytes.put(&write::length32(items.len() + 4));
    bytes.put(&write::length32(count));
    bytes.put(items);
    bytes
}

/// A request to a management node; the node sends its reply to `reply_to` with this number.
#[must_use]
pub fn request(
    number: u64,
    reply_to: &str,
    (operation, properties): (&str, &[(&str, &str)]),
    body: &[u8],
) -> Content {
    let text = |(name, text): (&str, &str)| (name.to_owned(), Value::String(text.to_owned()));
    let mut application_properties = vec![text(("operation", operation))];
    application_properties.extend(properties.iter().copied().map(text));
    let mut whole = vec![code::DESCRIBED, code::SMALL_ULONG, descriptor::VALUE];
    whole.put(body);
    let message = Message {
        message_id: Some(MessageId::Ulong(number)),
        reply_to: Some(reply_to.to_owned()),
        body: Body::Value(whole.into()),
        application_properties,
        ..Message::default()
    };
    message.encode()
}

/// The reply to a request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The message as received.
    pub content: Content,
    body: Map,
}

impl Reply {
    /// Reads a message as a reply.
    ///
    /// # Errors
    /// For a message without the form of a reply.
    pub fn read(message: Bytes) -> Result<Self, AmqpError> {
        let content = Content::parse(message)?;
        let mut reader = Reader::new(content.sections().body);
        if reader.section()? != descriptor::VALUE {
            return Err(AmqpError::new(condition::DECODE_ERROR, "body of a reply must be a value"));
        }
        let body = Map::from_raw(Raw::encoded(|bytes| bytes.put(reader.rest())))?;
        Ok(Self { content, body })
    }

    /// The number of the request.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self.content.decode().ok()?.correlation_id? {
            MessageId::Ulong(number) => Some(number),
            _ => None,
        }
    }

    /// An application property of the reply.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Value> {
        self.content.application_properties().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The status code of the reply.
    #[must_use]
    pub fn status(&self) -> Option<i32> {
        match self.property("statusCode")? {
            Value::I32(status) => Some(status),
            _ => None,
        }
    }

    /// The error of a refused request; none after success.
    #[must_use]
    pub fn error(&self) -> Option<AmqpError> {
        let text = |name| match self.property(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let description = text("statusDescription").unwrap_or_default();
        text("errorCondition").map(|condition| AmqpError::new(condition, description))
    }

    /// The body.
    #[must_use]
    pub const fn body(&self) -> &Map {
        &self.body
    }

    /// The maps of a list in the body; none if there is no such list.
    #[must_use]
    pub fn maps(&self, key: &str) -> Vec<Map> {
        let items = self.body.get(key).map(|raw| raw.raw_items().map(Iterator::collect));
        let items: Vec<Raw> = items.and_then(Result::ok).unwrap_or_default();
        items.into_iter().filter_map(|item| Map::from_raw(item).ok()).collect()
    }

    /// The numbers or instants of an array in the body; none if there is no such array.
    #[must_use]
    pub fn numbers(&self, key: &str) -> Vec<i64> {
        let Some(raw) = self.body.get(key) else { return Vec::new() };
        let Ok(items) = raw.items() else { return Vec::new() };
        let number = |item| match item {
            Ok(Scalar::I64(number) | Scalar::Timestamp(number)) => Some(number),
            _ => None,
        };
        items.filter_map(number).collect()
    }
}
