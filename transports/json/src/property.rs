//! JSON forms of application property values, with their exact type (MSG-20).
//!
//! A plain boolean, string or null has its JSON type. A plain number is an i64 if it fits, a u64 if
//! it has no fraction, and otherwise an f64. `{"type": "uuid", "value": "..."}` has any type. A
//! value is written plain only if reading gives the same type back.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::ids::parse_guid;
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, json};

use crate::text::Guid;

/// Maximum number of properties: a header of 64 KiB has no room for more.
const PROPERTY_COUNT_MAX: usize = 16_384;

/// Application properties in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PropertyMap(
    /// Keys and values.
    pub Vec<(String, Value)>,
);

impl PropertyMap {
    /// Returns the properties, or none if there are no pairs.
    pub fn not_empty<N: Into<String>>(pairs: impl Iterator<Item = (N, Value)>) -> Option<Self> {
        let pairs: Vec<_> = pairs.map(|(name, value)| (name.into(), value)).collect();
        (!pairs.is_empty()).then_some(Self(pairs))
    }

    /// Returns the names and values.
    pub fn into_pairs<N: From<String>>(self) -> impl Iterator<Item = (N, Value)> {
        self.0.into_iter().map(|(name, value)| (name.into(), value))
    }
}

/// A value of an application property: plain, or with its type.
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[schema(as = PropertyValue)]
#[serde(untagged)]
pub enum PropertyValueSchema {
    /// A boolean, a string, a number or null.
    Plain(serde_json::Value),
    /// A value of exactly this type.
    Typed {
        /// One of null, bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, decimal128, char,
        /// string, uuid, timestamp, binary, uri, dateTimeOffset, timeSpan.
        #[serde(rename = "type")]
        kind: String,
        /// A number, or text: hexadecimal digits of a decimal128, a GUID, RFC 3339 (or an integer of
        /// milliseconds since 1970, of a dateTimeOffset ticks since year 1), Base64, ISO 8601 (or
        /// an integer of ticks), `NaN`, `Infinity`, `-Infinity`.
        value: serde_json::Value,
    },
}

/// Writes properties as a JSON object.
#[must_use]
pub fn write_map(properties: &[(String, Value)]) -> Map<String, serde_json::Value> {
    properties.iter().map(|(key, value)| (key.clone(), write_value(value))).collect()
}

/// Writes a value: plain if reading gives the same type back, otherwise with its type.
#[must_use]
pub fn write_value(value: &Value) -> serde_json::Value {
    let typed = |kind: &str, value: serde_json::Value| json!({ "type": kind, "value": value });
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::I8(value) => typed("i8", (*value).into()),
        Value::I16(value) => typed("i16", (*value).into()),
        Value::I32(value) => typed("i32", (*value).into()),
        Value::I64(value) => (*value).into(),
        Value::U8(value) => typed("u8", (*value).into()),
        Value::U16(value) => typed("u16", (*value).into()),
        Value::U32(value) => typed("u32", (*value).into()),
        Value::U64(value) => typed("u64", (*value).into()),
        Value::F32(value) => typed("f32", float(f64::from(*value))),
        Value::F64(value) if value.is_finite() => (*value).into(),
        Value::F64(value) => typed("f64", float(*value)),
        Value::Decimal128(bytes) => {
            typed("decimal128", format!("{:032x}", u128::from_be_bytes(*bytes)).into())
        }
        Value::Char(value) => typed("char", value.to_string().into()),
        Value::String(text) => text.as_str().into(),
        Value::Uuid(value) => typed("uuid", json!(Guid(*value))),
        Value::Timestamp(ms) => {
            let instant = Timestamp::from_unix_ms(*ms);
            let is_exact = instant.unix_ms() == *ms;
            typed("timestamp", text_or(is_exact.then(|| instant.to_string()), *ms))
        }
        Value::Binary(bytes) => typed("binary", STANDARD.encode(bytes).into()),
        Value::Uri(text) => typed("uri", text.as_str().into()),
        Value::DateTimeOffset(ticks) => {
            let instant = Timestamp::from_ticks(*ticks);
            let is_exact = instant.ticks() == *ticks;
            typed("dateTimeOffset", text_or(is_exact.then(|| instant.to_string()), *ticks))
        }
        Value::TimeSpan(ticks) => {
            let span = TimeSpan::from_ticks(*ticks);
            let is_exact = span.ticks() == *ticks;
            typed("timeSpan", text_or(is_exact.then(|| span.to_string()), *ticks))
        }
    }
}

fn text_or(text: Option<String>, number: i64) -> serde_json::Value {
    text.map_or_else(|| number.into(), Into::into)
}

fn float(value: f64) -> serde_json::Value {
    if value.is_finite() {
        return value.into();
    }
    if value.is_nan() {
        return "NaN".into();
    }
    if value > 0.0 { "Infinity".into() } else { "-Infinity".into() }
}

