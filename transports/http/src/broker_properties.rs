//! Broker properties as one JSON object, in both directions (HTP-03, HTP-04). `data.rs` and the
//! JSON API use it.

use std::fmt;

use actix_web::http::header::HeaderValue;
use peeklock_core::command::{MessageFacts, MessageState};
use peeklock_core::message::{Message, MessageId};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_json::StateName;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::Refusal;

/// Properties that a sender may set. Unknown names, and names that only the broker sets, are
/// ignored (MSG-11).
#[derive(Debug, Default)]
pub(crate) struct BrokerProperties {
    message_id: Option<String>,
    session_id: Option<String>,
    partition_key: Option<String>,
    transaction_partition_key: Option<String>,
    reply_to_session_id: Option<String>,
    correlation_id: Option<String>,
    content_type: Option<String>,
    subject: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    time_to_live: Option<TimeSpan>,
    scheduled_enqueue_time: Option<Timestamp>,
    force_persistence: Option<bool>,
}

impl BrokerProperties {
    /// Reads the header.
    pub(crate) fn parse(header: &HeaderValue) -> Result<Self, Refusal> {
        serde_json::from_slice(header.as_bytes())
            .map_err(|error| Refusal::parser("the header BrokerProperties", &error))
    }

    /// Copies the given properties to a message.
    pub(crate) fn apply_to(self, message: &mut Message) {
        message.message_id = self.message_id.map(MessageId::String);
        message.session_id = self.session_id;
        message.partition_key = self.partition_key;
        message.transaction_partition_key = self.transaction_partition_key;
        message.reply_to_session_id = self.reply_to_session_id;
        message.correlation_id = self.correlation_id.map(MessageId::String);
        message.content_type = self.content_type;
        message.subject = self.subject;
        message.to = self.to;
        message.reply_to = self.reply_to;
        message.time_to_live = self.time_to_live;
        message.scheduled_enqueue_time = self.scheduled_enqueue_time;
        message.force_persistence = self.force_persistence.unwrap_or_default();
    }
}

impl<'de> Deserialize<'de> for BrokerProperties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PropertiesVisitor)
    }
}

struct PropertiesVisitor;

