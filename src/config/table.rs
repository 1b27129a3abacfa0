//! The form of a setting: a row with key, place in [`Config`], default, allowed values and documentation.
//!
//! Reading, checking, `peeklock config default`, `peeklock config check` and docs/reference/settings.md follow from the
//! rows in [`sections`](super::sections).

use std::iter;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use config::Value;
use peeklock::contract::Ceiling;
use peeklock::description::{FailureTarget, OnDestinationFull};
use peeklock::limits::{Amount, Tier};
use peeklock::listen::{Proxies, Source};
use peeklock::metrics_prometheus::EntityGauges;
use peeklock::time::TimeSpan;

use super::text::{FromText, List, Ratio, Scalar, ToScalar as _, span_text};
use super::{Config, LogFormat, StoreKind};

/// A row of the table.
pub struct Setting {
    /// The whole name, such as `http.address`.
    pub key: &'static str,
    /// The documentation: one sentence, then details after an empty line.
    pub doc: &'static str,
    /// The values that are allowed.
    pub allowed: Allowed,
    /// The value in a configuration.
    pub value: fn(&Config) -> &dyn SettingValue,
    /// Mutable access to the same value.
    pub value_mut: fn(&mut Config) -> &mut dyn SettingValue,
}

/// The permitted values of a setting, among the values of its type.
pub enum Allowed {
    /// Each that is read without an error; the text describes them on the reference page.
    Text(&'static str),
    /// Any text but an empty one; the noun stands for it in errors.
    NotEmpty(&'static str),
    /// Numbers in a range, with their unit.
    Numbers(RangeInclusive<u64>, &'static str),
    /// Zero, or a number in a range, with its unit.
    ZeroOr(RangeInclusive<u64>, &'static str),
    /// Durations in a range.
    Spans(RangeInclusive<TimeSpan>),
}

/// A value in the type that its user needs.
pub trait SettingValue {
    /// The value as a configuration file has it.
    fn written(&self) -> toml::Value;

    /// The value as a number or duration, if it has a range of these.
    fn amount(&self) -> Option<Amount> {
        None
    }

    /// Takes the value that a source has.
    ///
    /// # Errors
    /// For a value of another type.
    fn set(&mut self, value: Value) -> Result<(), config::ConfigError>;
}

impl Setting {
    /// The first sentence of the documentation, for a cell of a table.
    pub fn effect(&self) -> String {
        joined(self.doc.split("\n\n").next().unwrap_or_default())
    }

    /// The whole documentation with the allowed values, as a comment in a configuration file.
    pub fn comment(&self) -> String {
        let details = self.doc.split("\n\n").skip(1).map(joined);
        let allowed = match &self.allowed {
            Allowed::Text("") | Allowed::NotEmpty(_) => None,
            Allowed::Text(text) => Some(format!("Values: {text}")),
            _ => self.range_text().map(|range| format!("Range: {range}")),
        };
        let sentences = iter::once(self.effect()).chain(details).chain(allowed);
        wrapped(&sentences.map(|sentence| sentence + ".").collect::<Vec<_>>().join(" "))
    }

    /// The range in words, if there is one.
    pub fn range_text(&self) -> Option<String> {
        let number = |number: &u64| match size_text(*number) {
            Some(size) if self.is_size() => size,
            _ => number.to_string(),
        };
        Some(match &self.allowed {
            Allowed::Numbers(range, _) => {
                format!("{} to {}", number(range.start()), number(range.end()))
            }
            Allowed::ZeroOr(range, _) => {
                format!("0, or {} to {}", number(range.start()), number(range.end()))
            }
            Allowed::Spans(range) => {
                format!("{} to {}", span_text(*range.start()), span_text(*range.end()))
            }
            Allowed::Text(_) | Allowed::NotEmpty(_) => return None,
        })
    }

    /// Whether the value is a number of bytes.
    pub fn is_size(&self) -> bool {
        self.key.contains("_bytes")
    }

    /// Checks the value against the range.
    ///
    /// # Errors
    /// With the value, the range and the unit.
    pub fn check(&self, config: &Config) -> Result<(), String> {
        let value = (self.value)(config);
        let refused = |value: String, expected: String| {
            Err(format!("{value} is out of range; write {expected}"))
        };
        match (&self.allowed, value.amount()) {
            (Allowed::Numbers(range, unit), Some(Amount::Number(number)))
                if !range.contains(&number) =>
            {
                let (least, most) = (range.start(), range.end());
                refused(number.to_string(), format!("a number from {least} to {most} {unit}"))
            }
            (Allowed::ZeroOr(range, unit), Some(Amount::Number(number)))
                if number != 0 && !range.contains(&number) =>
            {
                let (least, most) = (range.start(), range.end());
                let expected = format!("0, or a number from {least} to {most} {unit}");
                refused(number.to_string(), expected)
            }
            (Allowed::Spans(range), Some(Amount::Span(span))) if !range.contains(&span) => {
                let [span, least, most] = [span, *range.start(), *range.end()].map(span_text);
                refused(span, format!("a duration from {least} to {most}"))
            }
            (Allowed::NotEmpty(noun), _)
                if value.written().as_str().is_some_and(|text| text.trim().is_empty()) =>
            {
                Err(format!(
                    "the {noun} is empty; write a {noun}, or remove the setting for its default"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// A size of at least 1 KiB in its largest unit.
pub fn size_text(bytes: u64) -> Option<String> {
    let units = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (bits, unit) =
        units.into_iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits)?;
    Some(format!("{} {unit}", bytes >> bits))
}

/// The lines of a paragraph as one, without the full stop at the end.
fn joined(paragraph: &str) -> String {
    let line = paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    line.trim().trim_end_matches('.').to_owned()
}

/// A comment in lines of up to 110 characters, without backticks.
pub fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in text.replace('`', "").split_whitespace() {
        if line.chars().count() + word.chars().count() >= 110 {
            lines.push_str(&line);
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

macro_rules! scalars {
    ($($type:ty, $written:expr $(, $amount:expr)?;)+) => {$(
        impl SettingValue for $type {
            fn written(&self) -> toml::Value {
                let written: fn(&$type) -> toml::Value = $written;
                written(self)
            }

            $(fn amount(&self) -> Option<Amount> {
                let amount: fn(&$type) -> Amount = $amount;
                Some(amount(self))
            })?

            fn set(&mut self, value: Value) -> Result<(), config::ConfigError> {
                let Scalar(value) = value.try_deserialize()?;
                *self = value;
                Ok(())
            }
        }
    )+};
}

scalars! {
    bool, |it| (*it).into();
    u32, |it| (*it).into(), |it| Amount::Number(u64::from(*it));
    u64, |it| it.to_scalar(), |it| Amount::Number(*it);
    usize, |it| (*it as u64).to_scalar(), |it| Amount::Number(*it as u64);
    Ratio, |it| it.0.into();
    TimeSpan, |it| span_text(*it).into(), |it| Amount::Span(*it);
    Duration, |it| TimeSpan::from_std(*it).written(), |it| Amount::Span(TimeSpan::from_std(*it));
    String, |it| it.as_str().into();
    Box<str>, |it| (**it).into();
    Option<String>, |it| it.as_deref().unwrap_or_default().into();
    SocketAddr, |it| it.to_string().into();
    Option<Ceiling>, |it| it.map_or("", Ceiling::name).into();
    Option<SocketAddr>, |it| it.map_or_else(String::new, |it| it.to_string()).into();
    Tier, |it| it.to_scalar();
    FailureTarget, |it| it.to_scalar();
    OnDestinationFull, |it| it.to_scalar();
    LogFormat, |it| it.to_scalar();
    StoreKind, |it| it.to_scalar();
    EntityGauges, |it| it.to_string().into();
}

impl SettingValue for Vec<String> {
    fn written(&self) -> toml::Value {
        self.clone().into()
    }

    fn set(&mut self, value: Value) -> Result<(), config::ConfigError> {
        let List(texts) = value.try_deserialize()?;
        *self = texts;
        Ok(())
    }
}

/// Proxies, by their addresses and networks (LIS-04).
impl SettingValue for Proxies {
    fn written(&self) -> toml::Value {
        self.sources().iter().map(Source::to_string).collect::<Vec<_>>().into()
    }

    fn set(&mut self, value: Value) -> Result<(), config::ConfigError> {
        let List(texts) = value.try_deserialize()?;
        let sources: Result<_, _> = texts.iter().map(|text| text.parse()).collect();
        let refused = |error: <Source as std::str::FromStr>::Err| {
            config::ConfigError::Message(error.to_string())
        };
        *self = Self::at(sources.map_err(refused)?);
        Ok(())
    }
}

impl FromText for Duration {
    const EXPECTED: &'static str = TimeSpan::EXPECTED;

    fn from_text(text: &str) -> Option<Self> {
        TimeSpan::from_text(text).map(TimeSpan::to_std)
    }
}

impl FromText for Box<str> {
    const EXPECTED: &'static str = String::EXPECTED;

    fn from_text(text: &str) -> Option<Self> {
        Some(text.into())
    }
}

/// A text, or none if it is empty.
impl FromText for Option<String> {
    const EXPECTED: &'static str = String::EXPECTED;

    fn from_text(text: &str) -> Option<Self> {
        Some(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }
}

/// An address, or none if the text is empty.
impl FromText for Option<SocketAddr> {
    const EXPECTED: &'static str =
        "an IP address with a port, such as 0.0.0.0:5671, or empty for none";

    fn from_text(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
    }
}

/// The field of a row: it has the name of the key unless another is given.
macro_rules! field {
    ($config:ident.$part:ident.$name:ident) => {
        $config.$part.$name
    };
    ($config:ident.$part:ident.$name:ident $field:ident $(. $inner:ident)?) => {
        $config.$part.$field $(.$inner)?
    };
}

/// The rows of a section whose values are in a part of [`Config`].
macro_rules! section {
    ($rows:ident = $section:literal in $part:ident {
        $($(#[doc = $doc:literal])+ $name:ident $(as $field:ident $(. $inner:ident)?)?, $allowed:expr;)+
    }) => {
        pub(super) const $rows: &[Setting] = &[$(Setting {
            key: concat!($section, ".", stringify!($name)),
            doc: concat!($($doc, "\n"),+),
            allowed: $allowed,
            value: |config| &field!(config.$part.$name $($field $(. $inner)?)?),
            value_mut: |config| &mut field!(config.$part.$name $($field $(. $inner)?)?),
        }),+];
    };
}

/// A section with a type of its own: the type, its defaults, and its rows. A list of tables comes last.
macro_rules! own_section {
    ($(#[doc = $about:literal])+ $type:ident, $rows:ident = $section:literal in $part:ident {
        $($(#[doc = $doc:literal])+ $name:ident: $kind:ty = $default:expr, $allowed:expr;)+
        $([[$table:ident]]: $element:ty;)?
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $type {
            $($(#[doc = $doc])+ pub $name: $kind,)+
            $(/// The tables of that name.
            pub $table: Vec<$element>,)?
        }

        impl Default for $type {
            fn default() -> Self {
                Self { $($name: $default,)+ $($table: Vec::new(),)? }
            }
        }

        section! {
            $rows = $section in $part { $($(#[doc = $doc])+ $name, $allowed;)+ }
        }
    };
}

pub(super) use {field, own_section, section};
