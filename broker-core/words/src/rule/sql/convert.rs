//! Conversions between types for SET (ACT-05), and the text of every value. Actions and
//! concatenation use them.

use super::decimal::Decimal;
use super::number::Number;
use super::operand::{Operand, UuidText, unix_ms};
use crate::ids::parse_guid;
use crate::message::{Value, ValueRef};
use crate::time::{TimeSpan, Timestamp};

/// Converts a value to the type of the property's old value (ACT-05). `None` if it has no such
/// form, and for an old null, which has no type.
pub(in crate::rule) fn to_type_of(old: ValueRef<'_>, new: &Operand<'_>) -> Option<Value> {
    Some(match old {
        ValueRef::Null => return None,
        ValueRef::Bool(_) => Value::Bool(to_bool(new)?),
        ValueRef::I8(_) => Value::I8(to_integer(new)?.try_into().ok()?),
        ValueRef::I16(_) => Value::I16(to_integer(new)?.try_into().ok()?),
        ValueRef::I32(_) => Value::I32(to_integer(new)?.try_into().ok()?),
        ValueRef::I64(_) => Value::I64(to_integer(new)?.try_into().ok()?),
        ValueRef::U8(_) => Value::U8(to_integer(new)?.try_into().ok()?),
        ValueRef::U16(_) => Value::U16(to_integer(new)?.try_into().ok()?),
        ValueRef::U32(_) => Value::U32(to_integer(new)?.try_into().ok()?),
        ValueRef::U64(_) => Value::U64(to_integer(new)?.try_into().ok()?),
        ValueRef::F32(_) => Value::F32(to_f32(new)?),
        ValueRef::F64(_) => Value::F64(to_f64(new)?),
        ValueRef::Decimal128(_) => Value::Decimal128(to_decimal(new)?.to_bits()),
        ValueRef::String(_) => Value::String(to_text(new)?),
        ValueRef::Uuid(_) => Value::Uuid(to_uuid(new)?),
        ValueRef::Timestamp(_) => Value::Timestamp(to_timestamp(new)?),
        ValueRef::DateTimeOffset(_) => Value::DateTimeOffset(to_date_time_offset(new)?),
        ValueRef::Char(_) | ValueRef::Binary(_) | ValueRef::Uri(_) | ValueRef::TimeSpan(_) => {
            same_type(old, new)?
        }
    })
}

fn same_type(old: ValueRef<'_>, new: &Operand<'_>) -> Option<Value> {
    match (old, new) {
        (ValueRef::Char(_), Operand::Char(_))
        | (ValueRef::Binary(_), Operand::Binary(_))
        | (ValueRef::Uri(_), Operand::Uri(_))
        | (ValueRef::TimeSpan(_), Operand::TimeSpan(_)) => Some(new.to_value()),
        _ => None,
    }
}

/// Any value but null, as text that can be read back.
pub(crate) fn to_text(operand: &Operand<'_>) -> Option<String> {
    match operand {
        Operand::Unknown => None,
        Operand::Text(text) => Some(text.clone().into_owned()),
        other => Some(invariant_text(other)),
    }
}

/// Milliseconds since 1970 of an instant, or of RFC 3339 text.
pub(in crate::rule) fn to_timestamp(operand: &Operand<'_>) -> Option<i64> {
    match operand {
        Operand::Text(text) => Timestamp::parse(text).map(Timestamp::unix_ms),
        other => other.instant_ticks().map(unix_ms),
    }
}

/// Ticks of a duration, or of text in ISO 8601 or in the form `[d.]hh:mm:ss[.fffffff]`.
pub(in crate::rule) fn to_time_span(operand: &Operand<'_>) -> Option<i64> {
    match operand {
        Operand::TimeSpan(ticks) => Some(*ticks),
        Operand::Text(text) => TimeSpan::parse(text).map(TimeSpan::ticks).or_else(|| {
            let (days, clock) = match text.split_once('.') {
                Some((days, clock)) if clock.contains(':') => (days, clock),
                _ => ("0", text.as_ref()),
            };
            let (hours, clock) = clock.split_once(':')?;
            let (minutes, seconds) = clock.split_once(':')?;
            // The ISO 8601 parser checks each part.
            let text = format!("P{days}DT{hours}H{minutes}M{seconds}S");
            TimeSpan::parse(&text).map(TimeSpan::ticks)
        }),
        _ => None,
    }
}

fn to_date_time_offset(operand: &Operand<'_>) -> Option<i64> {
    match operand {
        Operand::Text(text) => Timestamp::parse(text).map(Timestamp::ticks),
        other => other.instant_ticks().and_then(|ticks| ticks.try_into().ok()),
    }
}