impl<'de> Visitor<'de> for PropertiesVisitor {
    type Value = BrokerProperties;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of broker properties")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = BrokerProperties::default();
        while let Some(name) = map.next_key::<String>()? {
            let name = name.as_str();
            match name {
                "MessageId" => read.message_id = value(&mut map, name)?,
                "SessionId" => read.session_id = value(&mut map, name)?,
                "PartitionKey" => read.partition_key = value(&mut map, name)?,
                "TransactionPartitionKey" | "ViaPartitionKey" => {
                    read.transaction_partition_key = value(&mut map, name)?;
                }
                "ReplyToSessionId" => read.reply_to_session_id = value(&mut map, name)?,
                "CorrelationId" => read.correlation_id = value(&mut map, name)?,
                "ContentType" => read.content_type = value(&mut map, name)?,
                "Subject" | "Label" => read.subject = value(&mut map, name)?,
                "To" => read.to = value(&mut map, name)?,
                "ReplyTo" => read.reply_to = value(&mut map, name)?,
                "ForcePersistence" => read.force_persistence = value(&mut map, name)?,
                "TimeToLive" => {
                    let seconds: Option<f64> = value(&mut map, name)?;
                    read.time_to_live =
                        convert(seconds, name, "zero or more seconds", |&seconds| {
                            TimeSpan::from_seconds_f64(seconds)
                        })?;
                }
                "TimeToLiveTimeSpan" => {
                    let text: Option<String> = value(&mut map, name)?;
                    read.time_to_live =
                        convert(text, name, "[d.]hh:mm:ss", |text| parse_time_span(text))?;
                }
                "ScheduledEnqueueTimeUtc" => {
                    let text: Option<String> = value(&mut map, name)?;
                    let expected = "a date of RFC 1123 or ISO 8601";
                    read.scheduled_enqueue_time =
                        convert(text, name, expected, |text| parse_instant(text))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(read)
    }
}

/// Reads a value, or none for null; a refusal names the property.
fn value<'de, A: MapAccess<'de>, T: DeserializeOwned>(
    map: &mut A,
    name: &str,
) -> Result<Option<T>, A::Error> {
    map.next_value().map_err(|error| serde::de::Error::custom(format!("{name}: {error}")))
}

fn convert<T, U, E: serde::de::Error>(
    given: Option<T>,
    name: &str,
    expected: &str,
    read: impl Fn(&T) -> Option<U>,
) -> Result<Option<U>, E> {
    let Some(given) = given else { return Ok(None) };
    match read(&given) {
        Some(value) => Ok(Some(value)),
        None => Err(E::custom(format!("{name}: expected {expected}"))),
    }
}

/// Writes the header of a delivered message; ASCII only, for clients that read headers as Latin-1.
pub(crate) fn write(
    message: &Message,
    facts: &MessageFacts,
    dead_letter_source: Option<&str>,
) -> String {
    let mut object = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(name.to_owned(), value);
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let id = |id: &Option<MessageId>| id.as_ref().map(|id| Value::from(id.to_string()));
    set("MessageId", id(&message.message_id));
    set("SessionId", text(&message.session_id));
    set("PartitionKey", text(&message.partition_key));
    set("TransactionPartitionKey", text(&message.transaction_partition_key));
    set("ReplyToSessionId", text(&message.reply_to_session_id));
    set("CorrelationId", id(&message.correlation_id));
    set("ContentType", text(&message.content_type));
    set("Subject", text(&message.subject));
    set("Label", text(&message.subject));
    set("To", text(&message.to));
    set("ReplyTo", text(&message.reply_to));
    set("ForcePersistence", message.force_persistence.then_some(Value::Bool(true)));
    set("TimeToLive", facts.time_to_live.map(|span| Value::from(span.as_seconds_f64())));
    set(
        "ScheduledEnqueueTimeUtc",
        message.scheduled_enqueue_time.map(|at| Value::from(at.to_rfc1123())),
    );
    set("SequenceNumber", Some(Value::from(facts.sequence.0)));
    set("EnqueuedSequenceNumber", Some(Value::from(facts.enqueued_sequence.0)));
    set("EnqueuedTimeUtc", Some(Value::from(facts.enqueued_at.to_rfc1123())));
    set("ExpiresAtUtc", facts.expires_at.map(|at| Value::from(at.to_rfc1123())));
    set("DeliveryCount", Some(Value::from(facts.shown_delivery_count())));
    // Clients of this form know three states (RTY-12).
    let state = match facts.state {
        MessageState::Delayed => StateName::Active,
        state => state.into(),
    };
    set("State", Some(Value::from(state.text())));
    set("Size", Some(Value::from(facts.size)));
    set("DeadLetterSource", dead_letter_source.map(Value::from));
    set("LockToken", facts.lock.map(|lock| Value::from(lock.token.to_string())));
    set("LockedUntilUtc", facts.lock.map(|lock| Value::from(lock.until.to_rfc1123())));
    ascii(&Value::Object(object))
}

/// Writes the header that answers a renewal.
pub(crate) fn write_renewed(until: Timestamp) -> String {
    ascii(&serde_json::json!({ "LockedUntilUtc": until.to_rfc1123() }))
}

/// Writes JSON in printable ASCII characters only.
fn ascii(value: &Value) -> String {
    let mut ascii = String::new();
    let mut units = [0; 2];
    for character in value.to_string().chars() {
        if (' '..='~').contains(&character) {
            ascii.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut units) {
            ascii.push_str(&format!("\\u{unit:04x}"));
        }
    }
    ascii
}

/// Reads an RFC 1123 date or an ISO 8601 instant.
pub(crate) fn parse_instant(text: &str) -> Option<Timestamp> {
    Timestamp::parse_rfc1123(text).or_else(|| Timestamp::parse(text))
}

/// Reads a duration as .NET writes it: `[d.]hh:mm:ss[.fffffff]`.
pub(crate) fn parse_time_span(text: &str) -> Option<TimeSpan> {
    let mut parts = text.split(':');
    let (first, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (days, hours) = first.split_once('.').unwrap_or(("0", first));
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    if fraction.len() > 7 {
        return None;
    }
    let ticks_of_fraction = number(fraction, i64::MAX)?
        .checked_mul(10_i64.pow(7_u32.saturating_sub(u32::try_from(fraction.len()).ok()?)))?;
    let minutes_in_all = number(days, 10_675_199)?
        .checked_mul(24)?
        .checked_add(number(hours, 23)?)?
        .checked_mul(60)?
        .checked_add(number(minutes, 59)?)?;
    let seconds_in_all = minutes_in_all.checked_mul(60)?.checked_add(number(seconds, 59)?)?;
    let ticks = seconds_in_all.checked_mul(10_000_000)?.checked_add(ticks_of_fraction)?;
    Some(TimeSpan::from_ticks(ticks))
}

fn number(digits: &str, most: i64) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number <= most)
}
