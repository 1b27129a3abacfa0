//! Reads scalars from text. A value from a file, the environment or a flag passes the same check,
//! and its error has one form: the value and the expected form.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

use peeklock::contract::Ceiling;
use peeklock::description::{
    EntityStatus, FailureTarget, Jitter, OnDestinationFull, RetryKind, SessionRetryOrder,
};
use peeklock::limits::Tier;
use peeklock::time::TimeSpan;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use super::{LogFormat, StoreKind};

const DAY_SECONDS: u64 = 24 * 60 * 60;
/// The word for a duration without end.
const UNLIMITED: &str = "unlimited";

/// A value that is written as a word or a number.
pub trait FromText: Sized {
    /// Completes the sentence "`x` is not ...".
    const EXPECTED: &'static str;

    /// Parses the value; none if the text has another form.
    fn from_text(text: &str) -> Option<Self>;
}

/// A scalar in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scalar<T>(pub T);

/// A ratio from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio(pub f64);

/// A list in the configuration. In the environment it is separated by commas or written as a TOML
/// list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List(pub Vec<String>);

impl FromText for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

macro_rules! whole_numbers {
    ($($number:ident)*) => {$(
        impl FromText for $number {
            const EXPECTED: &'static str =
                concat!("a whole number from 0 to the largest of ", stringify!($number));

            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

whole_numbers!(u8 u16 u32 u64 usize);

impl FromText for String {
    const EXPECTED: &'static str = "a text";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl FromText for SocketAddr {
    const EXPECTED: &'static str =
        "an IP address with a port, such as 127.0.0.1:5300 or [::1]:5300";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// Types whose values are the given words.
macro_rules! words {
    ($($type:ident, $expected:literal { $($variant:ident = $word:literal,)+ })+) => {$(
        impl FromText for $type {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl ToScalar for $type {
            fn to_scalar(&self) -> toml::Value {
                match self {
                    $(Self::$variant => $word.into(),)+
                }
            }
        }
    )+};
}

/// Types that define the words of their values.
macro_rules! own_words {
    ($($type:ident, $expected:literal;)+) => {$(
        impl FromText for $type {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Option<Self> {
                Self::parse(text)
            }
        }

        impl ToScalar for $type {
            fn to_scalar(&self) -> toml::Value {
                self.name().into()
            }
        }
    )+};
}

own_words! {
    Tier, "a tier: Basic, Standard or Premium";
    EntityStatus, "a status: Active, Disabled, SendDisabled or ReceiveDisabled";
    RetryKind, "a kind of retry: fixed, linear or exponential";
    SessionRetryOrder, "an order of retries: hold or pass";
}

words! {
    FailureTarget, "transfer_dead_letter or dead_letter" {
        TransferDeadLetter = "transfer_dead_letter",
        DeadLetter = "dead_letter",
    }
    OnDestinationFull, "transfer_dead_letter or hold" {
        TransferDeadLetter = "transfer_dead_letter",
        Hold = "hold",
    }
    LogFormat, "a log format: text or json" {
        Text = "text",
        Json = "json",
    }
    StoreKind, "a store: journal or postgres" {
        Journal = "journal",
        Postgres = "postgres",
    }
}

/// A role, or nothing.
impl FromText for Option<Ceiling> {
    const EXPECTED: &'static str = "a role: viewer, operator or admin";

    fn from_text(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { Ceiling::named(text).map(Some) }
    }
}

impl FromText for Ratio {
    const EXPECTED: &'static str = "a number from 0 to 1";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().filter(|part| (0.0..=1.0).contains(part)).map(Self)
    }
}

impl FromText for Jitter {
    const EXPECTED: &'static str = "a number from 0 to 1";

    fn from_text(text: &str) -> Option<Self> {
        Self::of(text.parse().ok()?).ok()
    }
}

/// ISO 8601 or the usual short form: `PT30S`, `30s`, `1h 30m`, `unlimited`.
impl FromText for TimeSpan {
    const EXPECTED: &'static str =
        "a duration, such as \"30s\", \"1h 30m\", \"PT30S\" or \"unlimited\"";

    fn from_text(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case(UNLIMITED) {
            return Some(Self::MAX);
        }
        let human = || humantime::parse_duration(text).ok().map(Self::from_std);
        Self::parse(text).or_else(human)
    }
}

/// A value that is written to a file that is read again.
pub trait ToScalar {
    /// The value as text, number or boolean.
    fn to_scalar(&self) -> toml::Value;
}

impl ToScalar for bool {
    fn to_scalar(&self) -> toml::Value {
        (*self).into()
    }
}

impl ToScalar for u32 {
    fn to_scalar(&self) -> toml::Value {
        (*self).into()
    }
}

impl ToScalar for u64 {
    fn to_scalar(&self) -> toml::Value {
        // TOML integers have 63 bits; a greater number is written as text, which is read the same
        // way.
        i64::try_from(*self).map_or_else(|_| self.to_string().into(), Into::into)
    }
}

impl ToScalar for String {
    fn to_scalar(&self) -> toml::Value {
        self.as_str().into()
    }
}

impl ToScalar for Jitter {
    fn to_scalar(&self) -> toml::Value {
        self.part().into()
    }
}

/// ISO 8601, which is exact.
impl ToScalar for TimeSpan {
    fn to_scalar(&self) -> toml::Value {
        if self.is_unlimited() { UNLIMITED.into() } else { self.to_string().into() }
    }
}

impl<T: ToScalar> Serialize for Scalar<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_scalar().serialize(serializer)
    }
}

/// A duration as configuration files write it.
pub fn span_text(span: TimeSpan) -> String {
    if span.is_unlimited() {
        return UNLIMITED.to_owned();
    }
    // `humantime` would write months and years, which are not whole numbers of days.
    let span = span.to_std();
    match (span.as_secs() / DAY_SECONDS, span.as_secs() % DAY_SECONDS, span.subsec_nanos()) {
        (days @ 2.., 0, 0) => format!("{days}days"),
        _ => humantime::format_duration(span).to_string(),
    }
}

impl<'de, T: FromText> Deserialize<'de> for Scalar<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(PhantomData))
    }
}

