//! Encoding of messages for clients: new sections of the broker before stored bytes (AMQP-45,
//! AMQP-56). Deliveries and peeks of the server call it.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Compound, Fields, Measure, Sink};
use peeklock_words::amqp::{Reader, Scalar, code, descriptor};
use peeklock_words::message::{Content, Overlay, PropertyChange, SettableProperty, ValueRef};

/// Data of the broker about a message. Each value is written in the type that clients expect
/// (AMQP-56).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamps<'a> {
    /// Number of earlier deliveries.
    pub delivery_count: u32,
    /// Time to live from the enqueueing, in milliseconds.
    pub time_to_live_ms: Option<u32>,
    /// Expiry, in milliseconds since 1970 (AMQ-18).
    pub expires_at_ms: Option<i64>,
    /// Sequence number in the entity.
    pub sequence_number: i64,
    /// Sequence number in the entity where the message first arrived, if it was moved since.
    pub enqueued_sequence_number: Option<i64>,
    /// Time of the enqueueing, in milliseconds since 1970.
    pub enqueued_at_ms: i64,
    /// End of the lock, in milliseconds since 1970.
    pub locked_until_ms: Option<i64>,
    /// State: 0 active, 1 deferred, 2 scheduled. An active message is sent without it.
    pub state: i32,
    /// End of the delay, in milliseconds since 1970.
    pub delayed_until_ms: Option<i64>,
    /// Entity in which the message was dead-lettered before it was forwarded.
    pub dead_letter_source: Option<&'a str>,
    /// Token of the lock, for clients that read it from the message (AMQP-54, AMQP-93).
    pub lock_token: Option<u128>,
    /// Whether the message is delivered, not only shown. Delivery annotations are then sent even if
    /// they are empty (AMQP-56).
    pub is_delivered: bool,
}

const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";
const PARTITION_KEY: &str = "x-opt-partition-key";
const VIA_PARTITION_KEY: &str = "x-opt-via-partition-key";
const DELAYED: &str = "x-opt-peeklock-delayed-until";

/// Empty section of delivery annotations.
const NO_DELIVERY_ANNOTATIONS: [u8; 6] =
    [code::DESCRIBED, code::SMALL_ULONG, descriptor::DELIVERY_ANNOTATIONS, code::MAP8, 1, 0];

/// Lock end of a message without a lock: the beginning of the year 1, in milliseconds since 1970.
pub const NO_LOCK_MS: i64 = -62_135_596_800_000;

/// Annotations that only the broker sets. Values from a sender are not passed on.
const OWNED: [&str; 8] = [
    "x-opt-sequence-number",
    "x-opt-enqueue-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-message-state",
    "x-opt-deadletter-source",
    "x-opt-lock-token",
    DELAYED,
];

/// Returns a message for a client in consecutive pieces: new sections, then the stored sections of
/// the content, which are not copied. `overlays`, oldest first, are later changes of properties. A
/// section is written new if an overlay may change it; the properties are also written new if the
/// message expires.
#[must_use]
pub fn encode(content: &Content, overlays: &[Overlay], stamps: &Stamps<'_>) -> Vec<Bytes> {
    let sections = content.sections();
    let mut head = Vec::with_capacity(256 + sections.message_annotations.len());
    header(&mut head, sections.header, stamps);
    let header_bytes = head.len();
    section(&mut head, descriptor::DELIVERY_ANNOTATIONS, |items| {
        let mut count = kept_annotations(items, sections.delivery_annotations, |_| false);
        if let Some(token) = stamps.lock_token {
            write::symbol(items, "x-opt-lock-token");
            write::fixed(items, code::UUID, token.to_be_bytes());
            count += 2;
        }
        count
    });
    if stamps.is_delivered && head.len() == header_bytes {
        head.put(&NO_DELIVERY_ANNOTATIONS);
    }
    annotations(&mut head, sections.message_annotations, overlays, stamps);
    let is_changed = !overlays.is_empty();
    let mut kept =
        [sections.properties, sections.application_properties, sections.body, sections.footer];
    if is_changed || stamps.expires_at_ms.is_some() {
        properties(&mut head, sections.properties, overlays, stamps);
        kept[0] = &[];
    }
    if is_changed {
        application_properties(&mut head, sections.application_properties, overlays);
        kept[1] = &[];
    }
    let whole = content.as_bytes();
    let mut footer = Vec::new();
    if entries_of(sections.footer).any(|(key, _)| is_text(key)) {
        kept[3] = &[];
        section(&mut footer, descriptor::FOOTER, |items| {
            entries_of(sections.footer).map(|(key, value)| annotation(items, key, value)).sum()
        });
    }
    let body_end = whole.len() - if footer.is_empty() { 0 } else { sections.footer.len() };
    let mut pieces = tail(head, &whole.slice(..body_end), kept);
    if !footer.is_empty() {
        pieces.push(footer.into());
    }
    pieces
}

