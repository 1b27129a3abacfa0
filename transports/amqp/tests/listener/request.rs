//! Requests to management nodes, and their replies as bytes.

use bytes::Bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::performative::SenderSettleMode;
use peeklock_amqp::state::DeliveryState;
use peeklock_core::message::{Body, Content, Message, MessageId, Value};
use peeklock_words::amqp::{Reader, Scalar, descriptor};

use crate::client::Client;
use crate::types;

/// An encoded value.
pub fn value(value: impl Into<Value>) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.into().encode_to(&mut bytes);
    bytes
}

/// A map with string keys.
pub fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut items = Vec::new();
    for (key, encoded) in entries {
        items.extend(value(*key));
        items.extend(encoded);
    }
    compound(0xd1, entries.len() * 2, &items)
}

/// A list of encoded items.
pub fn list(items: &[Vec<u8>]) -> Vec<u8> {
    compound(0xd0, items.len(), &items.concat())
}

/// An array of values with the same constructor.
pub fn array<const N: usize>(constructor: u8, elements: &[[u8; N]]) -> Vec<u8> {
    let mut items = vec![constructor];
    items.extend(elements.concat());
    compound(0xf0, elements.len(), &items)
}

/// An array of lock tokens.
pub fn uuids(tokens: &[u128]) -> Vec<u8> {
    array(0x98, &tokens.iter().map(|token| token.to_be_bytes()).collect::<Vec<_>>())
}

/// An array of sequence numbers.
pub fn longs(numbers: &[i64]) -> Vec<u8> {
    array(0x81, &numbers.iter().map(|number| number.to_be_bytes()).collect::<Vec<_>>())
}

fn compound(code: u8, count: usize, items: &[u8]) -> Vec<u8> {
    let mut bytes = vec![code];
    bytes.extend(u32::try_from(items.len() + 4).unwrap().to_be_bytes());
    bytes.extend(u32::try_from(count).unwrap().to_be_bytes());
    bytes.extend(items);
    bytes
}

/// The reply to a request.
#[derive(Debug)]
pub struct Reply {
    pub content: Content,
}

impl Reply {
    pub fn property(&self, name: &str) -> Option<Value> {
        self.content.application_properties().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn status(&self) -> i32 {
        match self.property("statusCode") {
            Some(Value::I32(status)) => status,
            other => panic!("status is {other:?}"),
        }
    }

    pub fn condition(&self) -> String {
        assert!(matches!(self.property("statusDescription"), Some(Value::String(_))));
        match self.property("errorCondition") {
            Some(Value::String(condition)) => condition,
            other => panic!("condition is {other:?}"),
        }
    }

    /// Returns the body, which is a map.
    pub fn body(&self) -> Map {
        Map::from_raw(self.body_value()).unwrap()
    }

    fn body_value(&self) -> Raw {
        let body = self.content.sections().body;
        let mut reader = Reader::new(body);
        assert_eq!(reader.section().unwrap(), descriptor::VALUE);
        Raw::encoded(|bytes| bytes.extend_from_slice(reader.rest()))
    }

    /// Returns a value of the body.
    pub fn get(&self, key: &str) -> Raw {
        self.body().get(key).unwrap_or_else(|| panic!("{key} is not in the body"))
    }

    /// Returns the maps of a list in the body.
    pub fn maps(&self, key: &str) -> Vec<Map> {
        let raw = self.get(key);
        // A list, since some clients read no array here (AMQP-82).
        assert!(matches!(raw.as_bytes()[0], 0xc0 | 0xd0), "{key} is no list");
        raw.raw_items().unwrap().map(|item| Map::from_raw(item).unwrap()).collect()
    }

    /// Returns the messages in the body.
    pub fn messages(&self) -> Vec<Content> {
        let message = |map: &Map| match map.get("message").unwrap().scalar() {
            Ok(Scalar::Binary(bytes)) => Content::parse(Bytes::copy_from_slice(bytes)).unwrap(),
            other => panic!("message is {other:?}"),
        };
        self.maps("messages").iter().map(message).collect()
    }

    /// Returns the numbers of an array in the body.
    pub fn numbers(&self, key: &str) -> Vec<i64> {
        let raw = self.get(key);
        assert_eq!(raw.as_bytes()[0], 0xf0, "{key} is no array");
        let number = |item| match item {
            Ok(Scalar::I64(number) | Scalar::Timestamp(number)) => number,
            other => panic!("{other:?}"),
        };
        raw.items().unwrap().map(number).collect()
    }
}

/// An encoded request.
pub fn request(id: u64, operation: &str, properties: &[(&str, &str)], body: &[u8]) -> Content {
    let mut application_properties =
        vec![("operation".to_owned(), Value::String(operation.to_owned()))];
    for (name, text) in properties {
        application_properties.push(((*name).to_owned(), Value::String((*text).to_owned())));
    }
    let mut whole = vec![0x00, 0x53, 0x77];
    whole.extend_from_slice(body);
    let message = Message {
        message_id: Some(MessageId::Ulong(id)),
        reply_to: Some("client".to_owned()),
        body: Body::Value(whole.into()),
        application_properties,
        ..Message::default()
    };
    message.encode()
}

impl Client {
    /// Attaches both links of a management node, on this handle and the next one.
    pub async fn manager(&mut self, handle: u32, entity: &str) {
        let address = format!("{entity}/$management");
        self.sender(handle, &address).await.unwrap();
        self.receiver(handle + 1, &address, SenderSettleMode::Unsettled).await.unwrap();
        self.credit(handle + 1, 0, 100, false).await;
    }

    /// Sends a settled request to a management node and waits for the reply.
    pub async fn ask(
        &mut self,
        handle: u32,
        operation: &str,
        entries: &[(&str, Vec<u8>)],
    ) -> Reply {
        self.ask_with(handle, operation, &[], None, entries).await
    }

    /// Sends a settled request with more properties, and in a transaction; waits for the reply.
    pub async fn ask_with(
        &mut self,
        handle: u32,
        operation: &str,
        properties: &[(&str, &str)],
        state: Option<DeliveryState>,
        entries: &[(&str, Vec<u8>)],
    ) -> Reply {
        let operation = format!("com.microsoft:{operation}");
        let request = request(7, &operation, properties, &map(entries));
        self.send_in(handle, 0, true, state, request.as_bytes()).await;
        let (transfer, content) = self.message().await;
        assert_eq!(transfer.handle, handle + 1);
        assert_eq!(transfer.settled, Some(true));
        let correlation = content.decode().unwrap().correlation_id;
        assert_eq!(correlation, Some(MessageId::Ulong(7)), "the type of an id is kept");
        types::check(content.as_bytes());
        Reply { content }
    }
}
