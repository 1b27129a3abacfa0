//! Application properties on the command line: `KEY=VALUE` is text, `KEY:TYPE=VALUE` any type.
//! Commands that send or select messages share the parser.

use peeklock::message::Value;
use peeklock::websocket::client::message_from_json;
use serde_json::json;

pub const TYPES: [&str; 21] = [
    "null",
    "bool",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f32",
    "f64",
    "decimal128",
    "char",
    "string",
    "uuid",
    "timestamp",
    "binary",
    "uri",
    "dateTimeOffset",
    "timeSpan",
];

/// Key and value of an application property.
pub type Property = (String, Value);

/// The forms of a property, for errors.
const FORMS: &str = "write KEY=VALUE, such as region=eu, or KEY:TYPE=VALUE, such as table:i32=7";

/// Parses a property.
pub fn property(text: &str) -> Result<Property, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is a key without a value; {FORMS}"))?;
    let (key, kind) = name.rsplit_once(':').unwrap_or((name, "string"));
    if key.is_empty() {
        return Err(format!("the key before `=` is missing; {FORMS}"));
    }
    if !TYPES.contains(&kind) {
        let types = TYPES.join(" ");
        return Err(format!("`{kind}` is not a type; write KEY:TYPE=VALUE with one of {types}"));
    }
    if kind == "null" && !matches!(value, "" | "null") {
        return Err(format!(
            "`{value}` would be lost: a property of the type `null` has no value; write \
             {key}:null="
        ));
    }
    // Numbers and booleans stay JSON values, other types become text; the JSON reader parses both.
    let scalar = match kind {
        "null" => serde_json::Value::Null,
        "bool" | "f32" | "f64" => {
            serde_json::from_str(value).unwrap_or_else(|_| value.to_owned().into())
        }
        _ => value.to_owned().into(),
    };
    let message = json!({"applicationProperties": {key: {"type": kind, "value": scalar}}});
    let message = message_from_json(&message.to_string());
    let mut properties = message.map(|message| message.application_properties).unwrap_or_default();
    properties
        .pop()
        .ok_or_else(|| format!("`{value}` is not a value of the type `{kind}`; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: Option<(&str, Value)>) {
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(property(given).ok(), expected, "{given}");
    }

    /// MSG-20
    #[test]
    fn properties_have_types() {
        check("a=b", Some(("a", Value::String("b".into()))));
        check("a=", Some(("a", Value::String(String::new()))));
        check("a=7", Some(("a", Value::String("7".into()))));
        check("a=b=c", Some(("a", Value::String("b=c".into()))));
        check("a:i32=7", Some(("a", Value::I32(7))));
        check("a:i32=-7", Some(("a", Value::I32(-7))));
        check("a:u8=256", None);
        check("a:bool=true", Some(("a", Value::Bool(true))));
        check("a:bool=yes", None);
        check("a:f64=1.5", Some(("a", Value::F64(1.5))));
        check("a:f64=NaN=", None);
        check("a:null=", Some(("a", Value::Null)));
        check("a:null=null", Some(("a", Value::Null)));
        check("a:null=zz", None);
        check("a:timeSpan=PT1M", Some(("a", Value::TimeSpan(600_000_000))));
        check("a:timestamp=1970-01-01T00:00:01Z", Some(("a", Value::Timestamp(1_000))));
        check("a:binary=AAE=", Some(("a", Value::Binary(vec![0, 1].into()))));
        check("eu:a:string=b", Some(("eu:a", Value::String("b".into()))));
        check("a:int=7", None);
        check("=b", None);
        check("a", None);
    }
}