/// Appends the stored sections after `head` without copying, if their descriptors have the form
/// that all clients read (AMQP-10); else copies them in that form. `whole` ends with the last
/// section.
fn tail(mut head: Vec<u8>, whole: &Bytes, kept: [&[u8]; 4]) -> Vec<Bytes> {
    let kept_bytes: usize = kept.iter().map(|section| section.len()).sum();
    if kept_bytes == 0 {
        return vec![head.into()];
    }
    if kept.iter().all(|section| is_plain(section)) {
        // They are the end of the content, so they form one piece.
        return vec![head.into(), whole.slice(whole.len() - kept_bytes..)];
    }
    for section in kept {
        plainly(&mut head, section);
    }
    vec![head.into()]
}

/// Returns whether all descriptors have the smallest form.
fn is_plain(sections: &[u8]) -> bool {
    let mut reader = Reader::new(sections);
    while !reader.is_empty() {
        let small = reader.rest().starts_with(&[code::DESCRIBED, code::SMALL_ULONG]);
        if !small || reader.section().is_err() || reader.raw().is_err() {
            return false;
        }
    }
    true
}

/// Copies sections with descriptors in their smallest form. Content was checked when it was stored,
/// so every section can be read.
fn plainly(head: &mut Vec<u8>, sections: &[u8]) {
    let mut reader = Reader::new(sections);
    while let (Ok(section), Ok(value)) = (reader.section(), reader.raw()) {
        head.put(&[code::DESCRIBED, code::SMALL_ULONG, section]);
        head.put(value);
    }
}

/// Writes a section that is a map, unless it has no entries. The size of a small one is filled in
/// afterwards.
fn section(head: &mut Vec<u8>, descriptor: u8, write: impl FnOnce(&mut Vec<u8>) -> usize) {
    let start = head.len();
    head.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor, code::MAP8, 0, 0]);
    let items_at = head.len();
    let count = write(head);
    if count == 0 {
        return head.truncate(start);
    }
    let items_bytes = head.len() - items_at;
    let place = head.get_mut(items_at - 2..items_at);
    match (u8::try_from(items_bytes + 1), u8::try_from(count), place) {
        (Ok(size), Ok(count), Some(place)) => place.copy_from_slice(&[size, count]),
        _ => {
            let mut begin = Vec::new();
            write::compound(&mut begin, Compound::Map, items_bytes, count);
            head.splice(items_at - 3..items_at, begin);
        }
    }
}

/// Returns the encoded fields of a section that is a list.
pub(crate) fn fields_of(section: &[u8]) -> Vec<&[u8]> {
    let mut reader = Reader::new(section);
    let Ok((count, mut fields)) = reader.section().and_then(|_| reader.list()) else {
        return Vec::new();
    };
    (0..count).map_while(|_| fields.raw().ok()).collect()
}

/// Returns the encoded entries of a section that is a map.
fn entries_of(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(section);
    let mut items = match reader.section().and_then(|_| reader.map()) {
        Ok((_, items)) => items,
        Err(_) => Reader::new(&[]),
    };
    std::iter::from_fn(move || Some((items.raw().ok()?, items.raw().ok()?)))
}

fn is_null(value: &[u8]) -> bool {
    value == [code::NULL]
}

