//! The section `[limits]`: each limit of the table [`Limits::TABLE`] may be changed (QUO-02).

use std::fmt::{self, Write as _};

use peeklock::limits::{Amount, Limit, Limits};
use peeklock::time::TimeSpan;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::text::{Scalar, span_text};

/// The limits that a configuration names; the others keep the values of the tier.
#[derive(Clone, Debug, Default)]
pub struct LimitsSection(Vec<(&'static Limit, Amount)>);

impl LimitsSection {
    /// Puts these limits over those of the tier.
    ///
    /// # Errors
    /// Key and reason of a value that is out of its range.
    pub(super) fn apply_to(&self, limits: &mut Limits) -> Result<(), (String, String)> {
        self.0.iter().try_for_each(|(limit, value)| {
            limit.set(limits, *value).map_err(|rejection| {
                (format!("limits.{}", limit.name), rejection.detail().to_owned())
            })
        })
    }
}

impl<'de> Deserialize<'de> for LimitsSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Section)
    }
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = LimitsSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of limits")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut values = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let Some(limit) = Limit::named(&name) else {
                let known: Vec<_> =
                    Limits::TABLE.iter().map(|limit| format!("`{}`", limit.name)).collect();
                let known = known.join(", ");
                // In the words of serde, from which the nearest key is found.
                return Err(Error::custom(format!(
                    "unknown field `{name}`, expected one of {known}"
                )));
            };
            let value = match limit.range() {
                [Amount::Number(_), _] => Amount::Number(map.next_value::<Scalar<u64>>()?.0),
                [Amount::Span(_), _] => Amount::Span(map.next_value::<Scalar<TimeSpan>>()?.0),
            };
            values.push((limit, value));
        }
        Ok(LimitsSection(values))
    }
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

/// The section as `peeklock config default` prints it: the defaults of the tier Premium, as comments.
pub(super) fn documented() -> String {
    let defaults = Limits::default();
    let mut text = String::from("[limits]\n");
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
        let effect = limit.effect().replace('`', "");
        let name = limit.name;
        write!(text, "# {effect}. {range}.\n# {name} = {value}\n").ok();
    }
    text
}
