//! Typed values of rules (ADM-41): a value is returned with the type with which it was sent.
//! `form/rule.rs` reads and writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::ids::LockToken;
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::super::xml::{Element, INSTANCE, SB, SCHEMA, SERIALIZATION, Xml};
use crate::error::Refusal;

const TICKS_PER_MILLISECOND: i64 = 10_000;
/// Maximum number of digits of a decimal128.
const DECIMAL_DIGITS_MAX: usize = 34;
/// Bias of its exponent.
const DECIMAL_BIAS: i32 = 6_176;
/// Bit at which its exponent begins.
const DECIMAL_EXPONENT_AT: u32 = 113;

/// A name with its value, and the spelling of the value.
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) spelling: Option<Spelling>,
}

/// A spelling that the value does not preserve and that must be returned (ADM-41).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// An `int` beyond 32 bits: some clients have no other integer type.
    WideInt,
    /// A `dateTime` without a zone, which is read as UTC.
    WithoutZone,
}

impl Spelling {
    pub(super) const ALL: [Self; 2] = [Self::WideInt, Self::WithoutZone];

    /// Returns the name under which it is stored.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::WideInt => "WideInt",
            Self::WithoutZone => "WithoutZone",
        }
    }

    fn of(kind: &str, text: &str, value: &Value) -> Option<Self> {
        match (kind, value) {
            ("int", Value::I64(_)) => Some(Self::WideInt),
            ("dateTime", _) if Timestamp::parse(text.trim()).is_none() => Some(Self::WithoutZone),
            _ => None,
        }
    }
}

/// Reads the pairs in `Parameters` or `Properties`.
pub(super) fn read_pairs(parent: &Element, name: &str) -> Result<Vec<Pair>, Refusal> {
    let Some(pairs) = parent.child(SB, name) else { return Ok(Vec::new()) };
    let pairs = pairs.children.iter().filter(|it| it.is(SB, "KeyValueOfstringanyType"));
    pairs.map(read_pair).collect()
}

fn read_pair(pair: &Element) -> Result<Pair, Refusal> {
    let name = pair.child(SB, "Key").map_or("", |key| key.text.as_str()).to_owned();
    let absent = Element::default();
    let element = pair.child(SB, "Value").unwrap_or(&absent);
    if element.is_nil() {
        return Ok(Pair { name, value: Value::Null, spelling: None });
    }
    let kind = element.kind.as_deref().unwrap_or("string");
    let Some(value) = parse(kind, &element.text) else {
        let shown: String = element.text.chars().take(64).collect();
        let detail = format!("the value of `{name}` is `{shown}`, which is not a valid {kind}");
        return Err(Refusal::argument(detail));
    };
    let spelling = Spelling::of(kind, &element.text, &value);
    Ok(Pair { name, value, spelling })
}

/// Reads a value of an XML Schema type or of a .NET serialisation type; none if the type is unknown
/// or the text invalid.
fn parse(kind: &str, text: &str) -> Option<Value> {
    let word = text.trim();
    Some(match kind {
        "string" | "anyType" => Value::String(text.to_owned()),
        "boolean" => match word {
            "true" | "1" => Value::Bool(true),
            "false" | "0" => Value::Bool(false),
            _ => return None,
        },
        "byte" => Value::I8(word.parse().ok()?),
        "short" => Value::I16(word.parse().ok()?),
        "int" => match word.parse::<i64>().ok()? {
            number if i32::try_from(number).is_ok() => Value::I32(i32::try_from(number).ok()?),
            number => Value::I64(number),
        },
        "long" | "integer" => Value::I64(word.parse().ok()?),
        "unsignedByte" => Value::U8(word.parse().ok()?),
        "unsignedShort" => Value::U16(word.parse().ok()?),
        "unsignedInt" => Value::U32(word.parse().ok()?),
        "unsignedLong" => Value::U64(word.parse().ok()?),
        "float" => Value::F32(float(word)?),
        "double" => Value::F64(float(word)?),
        "decimal" => Value::Decimal128(decimal(word)?),
        "dateTime" => instant(word)?,
        "duration" => duration(word)?,
        "guid" => Value::Uuid(LockToken::parse(word)?.0),
        "base64Binary" => Value::Binary(STANDARD.decode(word).ok()?.into()),
        "anyURI" => Value::Uri(text.to_owned()),
        "char" => Value::Char(char::from_u32(word.parse().ok()?)?),
        _ => return None,
    })
}

fn float<T: std::str::FromStr + From<f32>>(word: &str) -> Option<T> {
    match word {
        "INF" => Some(f32::INFINITY.into()),
        "-INF" => Some(f32::NEG_INFINITY.into()),
        "NaN" => Some(f32::NAN.into()),
        // Rust accepts words that XML Schema does not.
        _ if word
            .bytes()
            .any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E')) =>
        {
            None
        }
        _ => word.parse().ok(),
    }
}

/// Reads an instant. Whole milliseconds become an AMQP timestamp, as in messages; a finer instant
/// keeps its ticks.
fn instant(word: &str) -> Option<Value> {
    // Without a zone it is UTC.
    let instant = Timestamp::parse(word).or_else(|| Timestamp::parse(&format!("{word}Z")))?;
    Some(match instant.ticks() % TICKS_PER_MILLISECOND {
        0 => Value::Timestamp(instant.unix_ms()),
        _ => Value::DateTimeOffset(instant.ticks()),
    })
}

fn duration(word: &str) -> Option<Value> {
    let (is_negative, rest) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let ticks = TimeSpan::parse(rest)?.ticks();
    Some(Value::TimeSpan(if is_negative { -ticks } else { ticks }))
}

