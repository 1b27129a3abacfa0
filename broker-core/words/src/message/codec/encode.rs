//! Encodes a message in its canonical bytes. [`Message::encode`] calls it, and header sizes measure
//! with it.

use bytes::Bytes;

use super::write::{self, Compound, Fields, Measure, Sink};
use super::{Layout, annotation, code, descriptor};
use crate::message::{Body, Content, Message, Value};
use crate::time::TimeSpan;

/// A section's constructor: a described value with a descriptor below 256.
const SECTION_BYTES: usize = 3;

/// The encoding of a time to live (AMQ-19).
#[derive(Clone, Copy)]
struct Ttl {
    /// The header's field, in milliseconds.
    header: Option<u32>,
    /// Milliseconds between creation and expiry, if the header cannot hold the time to live.
    distance: Option<i64>,
}

/// Number of items of a list or map, and their bytes.
#[derive(Clone, Copy, Default)]
struct Items {
    count: usize,
    bytes: usize,
}

/// Encodes a message (MSG-25) into one buffer of the exact size.
pub(crate) fn encode(message: &Message) -> Content {
    let ttl = Ttl::of(message.time_to_live);
    let header = measure(|sink| header(sink, ttl));
    let annotations = measure(|sink| annotations(sink, message));
    let properties = measure(|sink| properties(sink, message, ttl));
    let application = measure(|sink| application_properties(sink, message));

    let annotations_at = header.section_bytes(Compound::List);
    let properties_at = annotations_at + annotations.section_bytes(Compound::Map);
    let application_at = properties_at + properties.section_bytes(Compound::List);
    let body_at = application_at + application.section_bytes(Compound::Map);
    let mut body_size = Measure::default();
    body(&mut body_size, &message.body);

    let mut bytes = Vec::with_capacity(body_at + body_size.bytes);
    if start(&mut bytes, descriptor::HEADER, Compound::List, header) {
        self::header(&mut bytes, ttl);
    }
    if start(&mut bytes, descriptor::MESSAGE_ANNOTATIONS, Compound::Map, annotations) {
        self::annotations(&mut bytes, message);
    }
    if start(&mut bytes, descriptor::PROPERTIES, Compound::List, properties) {
        self::properties(&mut bytes, message, ttl);
    }
    if start(&mut bytes, descriptor::APPLICATION_PROPERTIES, Compound::Map, application) {
        application_properties(&mut bytes, message);
    }
    body(&mut bytes, &message.body);
    let layout =
        Layout::new(annotations_at, annotations_at, properties_at, application_at, body_at);
    Content::new(Bytes::from(bytes), layout)
}

/// Number of bytes of a message before its body.
pub(crate) fn header_bytes(message: &Message) -> usize {
    let application = measure(|sink| application_properties(sink, message));
    broker_properties_bytes(message) + application.section_bytes(Compound::Map)
}

/// Number of bytes of the sections before the application properties.
pub(crate) fn broker_properties_bytes(message: &Message) -> usize {
    let ttl = Ttl::of(message.time_to_live);
    let header = measure(|sink| header(sink, ttl));
    let annotations = measure(|sink| annotations(sink, message));
    let properties = measure(|sink| properties(sink, message, ttl));
    header.section_bytes(Compound::List)
        + annotations.section_bytes(Compound::Map)
        + properties.section_bytes(Compound::List)
}

/// Number of bytes of a section of `count` application properties whose entries take `bytes`.
pub(crate) fn application_properties_bytes(count: usize, bytes: usize) -> usize {
    Items { count: 2 * count, bytes }.section_bytes(Compound::Map)
}

/// Number of bytes of the key of an application property.
pub(crate) fn text_bytes(key: &str) -> usize {
    let mut sink = Measure::default();
    write::text(&mut sink, key);
    sink.bytes
}

/// Number of bytes of the value of an application property.
pub(crate) fn value_bytes(value: &Value) -> usize {
    let mut sink = Measure::default();
    write::write_value(&mut sink, value);
    sink.bytes
}

