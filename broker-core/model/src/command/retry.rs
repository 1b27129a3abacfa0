//! Abandon with a delay, for all transports. A client without another way to set a delay uses a
//! property (RTY-27, RTY-28). An abandon removes the property from the message's properties, and
//! any other settlement refuses it (RTY-10), so it is never stored.

use super::Settlement;
use super::last_error::with_bounded_error;
use crate::error::Rejection;
use crate::message::{Overlay, Value};
use crate::time::TimeSpan;

/// Property of an abandon with the delay in milliseconds; removed, and never stored.
pub const RETRY_DELAY_PROPERTY: &str = "peeklock-delay-ms";

impl Settlement {
    /// Returns an abandon that sets `properties` and uses `delay`. Without `delay`, the property
    /// [`RETRY_DELAY_PROPERTY`] sets it. The entity checks the bounds of the delay. A long text of
    /// [`LAST_ERROR_PROPERTY`](super::LAST_ERROR_PROPERTY) is cut (SET-43).
    ///
    /// # Errors
    /// `ArgumentOutOfRange` if the property is not a delay, and the errors of [`Overlay::encode`].
    pub fn abandon(
        properties: &[(String, Value)],
        delay: Option<TimeSpan>,
    ) -> Result<Self, Rejection> {
        let properties = with_bounded_error(properties);
        let is_delay = |(key, _): &&(String, Value)| key == RETRY_DELAY_PROPERTY;
        let Some((_, value)) = properties.iter().find(is_delay) else {
            let overlay = (!properties.is_empty()).then(|| Overlay::encode(&properties));
            return Ok(Self::Abandon { properties: overlay.transpose()?, delay });
        };
        let from_property = retry_delay_of(value)?;
        let rest: Vec<_> = properties.iter().filter(|one| !is_delay(one)).cloned().collect();
        let overlay = (!rest.is_empty()).then(|| Overlay::encode(&rest));
        Ok(Self::Abandon { properties: overlay.transpose()?, delay: delay.or(Some(from_property)) })
    }

    /// Returns a deferral that sets these properties.
    ///
    /// # Errors
    /// The errors of [`refuse_retry_delay`] and [`Overlay::encode`].
    pub fn defer(properties: &[(String, Value)]) -> Result<Self, Rejection> {
        refuse_retry_delay("defer", properties)?;
        let overlay = (!properties.is_empty()).then(|| Overlay::encode(properties));
        Ok(Self::Defer { properties: overlay.transpose()? })
    }
}

/// Refuses the property [`RETRY_DELAY_PROPERTY`] for any settlement except an abandon (RTY-10).
///
/// # Errors
/// `ArgumentError` if the property is present, with any value.
pub fn refuse_retry_delay(
    operation: &str,
    properties: &[(String, Value)],
) -> Result<(), Rejection> {
    if properties.iter().all(|(key, _)| key != RETRY_DELAY_PROPERTY) {
        return Ok(());
    }
    Err(Rejection::argument(format!(
        "{operation} takes no delay: the property `{RETRY_DELAY_PROPERTY}` is for an abandon only"
    )))
}