/// Reads a decimal128 in the binary integer encoding, which preserves trailing zeros.
fn decimal(word: &str) -> Option<[u8; 16]> {
    let (is_negative, digits) = match word.as_bytes().first()? {
        b'-' => (true, word.get(1..)?),
        b'+' => (false, word.get(1..)?),
        _ => (false, word),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    if significant.len() > DECIMAL_DIGITS_MAX {
        return None;
    }
    let coefficient: u128 = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    let exponent = DECIMAL_BIAS - i32::try_from(fraction.len()).ok()?;
    let exponent = u128::try_from(exponent).ok()?;
    let sign = u128::from(is_negative) << 127;
    Some((sign | exponent << DECIMAL_EXPONENT_AT | coefficient).to_be_bytes())
}

fn decimal_text(bytes: [u8; 16]) -> String {
    let bits = u128::from_be_bytes(bytes);
    let sign = if bits >> 127 == 1 { "-" } else { "" };
    if bits >> 125 & 0b11 == 0b11 {
        // Infinities and NaN, neither of which XML Schema has.
        return "0".to_owned();
    }
    let exponent = i32::try_from(bits >> DECIMAL_EXPONENT_AT & 0x3fff).unwrap_or(0) - DECIMAL_BIAS;
    let coefficient = (bits & ((1 << DECIMAL_EXPONENT_AT) - 1)).to_string();
    let Ok(scale) = usize::try_from(-i64::from(exponent)) else {
        let zeros = usize::try_from(exponent).unwrap_or(0);
        return format!("{sign}{coefficient}{}", "0".repeat(zeros));
    };
    if scale == 0 {
        return format!("{sign}{coefficient}");
    }
    let digits = format!("{coefficient:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Writes pairs, if there are any, with their spelling.
pub(super) fn write_pairs<'a>(
    xml: &mut Xml,
    name: &str,
    pairs: impl Iterator<Item = (String, &'a Value)>,
    spelling: impl Fn(&str) -> Option<Spelling>,
) {
    let mut pairs = pairs.peekable();
    if pairs.peek().is_none() {
        return;
    }
    xml.element(name, &[], |xml| {
        for (name, value) in pairs {
            xml.element("KeyValueOfstringanyType", &[], |xml| {
                xml.leaf("Key", &name);
                write(xml, value, spelling(&name));
            });
        }
    });
}

/// Writes a value. Some clients split the type at its colon without resolving the prefix, so each
/// type has a fixed prefix.
fn write(xml: &mut Xml, value: &Value, spelling: Option<Spelling>) {
    let (namespace, kind, text) = match value {
        Value::Null => {
            let attributes = [("xmlns:i", INSTANCE), ("i:nil", "true")];
            xml.leaf_with("Value", &attributes, "");
            return;
        }
        Value::Bool(value) => (SCHEMA, "boolean", super::flag_text(*value).to_owned()),
        Value::I8(value) => (SCHEMA, "byte", value.to_string()),
        Value::I16(value) => (SCHEMA, "short", value.to_string()),
        Value::I32(value) => (SCHEMA, "int", value.to_string()),
        Value::I64(value) if spelling == Some(Spelling::WideInt) => {
            (SCHEMA, "int", value.to_string())
        }
        Value::I64(value) => (SCHEMA, "long", value.to_string()),
        Value::U8(value) => (SCHEMA, "unsignedByte", value.to_string()),
        Value::U16(value) => (SCHEMA, "unsignedShort", value.to_string()),
        Value::U32(value) => (SCHEMA, "unsignedInt", value.to_string()),
        Value::U64(value) => (SCHEMA, "unsignedLong", value.to_string()),
        Value::F32(value) => {
            (SCHEMA, "float", float_text(value.is_infinite(), *value > 0.0, value))
        }
        Value::F64(value) => {
            (SCHEMA, "double", float_text(value.is_infinite(), *value > 0.0, value))
        }
        Value::Decimal128(bytes) => (SCHEMA, "decimal", decimal_text(*bytes)),
        Value::Char(value) => (SERIALIZATION, "char", u32::from(*value).to_string()),
        Value::String(text) => (SCHEMA, "string", text.clone()),
        Value::Uuid(value) => (SERIALIZATION, "guid", LockToken(*value).to_string()),
        Value::Timestamp(ms) => (SCHEMA, "dateTime", Timestamp::from_unix_ms(*ms).to_string()),
        Value::Binary(bytes) => (SCHEMA, "base64Binary", STANDARD.encode(bytes)),
        Value::Uri(text) => (SCHEMA, "anyURI", text.clone()),
        Value::DateTimeOffset(ticks) => {
            (SCHEMA, "dateTime", Timestamp::from_ticks(*ticks).to_string())
        }
        Value::TimeSpan(ticks) => (SCHEMA, "duration", duration_text(*ticks)),
    };
    let text = match text.strip_suffix('Z') {
        Some(text) if spelling == Some(Spelling::WithoutZone) && kind == "dateTime" => {
            text.to_owned()
        }
        _ => text,
    };
    let kind = format!("d6p1:{kind}");
    let attributes = [("xmlns:i", INSTANCE), ("i:type", kind.as_str()), ("xmlns:d6p1", namespace)];
    xml.leaf_with("Value", &attributes, &text);
}

fn float_text(is_infinite: bool, is_positive: bool, value: &impl ToString) -> String {
    match (is_infinite, is_positive) {
        (true, true) => "INF".to_owned(),
        (true, false) => "-INF".to_owned(),
        (false, _) => value.to_string(),
    }
}

fn duration_text(ticks: i64) -> String {
    let sign = if ticks < 0 { "-" } else { "" };
    let span = TimeSpan::from_ticks(ticks.checked_abs().unwrap_or(i64::MAX));
    format!("{sign}{span}")
}
