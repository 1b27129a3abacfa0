//! Application properties as headers: which names are properties, and values in both directions
//! (HTP-05, MSG-23). The data plane uses it.

use std::fmt::Write as _;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::error::Refusal;

/// Header with the broker properties (HTP-03).
pub(crate) const BROKER_PROPERTIES: &str = "brokerproperties";
/// Header with the delay of an abandon in milliseconds, since its body is empty by contract
/// (RTY-26).
pub(crate) const RETRY_DELAY: &str = "peeklock-delay-ms";

/// Headers with a defined meaning, which are never properties (HTP-05), like the families in
/// [`STANDARD_PREFIXES`].
const STANDARD_NAMES: [&str; 34] = [
    "alt-used",
    "authorization",
    BROKER_PROPERTIES,
    "cache-control",
    "connection",
    "cookie",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "from",
    "host",
    "keep-alive",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "range",
    "referer",
    "retry-after",
    "server",
    "servicebusdlqsupplementaryauthorization",
    "servicebussupplementaryauthorization",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];

const STANDARD_PREFIXES: [&str; 8] = [
    "accept",
    "access-control-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "x-content-type-options",
    "x-forwarded-",
];

/// Whether a header of this name, in lower case, is an application property.
pub(crate) fn is_property(name: &str) -> bool {
    !STANDARD_NAMES.contains(&name)
        && !STANDARD_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the application properties among the headers of a request.
pub(crate) fn read_properties(headers: &HeaderMap) -> Result<Vec<(String, Value)>, Refusal> {
    let mut properties = Vec::new();
    for (name, value) in headers {
        if !is_property(name.as_str()) {
            continue;
        }
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Refusal::argument(format!("the header {name} is not UTF-8")))?;
        properties.push((name.as_str().to_owned(), parse(text)));
    }
    Ok(properties)
}

/// Returns the header of a property, unless its name cannot be a header.
pub(crate) fn write_property(key: &str, value: &Value) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(key.as_bytes()).ok().filter(|n| is_property(n.as_str()))?;
    Some((name, HeaderValue::from_bytes(write(value).as_bytes()).ok()?))
}

/// Reads a value (MSG-23). A quoted value may have JSON escapes, with which [`write`] preserves
/// quotes and control characters; a value with malformed escapes is taken literally.
pub(crate) fn parse(text: &str) -> Value {
    match text {
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    if let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        let inner = serde_json::from_str::<String>(text).unwrap_or_else(|_| inner.to_owned());
        return match parse_date(&inner) {
            Some(instant) => instant.into(),
            None => Value::String(inner),
        };
    }
    let Ok(number) = serde_json::from_str::<serde_json::Number>(text) else {
        return Value::String(text.to_owned());
    };
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => Value::I64(integer),
        (None, Some(float)) => Value::F64(float),
        (None, None) => Value::String(text.to_owned()),
    }
}

/// Accepts only the exact form of RFC 1123, so that other text that contains a date stays text.
fn parse_date(text: &str) -> Option<Timestamp> {
    Timestamp::parse_rfc1123(text).filter(|instant| instant.to_rfc1123() == text)
}

/// Writes a value so that [`parse`] returns the same value or, for a type that HTTP lacks, its
/// text.
pub(crate) fn write(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::I8(value) => value.to_string(),
        Value::I16(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U8(value) => value.to_string(),
        Value::U16(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F32(value) => float(f64::from(*value)),
        Value::F64(value) => float(*value),
        Value::Decimal128(bytes) => quoted(&hexadecimal(bytes)),
        Value::Char(value) => quoted(&value.to_string()),
        Value::String(text) | Value::Uri(text) => quoted(text),
        Value::Uuid(value) => quoted(&guid(*value)),
        Value::Timestamp(ms) => quoted(&Timestamp::from_unix_ms(*ms).to_rfc1123()),
        Value::Binary(bytes) => quoted(&STANDARD.encode(bytes)),
        Value::DateTimeOffset(ticks) => quoted(&Timestamp::from_ticks(*ticks).to_string()),
        Value::TimeSpan(ticks) if *ticks >= 0 => quoted(&TimeSpan::from_ticks(*ticks).to_string()),
        Value::TimeSpan(ticks) => ticks.to_string(),
    }
}

/// Formats a float with a point or an exponent, so that it is read as a float again.
fn float(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { quoted(&value.to_string()) }
}

/// Formats a JSON string; escapes the one control character that JSON allows and headers do not.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Formats a GUID in its usual form.
pub(crate) fn guid(value: u128) -> String {
    peeklock_core::ids::LockToken(value).to_string()
}

/// Formats two lower-case digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a string cannot fail.
        write!(digits, "{byte:02x}").unwrap_or_default();
    }
    digits
}
