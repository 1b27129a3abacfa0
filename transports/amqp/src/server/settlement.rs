//! Conversion of outcomes of AMQP to settlements of the broker (AMQP-60 to AMQP-63). `settle.rs`
//! and the management node use it.

use peeklock_core::command::Settlement;
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::limits::Limits;
use peeklock_core::message::Value;
use peeklock_words::amqp::Scalar;

use crate::codec::value::Map;
use crate::error::{AmqpError, condition};
use crate::state::{Modified, Outcome, Rejected};

/// Entries in the `info` of a dead-letter that are not properties to change.
const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

/// The last converted outcome. A disposition has the same outcome for every delivery of its range,
/// and may set as many properties as a frame has room for, so the result is shared.
#[derive(Default)]
pub(super) struct SettlementCache(Option<(Outcome, Result<Settlement, Rejection>)>);

impl SettlementCache {
    /// Returns the settlement of an outcome; equal consecutive outcomes are converted once.
    pub(super) fn settlement(
        &mut self,
        outcome: &Outcome,
        limits: &Limits,
    ) -> Result<Settlement, Rejection> {
        match &self.0 {
            Some((last, understood)) if last == outcome => understood.clone(),
            _ => {
                let understood = settlement(outcome, limits);
                self.0 = Some((outcome.clone(), understood.clone()));
                understood
            }
        }
    }
}

/// Returns the answer to a success: the outcome of the client (AMQP-60), without an error
/// (AMQP-61).
pub(super) fn same_kind(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Rejected(_) => Outcome::Rejected(Rejected { error: None }),
        Outcome::Modified(modified) => {
            Outcome::Modified(Modified { message_annotations: None, ..modified })
        }
        other => other,
    }
}

/// Converts an outcome.
fn settlement(outcome: &Outcome, limits: &Limits) -> Result<Settlement, Rejection> {
    Ok(match outcome {
        Outcome::Accepted => Settlement::Complete,
        Outcome::Released => Settlement::Release,
        Outcome::Modified(modified) => {
            let changes = properties(modified.message_annotations.as_ref())?;
            if modified.undeliverable_here != Some(true) {
                return Settlement::abandon(&changes, None);
            }
            Settlement::defer(&changes)?
        }
        Outcome::Rejected(Rejected { error }) => {
            let info = error.as_ref().and_then(AmqpError::info);
            let mut changes = properties(info)?;
            let reason = text(info, REASON);
            let description = text(info, DESCRIPTION);
            // With other types they are ordinary properties (AMQP-63).
            changes.retain(|(name, value)| {
                let is_text = matches!(value, Value::String(_) | Value::Null);
                !is_text || (name != REASON && name != DESCRIPTION)
            });
            let [reason, description] = [&reason, &description].map(Option::as_deref);
            Settlement::dead_letter(reason, description, &changes, limits)?
        }
        Outcome::Declared(_) => {
            let detail =
                format!("declared is not an outcome of a message ({})", condition::NOT_ALLOWED);
            return Err(Rejection::new(Condition::InvalidOperation, detail));
        }
    })
}

fn text(info: Option<&Map>, name: &str) -> Option<String> {
    match info?.get(name)?.scalar() {
        Ok(Scalar::Text(text) | Scalar::Symbol(text)) if !text.is_empty() => Some(text.to_owned()),
        _ => None,
    }
}

/// Reads the properties to change (AMQP-63).
pub(super) fn properties(map: Option<&Map>) -> Result<Vec<(String, Value)>, Rejection> {
    let mut changes = Vec::new();
    for (key, value) in map.into_iter().flat_map(Map::entries) {
        let Ok(Scalar::Text(key) | Scalar::Symbol(key)) = key.scalar() else {
            return Err(Rejection::argument("name of a property to change must be text"));
        };
        let value = Value::decode(value.as_bytes()).map_err(|error| {
            Rejection::argument(format!("value of the property to change `{key:.64}`: {error}"))
        })?;
        changes.push((key.to_owned(), value));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use peeklock_words::amqp::write;

    use super::*;
    use crate::codec::value::Raw;

    /// An abandon that sets a property of this name, or a property whose name is not text.
    fn changed(name: Option<&str>) -> Outcome {
        let value = Raw::encoded(|bytes| write::text(bytes, "v"));
        let map = match name {
            Some(name) => Map::of_symbols([(name, value)]),
            None => Map::from_raw(Raw::encoded(|bytes| {
                bytes.extend_from_slice(&[0xc1, 0x03, 0x02, 0x40, 0x40]);
            }))
            .unwrap(),
        };
        Outcome::Modified(Modified { message_annotations: Some(map), ..Modified::default() })
    }

    /// Address of the properties that a settlement sets.
    fn set(settlement: &Settlement) -> *const u8 {
        match settlement {
            Settlement::Abandon { properties: Some(overlay), .. } => overlay.as_bytes().as_ptr(),
            other => panic!("{other:?}"),
        }
    }

    /// AMQP-63, DESIGN D6: the properties of a disposition are decoded once and shared by all its
    /// deliveries. Another disposition sets its own.
    #[test]
    fn outcome_of_many_deliveries_is_converted_once() {
        let (mut understood, limits) = (SettlementCache::default(), Limits::default());
        let mut of = |name| understood.settlement(&changed(name), &limits);
        let first = of(Some("a")).unwrap();
        let (again, other) = (of(Some("a")).unwrap(), of(Some("b")).unwrap());
        assert_eq!(set(&first), set(&again));
        assert_ne!(set(&first), set(&other));
        // An invalid outcome fails each time, and does not affect the next one.
        for _ in 0..2 {
            assert_eq!(of(None).unwrap_err().condition(), Condition::ArgumentError);
        }
        assert!(of(Some("b")).is_ok());
    }
}
