//! Messages counted by a property of theirs (CON-11).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::matcher::CandidateHead;
use super::path::JsonPath;
use super::property::{field, text_of};
use super::{TextField, WHERE_CHARS_MAX};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of groups.
pub const GROUP_COUNT_MAX: usize = 1_000;
/// Maximum number of samples of a group.
pub const SAMPLE_COUNT_MAX: usize = 3;
/// Maximum length of a time slot.
const SLOT_SECONDS_MAX: i64 = 366 * 86_400;
/// Maximum number of characters of the value of a group.
const VALUE_CHARS_MAX: usize = 256;

/// Property by whose value messages are grouped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// Reason of the dead letter.
    Reason,
    /// [`fingerprint`] of the description of the dead letter.
    Description,
    /// Entity that dead-lettered the message.
    Source,
    /// Subject.
    Subject,
    /// Application property of this name.
    Property(Box<str>),
    /// First value of this path in the body.
    Json(JsonPath),
    /// Time slot of this length in which the message was enqueued.
    Slot(TimeSpan),
}

/// Groups of messages. A message with a new value is counted as *other* when there are
/// [`GROUP_COUNT_MAX`] groups.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Groups {
    by_value: BTreeMap<Option<Box<str>>, Group>,
    other: Option<Group>,
}

/// Messages with the same value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Number of messages.
    pub count: u64,
    /// Instant at which the first one was enqueued.
    pub first_at: Timestamp,
    /// Instant at which the last one was enqueued.
    pub last_at: Timestamp,
    /// Some of these messages, at most [`SAMPLE_COUNT_MAX`].
    pub samples: Vec<Sample>,
}

/// Groups, the largest first; equal ones are in the order of their values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SortedGroups {
    /// The groups.
    pub groups: Vec<ValueGroup>,
    /// Messages with further values.
    pub other: Option<Group>,
}

/// Group with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueGroup {
    /// The value; `None` for messages without one.
    pub value: Option<Box<str>>,
    /// The messages.
    pub group: Group,
}

/// Message in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Entity or sub-queue of the message.
    pub path: Arc<str>,
    /// Its number.
    pub sequence: SequenceNumber,
}

impl GroupBy {
    /// Parses `reason`, `description`, `source`, `subject`, `property:NAME`, `json:PATH` or
    /// `slot:SECONDS`. `Display` writes the same.
    ///
    /// # Errors
    /// `ArgumentError` for another text; `ArgumentOutOfRange` for a slot that is not 1 s to 366 days
    /// long.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let (kind, rest) =
            text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("reason", None) => Ok(Self::Reason),
            ("description", None) => Ok(Self::Description),
            ("source", None) => Ok(Self::Source),
            ("subject", None) => Ok(Self::Subject),
            ("property", Some(name)) if !name.is_empty() && name.len() <= WHERE_CHARS_MAX => {
                Ok(Self::Property(name.into()))
            }
            ("json", Some(path)) if path.len() <= WHERE_CHARS_MAX => {
                JsonPath::parse(path).map(Self::Json)
            }
            ("slot", Some(seconds)) => {
                let seconds =
                    seconds.parse().ok().filter(|seconds| (1..=SLOT_SECONDS_MAX).contains(seconds));
                let seconds = seconds.ok_or_else(|| {
                    Rejection::out_of_range(format!("a slot has 1 to {SLOT_SECONDS_MAX} seconds"))
                })?;
                Ok(Self::Slot(TimeSpan::from_seconds(seconds)))
            }
            _ => Err(Rejection::argument(
                "group by reason, description, source, subject, property:NAME, json:PATH or \
                 slot:SECONDS",
            )),
        }
    }

    /// Returns the value of a message that needs no body; `None` if the message has none.
    #[must_use]
    pub fn value(&self, head: &CandidateHead<'_>, enqueued_at: Timestamp) -> Option<String> {
        match self {
            Self::Reason => field(TextField::Reason, head).map(|text| cut(&text)),
            Self::Description => field(TextField::Description, head).map(|text| fingerprint(&text)),
            Self::Source => field(TextField::Source, head).map(|text| cut(&text)),
            Self::Subject => field(TextField::Subject, head).map(|text| cut(&text)),
            Self::Property(name) => {
                let value = head.message.application_property(name)?;
                text_of(value).map(|text| cut(&text))
            }
            Self::Json(_) => None,
            Self::Slot(span) => {
                let ticks = span.ticks().max(1);
                let start = enqueued_at.ticks() / ticks * ticks;
                Some(Timestamp::from_ticks(start).to_string())
            }
        }
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reason => f.write_str("reason"),
            Self::Description => f.write_str("description"),
            Self::Source => f.write_str("source"),
            Self::Subject => f.write_str("subject"),
            Self::Property(name) => write!(f, "property:{name}"),
            Self::Json(path) => write!(f, "json:{path}"),
            Self::Slot(span) => write!(f, "slot:{}", span.as_ms() / 1_000),
        }
    }
}