/// Returns whether a key is text, which annotations do not allow (AMQP 3.2.10).
fn is_text(key: &[u8]) -> bool {
    matches!(Reader::new(key).scalar(), Ok(Scalar::Text(_)))
}

/// Writes an annotation. A text key becomes a symbol: some clients cannot read another key, and
/// would fail at each delivery.
fn annotation(items: &mut Vec<u8>, key: &[u8], value: &[u8]) -> usize {
    match Reader::new(key).scalar() {
        Ok(Scalar::Text(name)) => write::symbol(items, name),
        _ => items.put(key),
    }
    items.put(value);
    2
}

/// Writes the annotations of a sender, except the broker's own and replaced ones.
fn kept_annotations(items: &mut Vec<u8>, kept: &[u8], is_replaced: impl Fn(&str) -> bool) -> usize {
    let mut count = 0;
    for (key, value) in entries_of(kept) {
        let name = match Reader::new(key).scalar() {
            Ok(Scalar::Symbol(name) | Scalar::Text(name)) => name,
            _ => "",
        };
        // Some clients fail on a null where they expect a value.
        let is_void = is_null(value) && name.starts_with("x-opt-");
        if is_void || OWNED.contains(&name) || is_replaced(name) {
            continue;
        }
        let typed = typed(name, value);
        count += annotation(items, key, typed.as_deref().unwrap_or(value));
    }
    count
}

/// Returns the value of an annotation of a sender in the type that clients expect (AMQP-56); `None`
/// if it already has that type or cannot be converted.
fn typed(name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let mut encoded = Vec::new();
    match (name, Reader::new(value).scalar().ok()?) {
        (PARTITION_KEY | VIA_PARTITION_KEY, Scalar::Symbol(text)) => {
            write::text(&mut encoded, text)
        }
        (PARTITION_KEY | VIA_PARTITION_KEY, Scalar::Binary(bytes)) => {
            write::text(&mut encoded, std::str::from_utf8(bytes).ok()?);
        }
        (SCHEDULED, Scalar::I64(at_ms)) => write::timestamp(&mut encoded, at_ms),
        (SCHEDULED, Scalar::I32(at_ms)) => write::timestamp(&mut encoded, at_ms.into()),
        (SCHEDULED, Scalar::U64(at_ms)) => {
            write::timestamp(&mut encoded, i64::try_from(at_ms).ok()?);
        }
        _ => return None,
    }
    Some(encoded)
}

/// Writes a list of encoded fields.
fn list(head: &mut Vec<u8>, descriptor: u8, values: &[Option<&[u8]>]) {
    let put = |sink: &mut Measure, value: &[u8]| sink.put(value);
    let mut measure = Measure::default();
    let mut fields = Fields::new(&mut measure);
    for value in values {
        fields.field(*value, put);
    }
    let count = fields.count();
    head.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor]);
    write::compound(head, Compound::List, measure.bytes, count);
    let mut fields = Fields::new(head);
    for value in values {
        fields.field(*value, |sink, value| sink.put(value));
    }
}

/// Writes the header, which every message has. The sender sets durable and priority, and
/// first-acquirer for the first delivery. The broker sets the rest.
fn header(head: &mut Vec<u8>, kept: &[u8], stamps: &Stamps<'_>) {
    let kept = fields_of(kept);
    let kept = |field: usize| kept.get(field).copied().filter(|value| !is_null(value));
    let mut numbers = Vec::with_capacity(10);
    if let Some(milliseconds) = stamps.time_to_live_ms {
        write::uint(&mut numbers, milliseconds);
    }
    let ttl_bytes = numbers.len();
    write::uint(&mut numbers, stamps.delivery_count);
    let (ttl, count) = numbers.split_at(ttl_bytes);
    let ttl = (!ttl.is_empty()).then_some(ttl);
    let first_acquirer = kept(3).filter(|_| stamps.delivery_count == 0);
    list(head, descriptor::HEADER, &[kept(0), kept(1), ttl, first_acquirer, Some(count)]);
}