/// Parses the delay that a client requests: any integer, or text of digits, in milliseconds
/// (RTY-27). The entity checks its bounds.
///
/// # Errors
/// `ArgumentOutOfRange` for any other value.
pub fn retry_delay_of(value: &Value) -> Result<TimeSpan, Rejection> {
    let milliseconds = match value {
        Value::I8(value) => Some(i128::from(*value)),
        Value::I16(value) => Some(i128::from(*value)),
        Value::I32(value) => Some(i128::from(*value)),
        Value::I64(value) => Some(i128::from(*value)),
        Value::U8(value) => Some(i128::from(*value)),
        Value::U16(value) => Some(i128::from(*value)),
        Value::U32(value) => Some(i128::from(*value)),
        Value::U64(value) => Some(i128::from(*value)),
        // A number with more digits than `i128` holds is longer than any delay.
        Value::String(text)
            if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Some(text.parse().unwrap_or(i128::MAX))
        }
        Value::Null
        | Value::Bool(_)
        | Value::F32(_)
        | Value::F64(_)
        | Value::Decimal128(_)
        | Value::Char(_)
        | Value::String(_)
        | Value::Uuid(_)
        | Value::Timestamp(_)
        | Value::Binary(_)
        | Value::Uri(_)
        | Value::DateTimeOffset(_)
        | Value::TimeSpan(_) => None,
    };
    let milliseconds = milliseconds.filter(|milliseconds| *milliseconds >= 0).ok_or_else(|| {
        Rejection::out_of_range(
            "the delay of an abandon must be a number of milliseconds from 0 on, or text with its \
             digits",
        )
    })?;
    Ok(TimeSpan::from_ms(i64::try_from(milliseconds).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use peeklock_words::condition::Condition;

    fn abandon(
        value: Value,
        delay: Option<TimeSpan>,
    ) -> Result<(Option<Overlay>, Option<TimeSpan>), Rejection> {
        let properties =
            [("a".to_owned(), Value::from("b")), (RETRY_DELAY_PROPERTY.to_owned(), value)];
        Settlement::abandon(&properties, delay).map(|settlement| match settlement {
            Settlement::Abandon { properties, delay } => (properties, delay),
            other => panic!("no abandon: {other:?}"),
        })
    }

    /// RTY-27, RTY-28: the delay may be any integer type or text of digits; it is not stored, and
    /// an explicit delay wins.
    #[test]
    fn abandon_removes_delay_from_properties() {
        let rest = Overlay::encode(&[("a".to_owned(), Value::from("b"))]).unwrap();
        for value in [
            Value::I8(100),
            Value::I16(100),
            Value::I32(100),
            Value::I64(100),
            Value::U8(100),
            Value::U16(100),
            Value::U32(100),
            Value::U64(100),
            Value::from("0100"),
        ] {
            let delay = TimeSpan::from_ms(100);
            assert_eq!(abandon(value.clone(), None).unwrap(), (Some(rest.clone()), Some(delay)));
            let own = Some(TimeSpan::ZERO);
            assert_eq!(abandon(value, own).unwrap(), (Some(rest.clone()), own));
        }
        let alone = [(RETRY_DELAY_PROPERTY.to_owned(), Value::U8(0))];
        let settlement = Settlement::abandon(&alone, None).unwrap();
        assert!(matches!(
            settlement,
            Settlement::Abandon { properties: None, delay: Some(TimeSpan::ZERO) }
        ));
    }

    /// RTY-10, RTY-27: defer and dead-letter refuse the property with any value, and accept all
    /// others.
    #[test]
    fn other_settlements_refuse_delay_property() {
        let limits = Limits::default();
        let dead_letter = |properties: &[(String, Value)]| {
            Settlement::dead_letter(Some("broken"), None, properties, &limits)
        };
        for value in [Value::I32(0), Value::from("5000"), Value::Bool(true)] {
            let properties =
                [("a".to_owned(), Value::from("b")), (RETRY_DELAY_PROPERTY.to_owned(), value)];
            for rejection in [Settlement::defer(&properties), dead_letter(&properties)] {
                let rejection = rejection.unwrap_err();
                assert_eq!(rejection.condition(), Condition::ArgumentError);
                assert!(rejection.detail().contains(RETRY_DELAY_PROPERTY), "{rejection:?}");
            }
        }
        let others = [("Peeklock-Delay-Ms".to_owned(), Value::I32(1))];
        let rest = Overlay::encode(&others).unwrap();
        let Settlement::Defer { properties } = Settlement::defer(&others).unwrap() else {
            panic!()
        };
        assert_eq!(properties, Some(rest));
        assert!(matches!(Settlement::defer(&[]), Ok(Settlement::Defer { properties: None })));
        dead_letter(&others).unwrap();
    }

    /// RTY-27: other types and texts are refused, even with an explicit delay; the entity judges a
    /// delay that is too long.
    #[test]
    fn abandon_refuses_invalid_delay() {
        for value in [
            Value::Null,
            Value::Bool(true),
            Value::F64(1.0),
            Value::I32(-1),
            Value::I64(i64::MIN),
            Value::from(""),
            Value::from("1s"),
            Value::from("-1"),
            Value::from("+1"),
            Value::from(" 1"),
        ] {
            for delay in [None, Some(TimeSpan::ZERO)] {
                let rejection = abandon(value.clone(), delay).unwrap_err();
                assert_eq!(rejection.condition(), Condition::ArgumentOutOfRange, "{value:?}");
            }
        }
        for long in [Value::U64(u64::MAX), Value::from("9".repeat(60).as_str())] {
            assert_eq!(abandon(long, None).unwrap().1, Some(TimeSpan::MAX));
        }
    }
}
