//! Conversion of a message to a CloudEvent 1.0 (<https://github.com/cloudevents/spec>, HTTP binding
//! 1.0.2, JSON format 1.0.2). `route.rs` posts the event. No property of a message can break the
//! headers or the JSON.
//!
//! A message that already is a CloudEvent by the AMQP binding is forwarded as that event: with
//! properties named `cloudEvents:id` and so on, or with a body of type
//! `application/cloudevents+json`. Any other message is wrapped in a new event.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::contract::{Outgoing, Source};
use peeklock_core::message::{DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Message, Value};
use peeklock_core::time::Timestamp;
use serde_json::value::RawValue;

use crate::target::{Mode, Target};

/// Maximum length of the `type` in a destination, in characters.
pub const TEXT_CHARS_MAX: usize = 256;
/// Default of `type` if neither the message nor the destination sets it.
const DEFAULT_TYPE: &str = "io.github.peeklock.message";
/// Maximum length of an extension name in bytes, as the standard recommends.
const NAME_BYTES_MAX: usize = 20;
/// Attribute names that application properties may not set.
const RESERVED: [&str; 10] = [
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    "data",
    "datacontentencoding",
];
/// Prefixes of attribute names in the properties of an AMQP message.
const AMQP_PREFIXES: [&str; 2] = ["cloudEvents:", "cloudEvents_"];
/// Media type of a body that is an event.
const EVENT_TYPE: &str = "application/cloudevents";

/// Content of the request.
#[derive(Debug)]
pub struct Event {
    /// Headers in addition to the usual HTTP headers.
    pub headers: Vec<(String, String)>,
    /// The header `Content-Type`.
    pub content_type: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// Value of an attribute, in the types of CloudEvents.
#[derive(Clone, PartialEq, Debug)]
enum Attribute {
    Boolean(bool),
    Integer(i32),
    /// String, URI, URI-reference and Timestamp, which have the same form.
    Text(String),
    Binary(Bytes),
}

impl Event {
    /// Converts a message to an event in the mode of the destination.
    pub fn of(outgoing: &Outgoing, message: &Message, source: &Source, target: &Target) -> Self {
        let body = message.body.as_bytes().clone();
        let is_event = message
            .content_type
            .as_deref()
            .is_some_and(|text| starts_with_ignoring_case(text, EVENT_TYPE));
        if is_event {
            return Self {
                headers: Vec::new(),
                content_type: header_text(message.content_type.as_deref()),
                body,
            };
        }
        let attributes = Attributes::of(outgoing, message, source, target);
        match target.mode {
            Mode::Binary => Self {
                headers: attributes.headers(),
                content_type: header_text(message.content_type.as_deref()),
                body,
            },
            Mode::Structured => Self {
                headers: Vec::new(),
                content_type: Some("application/cloudevents+json; charset=utf-8".to_owned()),
                body: attributes.json(message.content_type.as_deref(), &body).into(),
            },
        }
    }
}

/// Attributes in the order in which they were added. Names are unique.
struct Attributes(Vec<(String, Attribute)>);

impl Attributes {
    fn of(outgoing: &Outgoing, message: &Message, source: &Source, target: &Target) -> Self {
        let mut all = Self(vec![("specversion".to_owned(), Attribute::Text("1.0".to_owned()))]);
        if !all.take_event(message) {
            all.make_event(outgoing, message, source, target);
        }
        all.describe(outgoing, message);
        for (name, value) in &message.application_properties {
            if is_extension_name(name)
                && let Some(value) = attribute(value)
            {
                all.add(name, value);
            }
        }
        all
    }

    /// Adds an attribute unless the name is taken.
    fn add(&mut self, name: &str, value: Attribute) {
        if self.0.iter().all(|(taken, _)| taken != name) {
            self.0.push((name.to_owned(), value));
        }
    }

    fn text(&mut self, name: &str, text: Option<impl Into<String>>) {
        let Some(text) = text.map(Into::into).filter(|text| is_text(text)) else { return };
        self.add(name, Attribute::Text(text));
    }