impl Groups {
    /// Counts a message with its value.
    pub fn add(&mut self, value: Option<String>, at: Timestamp, sample: Sample) {
        let value = value.map(|value| cut(&value).into_boxed_str());
        let is_full = self.by_value.len() >= GROUP_COUNT_MAX;
        let group = match self.by_value.get_mut(&value) {
            Some(group) => group,
            None if is_full => self.other.get_or_insert_with(|| Group::empty(at)),
            None => self.by_value.entry(value).or_insert_with(|| Group::empty(at)),
        };
        group.count += 1;
        (group.first_at, group.last_at) = (group.first_at.min(at), group.last_at.max(at));
        if group.samples.len() < SAMPLE_COUNT_MAX {
            group.samples.push(sample);
        }
    }

    /// Returns the groups with the largest first.
    #[must_use]
    pub fn into_sorted(self) -> SortedGroups {
        let groups = self.by_value.into_iter();
        let mut groups: Vec<_> = groups.map(|(value, group)| ValueGroup { value, group }).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.group.count));
        SortedGroups { groups, other: self.other }
    }
}

impl Group {
    const fn empty(at: Timestamp) -> Self {
        Self { count: 0, first_at: at, last_at: at, samples: Vec::new() }
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        None => text.to_owned(),
        Some(_) => text.chars().take(VALUE_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

/// Returns a text with its variable parts replaced by marks, so that texts about the same fault are
/// equal (CON-11): `{text}` for quoted parts, `{guid}`, `{hex}` for 8 or more hexadecimal digits,
/// and `{n}` for numbers. At most 256 characters.
#[must_use]
pub fn fingerprint(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text;
    // Quotes of which no further one follows, so that the text is looked through once for each.
    let mut unpaired = [false; 2];
    // Marks are cut with the rest of the text, so later parts do not change the result.
    while let Some(first) = rest.chars().next() {
        if made.len() > 4 * VALUE_CHARS_MAX {
            break;
        }
        let quote = ['"', '\''].iter().position(|quote| *quote == first);
        if let Some(is_unpaired) = quote.and_then(|place| unpaired.get_mut(place))
            && !*is_unpaired
        {
            if let Some((_, after)) = rest.get(1..).and_then(|inner| inner.split_once(first)) {
                made.push_str("{text}");
                rest = after;
                continue;
            }
            *is_unpaired = true;
        }
        if !first.is_ascii_alphanumeric() {
            made.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        if let Some(after) = after_guid(rest) {
            made.push_str("{guid}");
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, after) = rest.split_at_checked(end).unwrap_or_default();
        rest = after;
        write_word(word, &mut made);
        // The decimals or further groups of digits of a number.
        while word.ends_with(|c: char| c.is_ascii_digit()) && made.ends_with("{n}") {
            let more = rest.strip_prefix(['.', ',']).unwrap_or_default();
            let digits = more.find(|c: char| !c.is_ascii_digit()).unwrap_or(more.len());
            let is_end = !more
                .get(digits..)
                .unwrap_or_default()
                .starts_with(|c: char| c.is_ascii_alphabetic());
            if digits == 0 || !is_end {
                break;
            }
            rest = more.get(digits..).unwrap_or_default();
        }
    }
    cut(&made)
}

/// Returns the text after a GUID at its start.
fn after_guid(text: &str) -> Option<&str> {
    let (guid, after) = text.split_at_checked(36)?;
    let is_guid = guid.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    (is_guid && !after.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some(after)
}

/// Writes a word of ASCII letters and digits.
fn write_word(word: &str, made: &mut String) {
    let is_digit = |c: char| c.is_ascii_digit();
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let is_hex = digits.len() >= 8
        && digits.chars().all(|c| c.is_ascii_hexdigit())
        && !digits.chars().all(is_digit);
    if is_hex && word.contains(is_digit) {
        made.push_str("{hex}");
        return;
    }
    let mut is_in_number = false;
    for character in word.chars() {
        if !is_digit(character) {
            made.push(character);
        } else if !is_in_number {
            made.push_str("{n}");
        }
        is_in_number = is_digit(character);
    }
}
