//! The properties of a message, read in place. Filters and actions of rules read them.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::changes::{ChangesByKey, PropertyEdit};
use super::codec::{self, IdRef};
use super::content::View;
use super::settable::set_broker;
use super::{Content, Overlay, ValueRef};
use crate::time::{TimeSpan, Timestamp};

#[cfg(test)]
mod tests;

/// Maximum number of application properties that need no allocation.
const INLINE_PROPERTIES: usize = 16;

/// The properties of a message. Texts and bytes are borrowed from the content. An id that is not
/// text has its text form here (AMQ-21).
#[derive(Clone, Debug)]
pub struct PropertyView<'a> {
    entries: SmallVec<[Entry<'a>; INLINE_PROPERTIES]>,
    message_id: Option<Cow<'a, str>>,
    correlation_id: Option<Cow<'a, str>>,
    session_id: Option<&'a str>,
    partition_key: Option<&'a str>,
    transaction_partition_key: Option<&'a str>,
    reply_to_session_id: Option<&'a str>,
    content_type: Option<&'a str>,
    subject: Option<&'a str>,
    to: Option<&'a str>,
    reply_to: Option<&'a str>,
    time_to_live: Option<TimeSpan>,
    scheduled_enqueue_time: Option<Timestamp>,
    force_persistence: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    key: &'a str,
    /// Nearly all keys are ASCII, and such keys are compared fast.
    is_ascii: bool,
    value: Encoded<'a>,
}

/// A value, decoded on demand, because filters read few.
#[derive(Clone, Copy, Debug)]
enum Encoded<'a> {
    Bytes(&'a [u8]),
    Read(ValueRef<'a>),
}

impl Content {
    /// The properties of this message.
    #[must_use]
    pub fn property_view(&self) -> PropertyView<'_> {
        let View { time_to_live, annotations, properties } = self.view();
        let entries = self
            .application_entries()
            .filter_map(|entry| Some(Entry::new(entry.key()?, Encoded::Bytes(entry.value))));
        PropertyView {
            entries: entries.collect(),
            message_id: properties.message_id.map(IdRef::text),
            correlation_id: properties.correlation_id.map(IdRef::text),
            session_id: properties.group_id,
            partition_key: annotations.partition_key,
            transaction_partition_key: annotations.via_partition_key,
            reply_to_session_id: properties.reply_to_group_id,
            content_type: properties.content_type,
            subject: properties.subject,
            to: properties.to,
            reply_to: properties.reply_to,
            time_to_live,
            scheduled_enqueue_time: annotations.scheduled_enqueue_time.map(Timestamp::from_unix_ms),
            force_persistence: annotations.force_persistence,
        }
    }
}

impl<'a> PropertyView<'a> {
    /// Applies the changes of an overlay, in time proportional to both.
    #[must_use]
    pub fn with(mut self, overlay: &'a Overlay) -> Self {
        let mut changes = ChangesByKey::of(overlay, |property, value| {
            set_broker!(self, property, value, id_of, std::convert::identity);
        });
        self.entries.retain(|entry| match changes.next(entry.key) {
            PropertyEdit::Keep => true,
            PropertyEdit::Remove => false,
            PropertyEdit::Set(value) => {
                entry.value = Encoded::Read(value);
                true
            }
        });
        let new = changes.into_new().map(|(key, value)| Entry::new(key, Encoded::Read(value)));
        self.entries.extend(new);
        self
    }

    /// The keys of the application properties, in order.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.entries.iter().map(|entry| entry.key)
    }

    /// Number of application properties.
    #[must_use]
    pub fn property_count(&self) -> usize {
        self.entries.len()
    }

    /// The application property that `name` refers to in a rule: the property with exactly this
    /// key, otherwise the first in byte order among keys that differ only in case (SQL-07).
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<(&'a str, ValueRef<'a>)> {
        let is_ascii = name.is_ascii();
        let mut found: Option<&Entry<'a>> = None;
        for entry in &self.entries {
            let same = match is_ascii && entry.is_ascii {
                true => entry.key.eq_ignore_ascii_case(name),
                false => same_name(entry.key, name),
            };
            if !same {
                continue;
            }
            if entry.key == name {
                found = Some(entry);
                break;
            }
            if found.is_none_or(|before| entry.key < before.key) {
                found = Some(entry);
            }
        }
        found.map(|entry| (entry.key, entry.value.read()))
    }

    /// The text form of the message id (AMQ-21).
    #[must_use]
    pub fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The text form of the correlation id (AMQ-21).
    #[must_use]
    pub fn correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// The session id in the sender's spelling.
    #[must_use]
    pub const fn session_id(&self) -> Option<&'a str> {
        self.session_id
    }

    /// The partition key.
    #[must_use]
    pub const fn partition_key(&self) -> Option<&'a str> {
        self.partition_key
    }

    /// The transaction partition key.
    #[must_use]
    pub const fn transaction_partition_key(&self) -> Option<&'a str> {
        self.transaction_partition_key
    }

    /// The session for answers.
    #[must_use]
    pub const fn reply_to_session_id(&self) -> Option<&'a str> {
        self.reply_to_session_id
    }

    /// The media type of the body.
    #[must_use]
    pub const fn content_type(&self) -> Option<&'a str> {
        self.content_type
    }

    /// The subject, also known as label.
    #[must_use]
    pub const fn subject(&self) -> Option<&'a str> {
        self.subject
    }

    /// The address that the sender intended.
    #[must_use]
    pub const fn to(&self) -> Option<&'a str> {
        self.to
    }

    /// The address for answers.
    #[must_use]
    pub const fn reply_to(&self) -> Option<&'a str> {
        self.reply_to
    }

    /// The sender's time to live.
    #[must_use]
    pub const fn time_to_live(&self) -> Option<TimeSpan> {
        self.time_to_live
    }

    /// The instant at which the sender wants the message enqueued.
    #[must_use]
    pub const fn scheduled_enqueue_time(&self) -> Option<Timestamp> {
        self.scheduled_enqueue_time
    }

    /// Whether the sender requested persistence.
    #[must_use]
    pub const fn force_persistence(&self) -> bool {
        self.force_persistence
    }
}

fn id_of(text: Option<&str>) -> Option<Cow<'_, str>> {
    text.map(Cow::Borrowed)
}

impl<'a> Entry<'a> {
    fn new(key: &'a str, value: Encoded<'a>) -> Self {
        Self { key, is_ascii: key.is_ascii(), value }
    }
}

impl<'a> Encoded<'a> {
    /// Decodes the value. Content was checked, so an unreadable value has a type that is refused on
    /// send; it reads as null.
    fn read(self) -> ValueRef<'a> {
        match self {
            Self::Read(value) => value,
            Self::Bytes(bytes) => codec::read_value_ref(bytes).unwrap_or(ValueRef::Null),
        }
    }
}

/// Whether two names of properties are equal, ignoring case (SQL-07).
#[must_use]
pub(crate) fn same_name(left: &str, right: &str) -> bool {
    if left.len() == right.len() && left.eq_ignore_ascii_case(right) {
        return true;
    }
    if left.is_ascii() && right.is_ascii() {
        return false;
    }
    let left = left.chars().flat_map(char::to_lowercase);
    left.eq(right.chars().flat_map(char::to_lowercase))
}

/// The folded form, which is equal for exactly those names that [`same_name`] treats as equal.
pub(crate) fn folded_name(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).collect()
}