    /// Copies the attributes of a message that is an event by the AMQP binding. Returns whether it
    /// is.
    fn take_event(&mut self, message: &Message) -> bool {
        let named = |(key, value): &(String, Value)| {
            let name = AMQP_PREFIXES.iter().find_map(|prefix| key.strip_prefix(prefix))?;
            Some((name.to_owned(), attribute(value)?))
        };
        let given: Vec<(String, Attribute)> =
            message.application_properties.iter().filter_map(named).collect();
        let text = |wanted: &str| {
            given.iter().find_map(|(name, value)| match value {
                Attribute::Text(text) if name == wanted && !text.is_empty() => Some(text.as_str()),
                _ => None,
            })
        };
        let is_event = text("specversion") == Some("1.0")
            && ["id", "source", "type"].iter().all(|name| text(name).is_some());
        if is_event {
            for (name, value) in given {
                let is_ours = ["specversion", "datacontenttype", "data"].contains(&name.as_str());
                let is_name = RESERVED.contains(&name.as_str()) || is_extension_name(&name);
                if is_name && !is_ours {
                    self.add(&name, value);
                }
            }
        }
        is_event
    }

    /// Adds the required attributes for a message that is not an event yet.
    fn make_event(
        &mut self,
        outgoing: &Outgoing,
        message: &Message,
        source: &Source,
        target: &Target,
    ) {
        let id = message.message_id.as_ref().map(ToString::to_string);
        let id =
            id.filter(|id| is_text(id)).unwrap_or_else(|| outgoing.facts.sequence.0.to_string());
        self.add("id", Attribute::Text(id));
        self.add("source", Attribute::Text(source_uri(source)));
        let event_type = target.event_type.as_deref().unwrap_or(DEFAULT_TYPE);
        self.add("type", Attribute::Text(event_type.to_owned()));
        self.text("subject", message.subject.as_deref());
        self.text("time", Some(outgoing.facts.enqueued_at.to_string()));
    }

    /// Adds the broker's own properties of the message.
    fn describe(&mut self, outgoing: &Outgoing, message: &Message) {
        let facts = &outgoing.facts;
        let number = |number: u64| (number > 0).then(|| number.to_string());
        self.text("sequencenumber", number(facts.sequence.0));
        self.text("enqueuedsequence", number(facts.enqueued_sequence.0));
        self.text("sessionid", message.session_id.as_deref());
        self.text("correlationid", message.correlation_id.as_ref().map(ToString::to_string));
        self.text("partitionkey", message.partition_key.as_deref());
        self.text("to", message.to.as_deref());
        self.text("replyto", message.reply_to.as_deref());
        self.text("replytosessionid", message.reply_to_session_id.as_deref());
        let expires_at = facts.expires_at.filter(|at| !at.is_never());
        self.text("expirytime", expires_at.map(|at| at.to_string()));
        let count = i32::try_from(facts.delivery_count).unwrap_or(i32::MAX);
        self.add("deliverycount", Attribute::Integer(count));
        self.add("hopcount", Attribute::Integer(outgoing.hops.into()));
        self.text("deadlettersource", outgoing.dead_letter_source.as_deref());
        for (name, key) in [
            ("deadletterreason", DEAD_LETTER_REASON),
            ("deadletterdetail", DEAD_LETTER_ERROR_DESCRIPTION),
        ] {
            if let Some(Value::String(text)) = message.application_property(key) {
                self.text(name, Some(text.as_str()));
            }
        }
    }

    /// Returns one header per attribute, for binary mode.
    fn headers(&self) -> Vec<(String, String)> {
        let header = |(name, value): &(String, Attribute)| {
            (format!("ce-{name}"), percent_encoded(&value.to_text()))
        };
        self.0.iter().map(header).collect()
    }

    /// Returns one JSON object, for structured mode. A valid JSON body is embedded byte for byte.
    fn json(&self, content_type: Option<&str>, body: &Bytes) -> Vec<u8> {
        let mut object = serde_json::Map::new();
        for (name, value) in &self.0 {
            object.insert(name.clone(), value.to_json());
        }
        if let Some(text) = content_type.filter(|text| is_text(text)) {
            object.insert("datacontenttype".to_owned(), text.into());
        }
        let mut json = serde_json::Value::Object(object).to_string().into_bytes();
        // Remove the closing brace, to append the data.
        json.pop();
        if !body.is_empty() {
            let as_json = || {
                let is_json = content_type.is_some_and(is_json);
                is_json.then(|| serde_json::from_slice::<&RawValue>(body).ok()).flatten()
            };
            let as_text = || {
                let is_text = content_type.is_some_and(is_utf8_text);
                is_text.then(|| std::str::from_utf8(body).ok()).flatten()
            };
            if let Some(data) = as_json() {
                json.extend_from_slice(b",\"data\":");
                json.extend_from_slice(data.get().as_bytes());
            } else if let Some(data) = as_text() {
                json.extend_from_slice(b",\"data\":");
                json.extend_from_slice(serde_json::Value::from(data).to_string().as_bytes());
            } else {
                json.extend_from_slice(b",\"data_base64\":\"");
                json.extend_from_slice(STANDARD.encode(body).as_bytes());
                json.push(b'"');
            }
        }
        json.push(b'}');
        json
    }
}

impl Attribute {
    /// Returns the canonical text form.
    fn to_text(&self) -> String {
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Text(text) => text.clone(),
            Self::Binary(bytes) => STANDARD.encode(bytes),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Boolean(value) => (*value).into(),
            Self::Integer(value) => (*value).into(),
            Self::Text(_) | Self::Binary(_) => self.to_text().into(),
        }
    }
}