fn to_bool(operand: &Operand<'_>) -> Option<bool> {
    match operand {
        Operand::Bool(value) => Some(*value),
        Operand::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Operand::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

fn to_uuid(operand: &Operand<'_>) -> Option<u128> {
    match operand {
        Operand::Uuid(uuid) => Some(*uuid),
        Operand::Text(text) => parse_guid(text),
        _ => None,
    }
}

/// Converts to a whole number. Fractions are rounded to the nearest one, halves to even.
fn to_integer(operand: &Operand<'_>) -> Option<i128> {
    if let Operand::Text(text) = operand {
        return text.parse().ok();
    }
    match Number::of(operand)? {
        Number::Integer(value, _) => Some(value),
        Number::F32(value) => float_to_integer(f64::from(value)),
        Number::F64(value) => float_to_integer(value),
        Number::Decimal(value) => value.to_integer(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
fn float_to_integer(value: f64) -> Option<i128> {
    let rounded = value.round_ties_even();
    // 1e30 is far outside every integer type. NaN fails here too.
    (rounded.abs() <= 1e30).then_some(rounded as i128)
}

fn to_f64(operand: &Operand<'_>) -> Option<f64> {
    let value = match operand {
        Operand::Text(text) => parse_float(text)?,
        other => Number::of(other)?.to_f64(),
    };
    in_range(value, operand).then_some(value)
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is meant, the range is checked")]
fn to_f32(operand: &Operand<'_>) -> Option<f32> {
    let value = match operand {
        Operand::F32(value) => return Some(*value),
        Operand::Text(text) => parse_float(text)?,
        other => Number::of(other)?.to_f64(),
    };
    let narrow = value as f32;
    in_range(f64::from(narrow), operand).then_some(narrow)
}

/// Whether a result is finite, or infinite only because the operand is.
fn in_range(result: f64, operand: &Operand<'_>) -> bool {
    result.is_finite()
        || match operand {
            Operand::F32(value) => !value.is_finite(),
            Operand::F64(value) => !value.is_finite(),
            Operand::Decimal(bits) => !Decimal::from_bits(*bits).is_finite(),
            Operand::Text(_) => true,
            _ => false,
        }
}

/// Reads digits with a point and an exponent, or NaN and the infinities.
fn parse_float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ if text.contains(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E')) => None,
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

fn to_decimal(operand: &Operand<'_>) -> Option<Decimal> {
    if let Operand::Text(text) = operand {
        return Decimal::parse(text).filter(|value| value.is_finite());
    }
    match Number::of(operand)? {
        Number::Integer(value, _) => Some(Decimal::from(value)),
        // Through the shortest text of the number, which is the number that people mean.
        Number::F32(value) => Decimal::parse(&value.to_string()),
        Number::F64(value) => Decimal::parse(&value.to_string()),
        Number::Decimal(value) => Some(value),
    }
}

/// The text of a value, independent of locale: numbers in the shortest form that reads back,
/// instants in RFC 3339, durations in ISO 8601, bytes in hexadecimal digits.
pub(in crate::rule) fn invariant_text(operand: &Operand<'_>) -> String {
    match operand {
        Operand::Unknown => "NULL".to_owned(),
        Operand::Bool(value) => value.to_string(),
        Operand::I8(value) => value.to_string(),
        Operand::I16(value) => value.to_string(),
        Operand::I32(value) => value.to_string(),
        Operand::I64(value) => value.to_string(),
        Operand::U8(value) => value.to_string(),
        Operand::U16(value) => value.to_string(),
        Operand::U32(value) => value.to_string(),
        Operand::U64(value) => value.to_string(),
        Operand::F32(value) => {
            float_text(f64::from(*value), value.to_string(), || format!("{value:E}"))
        }
        Operand::F64(value) => float_text(*value, value.to_string(), || format!("{value:E}")),
        Operand::Decimal(bits) => Decimal::from_bits(*bits).to_string(),
        Operand::Char(value) => value.to_string(),
        Operand::Text(text) => text.clone().into_owned(),
        Operand::Uuid(uuid) => UuidText::of(*uuid).as_str().to_owned(),
        Operand::Timestamp(ticks) => instant_text(*ticks),
        Operand::DateTimeOffset(ticks) => instant_text(i128::from(*ticks)),
        Operand::Binary(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Operand::Uri(uri) => uri.clone().into_owned(),
        Operand::TimeSpan(ticks) => time_span_text(*ticks),
    }
}

/// Plain digits from 1e-5 to 1e15, otherwise an exponent.
fn float_text(value: f64, plain: String, exponent: impl FnOnce() -> String) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if value == 0.0 || (1e-5..1e15).contains(&value.abs()) {
        return plain;
    }
    exponent()
}

/// An instant outside the calendar is written in milliseconds.
fn instant_text(ticks: i128) -> String {
    match i64::try_from(ticks).map(Timestamp::from_ticks) {
        Ok(at) if i128::from(at.ticks()) == ticks => at.to_string(),
        _ => format!("{} ms since 1970", unix_ms(ticks)),
    }
}

fn time_span_text(ticks: i64) -> String {
    if ticks >= 0 {
        return TimeSpan::from_ticks(ticks).to_string();
    }
    let magnitude = TimeSpan::from_ticks(ticks.checked_neg().unwrap_or(i64::MAX));
    format!("-{magnitude}")
}