fn annotations(head: &mut Vec<u8>, kept: &[u8], overlays: &[Overlay], stamps: &Stamps<'_>) {
    let partition_key = changed(overlays, SettableProperty::PartitionKey);
    let scheduled = changed(overlays, SettableProperty::ScheduledEnqueueTimeUtc);
    section(head, descriptor::MESSAGE_ANNOTATIONS, |items| {
        let mut count = kept_annotations(items, kept, |name| {
            (name == SCHEDULED && scheduled.is_some())
                || (name == PARTITION_KEY && partition_key.is_some())
        });
        if let Some(ValueRef::String(key)) = partition_key {
            write::symbol(items, PARTITION_KEY);
            write::text(items, key);
            count += 2;
        }
        if let Some(ValueRef::Timestamp(at_ms)) = scheduled {
            write::symbol(items, SCHEDULED);
            write::timestamp(items, at_ms);
            count += 2;
        }
        count + stamp(items, stamps)
    });
}

/// Writes the annotations of the broker, in types of full width.
fn stamp(items: &mut Vec<u8>, stamps: &Stamps<'_>) -> usize {
    let mut count = 0;
    let mut put = |name: &str, write: &dyn Fn(&mut Vec<u8>)| {
        write::symbol(items, name);
        write(items);
        count += 2;
    };
    let long = |value: i64| {
        move |items: &mut Vec<u8>| write::fixed(items, code::LONG, value.to_be_bytes())
    };
    let instant = |value: i64| move |items: &mut Vec<u8>| write::timestamp(items, value);
    put("x-opt-sequence-number", &long(stamps.sequence_number));
    if let Some(number) = stamps.enqueued_sequence_number {
        put("x-opt-enqueue-sequence-number", &long(number));
    }
    put("x-opt-enqueued-time", &instant(stamps.enqueued_at_ms));
    if let Some(until) = stamps.locked_until_ms {
        put("x-opt-locked-until", &instant(until));
    }
    if let Some(until) = stamps.delayed_until_ms {
        put(DELAYED, &instant(until));
    }
    if stamps.state != 0 {
        let state = stamps.state.to_be_bytes();
        put("x-opt-message-state", &|items| write::fixed(items, code::INT, state));
    }
    if let Some(path) = stamps.dead_letter_source {
        put("x-opt-deadletter-source", &|items| write::text(items, path));
    }
    count
}

/// Returns the value that overlays set for a property of the broker; `None` if none sets it.
fn changed<'a>(overlays: &'a [Overlay], wanted: SettableProperty) -> Option<ValueRef<'a>> {
    overlays.iter().rev().find_map(|overlay| {
        overlay.changes().find_map(|change| match change {
            PropertyChange::SetBroker(property, value) if property == wanted => Some(value),
            _ => None,
        })
    })
}

/// Positions of changeable properties in the list of the standard (AMQP 3.2.4).
const PLACES: [(usize, SettableProperty); 8] = [
    (0, SettableProperty::MessageId),
    (2, SettableProperty::To),
    (3, SettableProperty::Subject),
    (4, SettableProperty::ReplyTo),
    (5, SettableProperty::CorrelationId),
    (6, SettableProperty::ContentType),
    (10, SettableProperty::SessionId),
    (12, SettableProperty::ReplyToSessionId),
];

/// Positions of the expiry and the creation time, and the number of positions.
const ABSOLUTE_EXPIRY_TIME: usize = 8;
const CREATION_TIME: usize = 9;
const PLACE_COUNT: usize = 13;
/// The instant of 1970. It stands for an unknown creation time where only the distance to the
/// expiry counts (AMQ-19).
const NO_INSTANT: [u8; 9] = [code::TIMESTAMP, 0, 0, 0, 0, 0, 0, 0, 0];