/// Returns the `source`: the broker and the path of the entity. All characters of a path are
/// permitted in a URI.
fn source_uri(source: &Source) -> String {
    let (high, low) = (source.broker >> 64, source.broker & u128::from(u64::MAX));
    let uuid = format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    );
    format!("peeklock://{uuid}/{}{}", source.path, source.sub_queue.suffix())
}

/// Converts a property if CloudEvents has its type: booleans, integers of 32 bits, texts, UUIDs,
/// URIs, timestamps, bytes. Null, larger or fractional numbers and durations have no counterpart
/// and are omitted.
fn attribute(value: &Value) -> Option<Attribute> {
    let integer = |number: Option<i32>| number.map(Attribute::Integer);
    let text = |text: String| is_text(&text).then_some(Attribute::Text(text));
    match value {
        Value::Bool(value) => Some(Attribute::Boolean(*value)),
        Value::I8(number) => integer(Some((*number).into())),
        Value::I16(number) => integer(Some((*number).into())),
        Value::I32(number) => integer(Some(*number)),
        Value::I64(number) => integer(i32::try_from(*number).ok()),
        Value::U8(number) => integer(Some((*number).into())),
        Value::U16(number) => integer(Some((*number).into())),
        Value::U32(number) => integer(i32::try_from(*number).ok()),
        Value::U64(number) => integer(i32::try_from(*number).ok()),
        Value::Char(letter) => text(letter.to_string()),
        Value::String(value) | Value::Uri(value) => text(value.clone()),
        Value::Uuid(uuid) => text(peeklock_core::message::MessageId::Uuid(*uuid).to_string()),
        Value::Timestamp(ms) => text(Timestamp::from_unix_ms(*ms).to_string()),
        Value::DateTimeOffset(ticks) => text(Timestamp::from_ticks(*ticks).to_string()),
        Value::Binary(bytes) => Some(Attribute::Binary(bytes.clone())),
        Value::Null | Value::F32(_) | Value::F64(_) | Value::Decimal128(_) | Value::TimeSpan(_) => {
            None
        }
    }
}

/// Returns whether a name is a valid extension name: 1 to 20 lower-case letters and digits, and not
/// reserved. (The underscore excludes `data_base64`.)
fn is_extension_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && !RESERVED.contains(&name)
}

/// Returns whether a text is not empty and has no characters that the CloudEvents type String
/// forbids.
fn is_text(text: &str) -> bool {
    let is_noncharacter = |letter: char| {
        let code = u32::from(letter);
        (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
    };
    !text.is_empty() && !text.chars().any(|letter| letter.is_control() || is_noncharacter(letter))
}

/// Percent-encodes a header value as in the HTTP binding (3.1.3.2): printable ASCII except space,
/// `"` and `%` is unchanged.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' => push_percent(&mut encoded, byte),
            b'!'..=b'~' => encoded.push(byte.into()),
            _ => push_percent(&mut encoded, byte),
        }
    }
    encoded
}

fn push_percent(text: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    text.push('%');
    for digit in [byte >> 4, byte & 15] {
        text.extend(DIGITS.get(usize::from(digit)));
    }
}

/// Returns a media type if it can be a header value.
fn header_text(text: Option<&str>) -> Option<String> {
    let text = text?.trim();
    let is_plain = !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    is_plain.then(|| text.to_owned())
}

/// Returns type and subtype in lower case, without parameters.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence.ends_with("/json") || essence.ends_with("+json")
}

/// Returns whether JSON can represent a text body: its charset is UTF-8, US-ASCII or absent.
fn is_utf8_text(media_type: &str) -> bool {
    let lower = media_type.to_ascii_lowercase();
    let charset = lower.split(';').skip(1).find_map(|parameter| {
        parameter.trim().strip_prefix("charset=").map(|name| name.trim_matches('"'))
    });
    let is_utf8 = charset.is_none_or(|name| ["utf-8", "us-ascii"].contains(&name));
    essence(media_type).starts_with("text/") && is_utf8
}

fn starts_with_ignoring_case(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests;