/// A JSON value that is neither an object nor an array.
#[derive(Debug)]
enum Scalar {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// Converts to a value without an explicit type. Returns `None` for an integer over 64 bits.
    fn plain(self) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Integer(value) => match i64::try_from(value) {
                Ok(value) => Value::I64(value),
                Err(_) => Value::U64(u64::try_from(value).ok()?),
            },
            Self::Float(value) => Value::F64(value),
            Self::Text(text) => Value::String(text),
        })
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns an integer, also from text, for clients whose numbers have only 53 bits.
    fn integer<T: TryFrom<i128>>(&self) -> Option<T> {
        let value = match self {
            Self::Integer(value) => *value,
            Self::Text(text) => text.parse().ok()?,
            Self::Null | Self::Bool(_) | Self::Float(_) => return None,
        };
        T::try_from(value).ok()
    }

    #[expect(clippy::cast_precision_loss, reason = "a float was asked for")]
    fn float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Integer(value) => Some(*value as f64),
            Self::Text(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            Self::Null | Self::Bool(_) => None,
        }
    }

    /// Converts to a value of an explicit type. Returns `None` if it does not fit the type.
    fn typed(self, kind: &str) -> Option<Value> {
        Some(match kind {
            "null" if matches!(self, Self::Null) => Value::Null,
            "bool" => match self {
                Self::Bool(value) => Value::Bool(value),
                _ => return None,
            },
            "i8" => Value::I8(self.integer()?),
            "i16" => Value::I16(self.integer()?),
            "i32" => Value::I32(self.integer()?),
            "i64" => Value::I64(self.integer()?),
            "u8" => Value::U8(self.integer()?),
            "u16" => Value::U16(self.integer()?),
            "u32" => Value::U32(self.integer()?),
            "u64" => Value::U64(self.integer()?),
            "f32" => Value::F32(narrow(self.float()?)),
            "f64" => Value::F64(self.float()?),
            "decimal128" => {
                let digits = self.text().filter(|text| text.len() == 32)?;
                Value::Decimal128(parse_guid(digits)?.to_be_bytes())
            }
            "char" => {
                let mut characters = self.text()?.chars();
                let character = characters.next()?;
                if characters.next().is_some() {
                    return None;
                }
                Value::Char(character)
            }
            "string" => Value::String(self.text()?.to_owned()),
            "uuid" => Value::Uuid(parse_guid(self.text()?)?),
            "timestamp" => match self.integer() {
                Some(ms) => Value::Timestamp(ms),
                None => Timestamp::parse(self.text()?)?.into(),
            },
            "binary" => Value::Binary(Bytes::from(STANDARD.decode(self.text()?).ok()?)),
            "uri" => Value::Uri(self.text()?.to_owned()),
            "dateTimeOffset" => Value::DateTimeOffset(match self.integer() {
                Some(ticks) => ticks,
                None => Timestamp::parse(self.text()?)?.ticks(),
            }),
            "timeSpan" => match self.integer() {
                Some(ticks) => Value::TimeSpan(ticks),
                None => TimeSpan::parse(self.text()?)?.into(),
            },
            _ => return None,
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an f32 is written as the f64 of its value")]
const fn narrow(value: f64) -> f32 {
    value as f32
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a boolean, a number, a string or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }
}

/// One value, plain or typed.
struct Property(Value);

impl<'de> Deserialize<'de> for Property {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PropertyVisitor).map(Self)
    }
}

struct PropertyVisitor;

fn plain<E: Error>(scalar: Result<Scalar, E>) -> Result<Value, E> {
    scalar?.plain().ok_or_else(|| E::custom("integer of more than 64 bits"))
}

impl<'de> Visitor<'de> for PropertyVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a boolean, a number, a string, null or an object of type and value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        plain(ScalarVisitor.visit_unit())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        plain(ScalarVisitor.visit_bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        plain(ScalarVisitor.visit_i64(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        plain(ScalarVisitor.visit_u64(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        plain(ScalarVisitor.visit_f64(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        plain(ScalarVisitor.visit_str(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let (mut kind, mut value) = (None::<String>, None::<Scalar>);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "type" => kind = Some(map.next_value()?),
                "value" => value = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let kind = kind.ok_or_else(|| A::Error::missing_field("type"))?;
        let value = value.unwrap_or(Scalar::Null);
        value.typed(&kind).ok_or_else(|| {
            let kind: String = kind.chars().take(32).collect();
            A::Error::custom(format!("not a value of the type `{kind}`"))
        })
    }
}

impl Serialize for PropertyMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, &write_value(value))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for PropertyMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor)
    }
}

struct MapVisitor;

impl<'de> Visitor<'de> for MapVisitor {
    type Value = PropertyMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of application properties")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PropertyMap, A::Error> {
        let mut properties = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if properties.len() == PROPERTY_COUNT_MAX {
                return Err(A::Error::custom("too many application properties"));
            }
            let named = |error: A::Error| {
                let key: String = key.chars().take(64).collect();
                A::Error::custom(format!("application property `{key}`: {error}"))
            };
            let Property(value) = map.next_value().map_err(named)?;
            properties.push((key, value));
        }
        Ok(PropertyMap(properties))
    }
}
