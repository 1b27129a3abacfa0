//! The section `[limits]`: each limit of the table [`Limits::TABLE`] may be changed (QUO-02).
//! `config.rs` reads and prints the section with it.

use std::fmt::Write as _;

use config::Value;
use peeklock::limits::{Amount, Limit, Limits};
use peeklock::time::TimeSpan;

use super::table::wrapped;
use super::text::{Scalar, span_text};

/// Sets a limit to the value that a source has.
///
/// # Errors
/// For a value of another type, or out of the range.
pub(super) fn set(
    limits: &mut Limits,
    limit: &Limit,
    value: Value,
) -> Result<(), config::ConfigError> {
    let amount = match limit.range() {
        [Amount::Number(_), _] => Amount::Number(value.try_deserialize::<Scalar<u64>>()?.0),
        [Amount::Span(_), _] => Amount::Span(value.try_deserialize::<Scalar<TimeSpan>>()?.0),
    };
    limit
        .set(limits, amount)
        .map_err(|rejection| config::ConfigError::Message(rejection.detail().to_owned()))
}

/// A value as a configuration file has it, without quotes.
pub(super) fn written(value: Amount) -> String {
    match value {
        Amount::Number(number) => number.to_string(),
        Amount::Span(span) => span_text(span),
    }
}

/// Name and value of every limit, in the order of the table.
pub fn list(limits: &Limits) -> impl Iterator<Item = (&'static str, String)> {
    Limits::TABLE.iter().map(|limit| (limit.name, written(limit.of(limits))))
}

/// The section in `peeklock config default`: the defaults of the tier Premium, as comments.
pub(super) fn documented() -> String {
    let defaults = Limits::default();
    let mut text = String::new();
    for limit in Limits::TABLE {
        let value = match limit.of(&defaults) {
            Amount::Number(number) => number.to_string(),
            Amount::Span(span) => format!("\"{}\"", span_text(span)),
        };
        let [least, most] = limit.range();
        let range = match most {
            Amount::Number(u64::MAX) => format!("At least {}", written(least)),
            _ => format!("From {} to {}", written(least), written(most)),
        };
        let comment = wrapped(&format!("{}. {range}.", limit.effect()));
        writeln!(text, "{comment}# {} = {value}", limit.name).ok();
    }
    text
}