impl Ttl {
    fn of(span: Option<TimeSpan>) -> Self {
        let Some(span) = span.filter(|span| !span.is_unlimited()) else {
            return Self { header: None, distance: None };
        };
        // A positive span stays positive. Zero is encoded differently from "not set", so that it is
        // refused.
        let milliseconds = span.as_ms().max(i64::from(span > TimeSpan::ZERO));
        match u32::try_from(milliseconds) {
            Ok(short) if short > 0 && short < u32::MAX => {
                Self { header: Some(short), distance: None }
            }
            _ => Self { header: Some(u32::MAX), distance: Some(milliseconds) },
        }
    }
}

impl Items {
    /// Number of bytes of a section of these items. An empty section is omitted.
    fn section_bytes(self, kind: Compound) -> usize {
        if self.count == 0 {
            return 0;
        }
        SECTION_BYTES + write::compound_bytes(kind, self.bytes, self.count)
    }
}

fn measure(write: impl FnOnce(&mut Measure) -> usize) -> Items {
    let mut sink = Measure::default();
    let count = write(&mut sink);
    Items { count, bytes: sink.bytes }
}

/// Starts a section and returns true, or returns false if it has no items.
fn start(sink: &mut impl Sink, descriptor: u8, kind: Compound, items: Items) -> bool {
    if items.count == 0 {
        return false;
    }
    sink.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor]);
    write::compound(sink, kind, items.bytes, items.count);
    true
}

fn header(sink: &mut impl Sink, ttl: Ttl) -> usize {
    let mut fields = Fields::new(sink);
    fields.field(None::<bool>, write::boolean); // durable
    fields.field(None::<u32>, write::uint); // priority
    fields.field(ttl.header, write::uint);
    fields.count()
}

fn annotations(sink: &mut impl Sink, message: &Message) -> usize {
    let mut count = 0;
    if let Some(at) = message.scheduled_enqueue_time {
        write::symbol(sink, annotation::SCHEDULED_ENQUEUE_TIME);
        write::timestamp(sink, at.unix_ms());
        count += 2;
    }
    if let Some(key) = &message.partition_key {
        write::symbol(sink, annotation::PARTITION_KEY);
        write::text(sink, key);
        count += 2;
    }
    if let Some(key) = &message.transaction_partition_key {
        write::symbol(sink, annotation::VIA_PARTITION_KEY);
        write::text(sink, key);
        count += 2;
    }
    if message.force_persistence {
        write::symbol(sink, annotation::FORCE_PERSISTENCE);
        write::boolean(sink, true);
        count += 2;
    }
    count
}

/// The fields of AMQP 3.2.4 in their order.
fn properties<S: Sink>(sink: &mut S, message: &Message, ttl: Ttl) -> usize {
    let text = |sink: &mut S, value: &String| write::text(sink, value);
    let symbol = |sink: &mut S, value: &String| write::symbol(sink, value);
    let mut fields = Fields::new(sink);
    fields.field(message.message_id.as_ref(), |sink, id| write::id(sink, id.borrow()));
    fields.field(None::<&[u8]>, write::binary); // user-id
    fields.field(message.to.as_ref(), text);
    fields.field(message.subject.as_ref(), text);
    fields.field(message.reply_to.as_ref(), text);
    fields.field(message.correlation_id.as_ref(), |sink, id| write::id(sink, id.borrow()));
    fields.field(message.content_type.as_ref(), symbol);
    fields.field(None, symbol); // content-encoding
    // Only the distance counts, so no clock is needed: creation is 1970.
    fields.field(ttl.distance, write::timestamp);
    fields.field(ttl.distance.map(|_| 0), write::timestamp);
    fields.field(message.session_id.as_ref(), text);
    fields.field(None::<u32>, write::uint); // group-sequence
    fields.field(message.reply_to_session_id.as_ref(), text);
    fields.count()
}

fn application_properties(sink: &mut impl Sink, message: &Message) -> usize {
    for (key, value) in &message.application_properties {
        write::text(sink, key);
        write::write_value(sink, value);
    }
    message.application_properties.len() * 2
}

fn body(sink: &mut impl Sink, body: &Body) {
    match body {
        Body::Data(bytes) => {
            sink.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::DATA]);
            write::binary(sink, bytes);
        }
        Body::Value(sections) | Body::Sequence(sections) => sink.put(sections),
    }
}