fn properties(head: &mut Vec<u8>, kept: &[u8], overlays: &[Overlay], stamps: &Stamps<'_>) {
    let instant = |at_ms: i64| {
        let mut encoded = Vec::with_capacity(NO_INSTANT.len());
        write::timestamp(&mut encoded, at_ms);
        encoded
    };
    let enqueued_at = instant(stamps.enqueued_at_ms);
    let texts = PLACES.map(|(place, property)| {
        let value = changed(overlays, property)?;
        let mut encoded = Vec::new();
        if let ValueRef::String(text) = value {
            match property {
                SettableProperty::ContentType => write::symbol(&mut encoded, text),
                _ => write::text(&mut encoded, text),
            }
        }
        Some((place, encoded))
    });
    let mut fields: Vec<Option<&[u8]>> =
        fields_of(kept).into_iter().map(|value| (!is_null(value)).then_some(value)).collect();
    fields.resize(PLACE_COUNT, None);
    // The SDKs compute the time to live as the difference of the two. The creation time may come
    // from another clock.
    let made_at_ms = fields.get(CREATION_TIME).copied().flatten().and_then(instant_of);
    let made_at_ms = made_at_ms.filter(|made_at_ms| *made_at_ms != 0);
    let expires_at = stamps.expires_at_ms.map(|expires_at_ms| {
        let made_at_ms = made_at_ms.unwrap_or(stamps.enqueued_at_ms);
        let left_ms = expires_at_ms.saturating_sub(stamps.enqueued_at_ms);
        instant(made_at_ms.saturating_add(left_ms))
    });
    if let (Some(at), Some(field)) = (&expires_at, fields.get_mut(ABSOLUTE_EXPIRY_TIME)) {
        *field = Some(at);
        // A longer time to live than the header can hold is reported only by this distance
        // (AMQ-19).
        let is_long = stamps.time_to_live_ms == Some(u32::MAX);
        let is_void = |made_at: &Option<&[u8]>| {
            *made_at == Some(&NO_INSTANT) || (is_long && made_at.is_none())
        };
        if let Some(field) = fields.get_mut(CREATION_TIME).filter(|made_at| is_void(made_at)) {
            *field = Some(&enqueued_at);
        }
    }
    for (place, encoded) in texts.iter().flatten() {
        if let Some(field) = fields.get_mut(*place) {
            *field = (!encoded.is_empty()).then_some(&encoded[..]);
        }
    }
    if fields.iter().any(Option::is_some) {
        list(head, descriptor::PROPERTIES, &fields);
    }
}

/// Returns the milliseconds of an encoded instant.
fn instant_of(value: &[u8]) -> Option<i64> {
    let (&code::TIMESTAMP, ms) = value.split_first()? else { return None };
    Some(i64::from_be_bytes(ms.try_into().ok()?))
}

/// Writes the application properties: first the sender's in their order with changed values, then
/// new ones.
fn application_properties(head: &mut Vec<u8>, kept: &[u8], overlays: &[Overlay]) {
    let Some(set) = Overlay::combine(overlays) else {
        return;
    };
    let changes: Vec<_> = set
        .changes()
        .filter_map(|change| match change {
            PropertyChange::Set(key, value) => Some((key, Some(value))),
            PropertyChange::Remove(key) => Some((key, None)),
            PropertyChange::SetBroker(..) => None,
        })
        .collect();
    // Both lists may have thousands of entries: each is read once.
    let mut places = BTreeMap::new();
    for (place, (key, _)) in changes.iter().enumerate() {
        places.entry(*key).or_insert(place);
    }
    let mut done = vec![false; changes.len()];
    section(head, descriptor::APPLICATION_PROPERTIES, |items| {
        let mut count = 0;
        for (key, value) in entries_of(kept) {
            let name = match Reader::new(key).scalar() {
                Ok(Scalar::Symbol(name) | Scalar::Text(name)) => Some(name),
                _ => None,
            };
            let change = name.and_then(|name| places.get(name).copied());
            let encoded = match change.and_then(|at| changes.get(at)) {
                None => value.to_vec(),
                Some((_, None)) => Vec::new(),
                Some((_, Some(value))) => encoded(*value),
            };
            if let Some(done) = change.and_then(|at| done.get_mut(at)) {
                *done = true;
            }
            if !encoded.is_empty() {
                items.put(key);
                items.put(&encoded);
                count += 2;
            }
        }
        for ((key, value), done) in changes.iter().zip(done) {
            if let (Some(value), false) = (value, done) {
                write::text(items, key);
                items.put(&encoded(*value));
                count += 2;
            }
        }
        count
    });
}

fn encoded(value: ValueRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.to_value().encode_to(&mut bytes);
    bytes
}
