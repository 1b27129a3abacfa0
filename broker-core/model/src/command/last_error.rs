//! The error of a failed handler, for all transports: an abandon sets it as a property of the
//! message (SET-42), and the dead letter of the last attempt describes it (DLQ-34).

use std::borrow::Cow;

use crate::message::Value;

/// Property of an abandon with the text of the error. It stays on the message.
pub const LAST_ERROR_PROPERTY: &str = "peeklock-last-error";
/// Maximum bytes of the error, with the mark of a longer one (SET-43).
pub const LAST_ERROR_BYTES_MAX: usize = 1_024;
/// End of a text that was cut.
const CUT_MARK: &str = "… [cut]";

/// Returns the beginning of an error that exceeds [`LAST_ERROR_BYTES_MAX`], up to a border between
/// characters, with a mark at its end; any other error as it is (SET-43).
#[must_use]
pub fn bounded_error(error: &str) -> Cow<'_, str> {
    if error.len() <= LAST_ERROR_BYTES_MAX {
        return Cow::Borrowed(error);
    }
    let end = error.floor_char_boundary(LAST_ERROR_BYTES_MAX - CUT_MARK.len());
    Cow::Owned(format!("{}{CUT_MARK}", error.get(..end).unwrap_or_default()))
}

/// Returns the properties of an abandon with a bounded error.
pub(super) fn with_bounded_error(properties: &[(String, Value)]) -> Cow<'_, [(String, Value)]> {
    let is_long = |(key, value): &(String, Value)| {
        key == LAST_ERROR_PROPERTY
            && matches!(value, Value::String(error) if error.len() > LAST_ERROR_BYTES_MAX)
    };
    if !properties.iter().any(is_long) {
        return Cow::Borrowed(properties);
    }
    let bounded = properties.iter().map(|(key, value)| {
        let value = match value {
            Value::String(error) if key == LAST_ERROR_PROPERTY => {
                Value::String(bounded_error(error).into_owned())
            }
            other => other.clone(),
        };
        (key.clone(), value)
    });
    Cow::Owned(bounded.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Settlement;

    /// SET-43: an error at the limit stays whole; one byte more is cut on a border between
    /// characters of any length and marked, and never exceeds the limit.
    #[test]
    fn long_error_is_cut_between_characters() {
        for letter in ["x", "é", "€", "😀", "\0", "\u{202e}"] {
            let count = LAST_ERROR_BYTES_MAX / letter.len();
            let fill = "x".repeat(LAST_ERROR_BYTES_MAX - count * letter.len());
            let full = format!("{fill}{}", letter.repeat(count));
            assert_eq!(full.len(), LAST_ERROR_BYTES_MAX);
            assert_eq!(bounded_error(&full), full);
            for longer in [format!("{full}x"), format!("x{full}"), full.repeat(40)] {
                let bounded = bounded_error(&longer);
                let (kept, _) = bounded.split_once(CUT_MARK).unwrap();
                assert!(longer.starts_with(kept), "{letter:?}");
                let room = LAST_ERROR_BYTES_MAX - bounded.len();
                assert!(room < letter.len(), "{letter:?}: {room} bytes are unused");
            }
        }
        assert_eq!(bounded_error(""), "");
    }

    /// SET-42, SET-43: an abandon bounds the error and nothing else; an error that is no text is an
    /// ordinary property.
    #[test]
    fn abandon_bounds_only_its_error() {
        let long = "x".repeat(LAST_ERROR_BYTES_MAX + 1);
        let set = |key: &str, value: Value| {
            let other = ("other".to_owned(), Value::from(long.as_str()));
            let Settlement::Abandon { properties: Some(overlay), delay: None } =
                Settlement::abandon(&[(key.to_owned(), value), other], None).unwrap()
            else {
                panic!("no abandon with properties");
            };
            let all: Vec<Value> = overlay.properties().map(|(_, value)| value).collect();
            assert_eq!(all[1], Value::from(long.as_str()));
            all[0].clone()
        };
        let bounded = Value::String(bounded_error(&long).into_owned());
        assert_eq!(set(LAST_ERROR_PROPERTY, Value::from(long.as_str())), bounded);
        for (key, value) in [
            (LAST_ERROR_PROPERTY, Value::Binary(long.clone().into_bytes().into())),
            (LAST_ERROR_PROPERTY, Value::Null),
            ("Peeklock-Last-Error", Value::from(long.as_str())),
        ] {
            assert_eq!(set(key, value.clone()), value);
        }
    }
}