struct ScalarVisitor<T>(PhantomData<T>);

impl<T: FromText> ScalarVisitor<T> {
    fn read<E: de::Error>(text: &str) -> Result<Scalar<T>, E> {
        T::from_text(text)
            .map(Scalar)
            .ok_or_else(|| E::custom(format_args!("`{text}` is not {}", T::EXPECTED)))
    }
}

impl<T: FromText> Visitor<'_> for ScalarVisitor<T> {
    type Value = Scalar<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::read(text)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Self::read(&value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Self::read(&value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Self::read(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Self::read(&value.to_string())
    }
}

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor)
    }
}

impl List {
    /// Reads a list from one text, such as an environment variable: parts separated by commas, or a
    /// TOML list of texts.
    ///
    /// # Errors
    /// For a text that begins like a TOML list and is not one; the error names the expected form.
    pub fn read(text: &str) -> Result<Self, String> {
        #[derive(serde::Deserialize)]
        struct Written {
            list: Vec<String>,
        }
        let text = text.trim();
        if text.starts_with('[') {
            return toml::from_str(&format!("list = {text}")).map(|Written { list }| Self(list)).map_err(|_| {
                format!(
                    "`{text}` is not a list of texts; write [\"a\", \"b\"], or a, b in the environment and in flags"
                )
            });
        }
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(Self(parts.map(str::to_owned).collect()))
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = List;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of texts, such as [\"broker.internal\"]")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        List::read(text).map_err(E::custom)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(part) = parts.next_element()? {
            list.push(part);
        }
        Ok(List(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: Option<TimeSpan>) {
        assert_eq!(TimeSpan::from_text(given), expected, "{given}");
    }

    #[test]
    fn durations_are_iso_or_human() {
        check("30s", Some(TimeSpan::from_seconds(30)));
        check("PT30S", Some(TimeSpan::from_seconds(30)));
        check("1h 30m", Some(TimeSpan::from_minutes(90)));
        check("14days", Some(TimeSpan::from_days(14)));
        check("P14D", Some(TimeSpan::from_days(14)));
        check("unlimited", Some(TimeSpan::MAX));
        check("30", None);
        check("-30s", None);
        check("soon", None);
    }

    #[test]
    fn a_written_duration_is_read_back() {
        for span in
            [TimeSpan::from_ms(1), TimeSpan::from_minutes(5), TimeSpan::from_days(1), TimeSpan::MAX]
        {
            check(&span_text(span), Some(span));
        }
        assert_eq!(span_text(TimeSpan::from_days(365)), "365days");
    }
}
