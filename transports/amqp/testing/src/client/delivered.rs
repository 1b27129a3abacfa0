//! The broker's part of a delivered message: its delivery count, its time to live and its
//! annotations (AMQP-56).

use bytes::Bytes;
use peeklock_words::amqp::{Reader, Scalar};
use peeklock_words::message::{Content, Value};

use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::error::AmqpError;

/// Positions of ttl and delivery-count in a header (AMQP 3.2.1).
const TTL: usize = 2;
const DELIVERY_COUNT: usize = 4;

/// A message from a delivery or a reply.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The message as received.
    pub content: Content,
    /// Number of failed deliveries.
    pub delivery_count: u32,
    /// Time to live in milliseconds from its enqueueing.
    pub time_to_live_ms: Option<u32>,
    annotations: Map,
}

impl Delivered {
    /// Reads a delivered message.
    ///
    /// # Errors
    /// For bytes that are not a message, or that lack a field of every delivery.
    pub fn read(message: Bytes) -> Result<Self, AmqpError> {
        let content = Content::parse(message)?;
        let mut header = Reader::new(content.sections().header);
        header.section()?;
        let (count, mut fields) = header.list()?;
        let (mut delivery_count, mut time_to_live_ms) = (0, None);
        for field in 0..count {
            match (field, fields.scalar()?) {
                (TTL, Scalar::U32(ttl)) => time_to_live_ms = Some(ttl),
                (DELIVERY_COUNT, Scalar::U32(failed)) => delivery_count = failed,
                _ => {}
            }
        }
        let mut annotations = Reader::new(content.sections().message_annotations);
        annotations.section()?;
        let rest = annotations.rest();
        let annotations = Map::from_raw(Raw::encoded(|bytes| bytes.extend_from_slice(rest)))?;
        Ok(Self { content, delivery_count, time_to_live_ms, annotations })
    }

    /// An annotation; none if it is missing.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<Value> {
        Value::decode(self.annotations.get(name)?.as_bytes()).ok()
    }

    /// Its sequence number.
    #[must_use]
    pub fn sequence_number(&self) -> Option<i64> {
        match self.annotation("x-opt-sequence-number")? {
            Value::I64(number) => Some(number),
            _ => None,
        }
    }
}
