//! Properties that settlements and rule actions change, kept next to the content of a message
//! (SET-08, ACT-01, DESIGN D8).
//!
//! An overlay is an AMQP map. A text key sets the application property of that name, or removes it
//! if the value is the empty list, which no property can have (MSG-21). A symbol key sets the
//! broker property of that name, or unsets it if the value is null.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::changes::{ChangesByKey, PropertyEdit};
use super::codec::{self, Compound};
use super::envelope::{check_property_size, doubled_key, empty_key};
use super::settable::set_broker;
use super::{Message, MessageId, PropertyLimits, SettableProperty, Value, ValueRef};
use crate::error::Rejection;
use crate::time::TimeSpan;

/// The application property with the reason of a dead letter (DLQ-14).
pub const DEAD_LETTER_REASON: &str = "DeadLetterReason";
/// The application property with the description of a dead letter (DLQ-14).
pub const DEAD_LETTER_ERROR_DESCRIPTION: &str = "DeadLetterErrorDescription";

/// The broker property that names the entity in which a message was dead-lettered (FWD-26). Only
/// the broker sets it, in a separate overlay.
const DEAD_LETTER_SOURCE: &str = "DeadLetterSource";

/// Properties to add, overwrite or remove, as an encoded AMQP map. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlay {
    map: Bytes,
}

/// One change of an overlay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum PropertyChange<'a> {
    /// Adds or overwrites the application property with exactly this key.
    Set(&'a str, ValueRef<'a>),
    /// Removes the application property with exactly this key.
    Remove(&'a str),
    /// Sets a broker property; null unsets it.
    SetBroker(SettableProperty, ValueRef<'a>),
}

/// Whether an entry changes a broker property, and its name. `None` if the key is not text.
fn identity<'a>(entry: &codec::PropertyEntry<'a>) -> Option<(bool, &'a str)> {
    Some((entry.has_symbol_key(), entry.key()?))
}

impl Overlay {
    /// An overlay of these properties. The caller must check with [`Overlay::check`] whether a
    /// message may have them.
    ///
    /// # Errors
    /// `ArgumentError` if a key is empty or occurs twice (MSG-22).
    pub fn encode(properties: &[(String, Value)]) -> Result<Self, Rejection> {
        Self::from_properties(properties.iter().map(|(key, value)| (key.as_str(), value)))
    }

    /// An overlay of a dead-letter reason and description (DLQ-14), each omitted if not given
    /// (DLQ-19), and of further properties. A given reason or description overrides a further
    /// property of the same name.
    ///
    /// # Errors
    /// As [`Overlay::encode`].
    pub fn dead_letter(
        reason: Option<&str>,
        description: Option<&str>,
        further: &[(String, Value)],
    ) -> Result<Self, Rejection> {
        let given = [(DEAD_LETTER_REASON, reason), (DEAD_LETTER_ERROR_DESCRIPTION, description)]
            .map(|(key, text)| (key, text.map(Value::from)));
        let is_given = |key: &str| given.iter().any(|(name, text)| text.is_some() && key == *name);
        let further = further.iter().map(|(key, value)| (key.as_str(), value));
        Self::from_properties(
            given
                .iter()
                .filter_map(|(key, text)| Some((*key, text.as_ref()?)))
                .chain(further.filter(|(key, _)| !is_given(key))),
        )
    }

    /// An overlay that names the entity in which a message was dead-lettered (FWD-26).
    #[must_use]
    pub fn dead_letter_source(path: &str) -> Self {
        let mut items = Vec::new();
        codec::symbol(&mut items, DEAD_LETTER_SOURCE);
        codec::write_value(&mut items, &Value::from(path));
        Self::from_items(&items, 2)
    }

    /// An overlay that sets the time to live (EXP-16).
    #[must_use]
    pub fn time_to_live(time_to_live: TimeSpan) -> Self {
        let value = Value::TimeSpan(time_to_live.ticks());
        let set = PropertyChange::SetBroker(SettableProperty::TimeToLive, value.borrow());
        Self::of_changes(std::iter::once(set))
    }

    /// The entity in which a message with these overlays, the oldest first, was dead-lettered
    /// before it was forwarded. `None` if it was not.
    #[must_use]
    pub fn dead_letter_source_of<'a>(
        overlays: impl DoubleEndedIterator<Item = &'a Self>,
    ) -> Option<&'a str> {
        overlays.rev().find_map(|overlay| {
            codec::entries(&overlay.map).find_map(|entry| {
                if !entry.has_symbol_key() || entry.key()? != DEAD_LETTER_SOURCE {
                    return None;
                }
                match codec::read_value_ref(entry.value).ok()? {
                    ValueRef::String(path) => Some(path),
                    _ => None,
                }
            })
        })
    }

    fn from_properties<'a>(
        properties: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> Result<Self, Rejection> {
        let mut items = Vec::new();
        let mut keys = BTreeSet::new();
        for (key, value) in properties {
            if key.is_empty() {
                return Err(empty_key());
            }
            if !keys.insert(key) {
                return Err(doubled_key(key));
            }
            codec::text(&mut items, key);
            codec::write_value(&mut items, value);
        }
        Ok(Self::from_items(&items, keys.len() * 2))
    }

    /// An overlay of these changes, each for another property. It is not checked against any limit:
    /// a step inside the broker cannot be refused (DLQ-20).
    #[must_use]
    pub fn of_changes<'a>(changes: impl IntoIterator<Item = PropertyChange<'a>>) -> Self {
        let mut items = Vec::new();
        let mut count = 0;
        for change in changes {
            count += 2;
            match change {
                PropertyChange::Set(key, value) => {
                    codec::text(&mut items, key);
                    codec::write_value(&mut items, &value.to_value());
                }
                PropertyChange::Remove(key) => {
                    codec::text(&mut items, key);
                    codec::empty_list(&mut items);
                }
                PropertyChange::SetBroker(property, value) => {
                    codec::symbol(&mut items, property.name());
                    codec::write_value(&mut items, &value.to_value());
                }
            }
        }
        Self::from_items(&items, count)
    }

    pub(super) fn from_items(items: &[u8], count: usize) -> Self {
        let bytes = codec::compound_bytes(Compound::Map, items.len(), count);
        let mut map = Vec::with_capacity(bytes);
        codec::compound(&mut map, Compound::Map, items.len(), count);
        map.extend_from_slice(items);
        Self { map: map.into() }
    }

    /// Refuses properties that a message may not have.
    ///
    /// # Errors
    /// `MessageSizeExceeded` if a property, or all together, exceed the limits (MSG-26).
    pub fn check(&self, limits: &PropertyLimits) -> Result<(), Rejection> {
        for entry in codec::entries(&self.map) {
            check_property_size(entry, limits)?;
        }
        if self.size_bytes() > limits.header_bytes_max {
            return Err(Rejection::message_size_exceeded(
                "map of properties to set",
                u64::from(self.size_bytes()),
                u64::from(limits.header_bytes_max),
            ));
        }
        Ok(())
    }

    /// An overlay from the bytes of [`Overlay::as_bytes`]. Other bytes do no harm: entries that are
    /// not encoded properties have no effect.
    #[must_use]
    pub const fn from_bytes(map: Bytes) -> Self {
        Self { map }
    }

    /// The encoded map.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.map
    }

    /// The length of the encoded map.
    #[must_use]
    pub fn size_bytes(&self) -> u32 {
        u32::try_from(self.map.len()).unwrap_or(u32::MAX)
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes().next().is_none()
    }

    /// The changes, in the order in which they were added.
    pub fn changes(&self) -> impl Iterator<Item = PropertyChange<'_>> {
        codec::entries(&self.map).filter_map(|entry| {
            let key = entry.key()?;
            if entry.has_symbol_key() {
                let value = codec::read_value_ref(entry.value).ok()?;
                return Some(PropertyChange::SetBroker(SettableProperty::parse(key)?, value));
            }
            if entry.is_removal() {
                return Some(PropertyChange::Remove(key));
            }
            Some(PropertyChange::Set(key, codec::read_value_ref(entry.value).ok()?))
        })
    }

    /// The application properties that the overlay sets, in the order in which they were added.
    pub fn properties(&self) -> impl Iterator<Item = (&str, Value)> {
        self.changes().filter_map(|change| match change {
            PropertyChange::Set(key, value) => Some((key, value.to_value())),
            PropertyChange::Remove(_) | PropertyChange::SetBroker(..) => None,
        })
    }

    /// The text that the overlay sets for the application property with exactly this key.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        let sets = |entry: &codec::PropertyEntry<'_>| identity(entry) == Some((false, key));
        let last = codec::entries(&self.map).filter(sets).last()?;
        match codec::read_value_ref(last.value).ok()? {
            ValueRef::String(text) => Some(text),
            _ => None,
        }
    }

    /// The overlay without its changes of the application property with exactly this key. `None`
    /// if no other change remains.
    #[must_use]
    pub fn without(&self, key: &str) -> Option<Self> {
        let mut items = Vec::with_capacity(self.map.len());
        let mut count = 0;
        for entry in codec::entries(&self.map) {
            if identity(&entry) != Some((false, key)) {
                items.extend_from_slice(entry.key_bytes());
                items.extend_from_slice(entry.value);
                count += 2;
            }
        }
        (count > 0).then(|| Self::from_items(&items, count))
    }

    /// One overlay that has the effect of all of these in turn, the oldest first. `None` if there
    /// are none. Takes time in proportion to their total size.
    #[must_use]
    pub fn combine(overlays: &[Self]) -> Option<Self> {
        let (newest, earlier) = overlays.split_last()?;
        if earlier.is_empty() {
            return Some(newest.clone());
        }
        // The last change of a property overrides all earlier ones.
        let mut done: BTreeSet<(bool, &str)> = BTreeSet::new();
        let mut kept: Vec<Vec<codec::PropertyEntry<'_>>> = Vec::with_capacity(overlays.len());
        for overlay in overlays.iter().rev() {
            let entries = codec::entries(&overlay.map);
            let is_new = |entry: &codec::PropertyEntry<'_>| {
                identity(entry).is_some_and(|key| !done.contains(&key))
            };
            let new: Vec<_> = entries.filter(is_new).collect();
            done.extend(new.iter().filter_map(identity));
            kept.push(new);
        }
        let mut items = Vec::with_capacity(overlays.iter().map(|overlay| overlay.map.len()).sum());
        let mut count = 0;
        for entry in kept.iter().rev().flatten() {
            items.extend_from_slice(entry.key_bytes());
            items.extend_from_slice(entry.value);
            count += 2;
        }
        Some(Self::from_items(&items, count))
    }

    /// One overlay that has the effect of `earlier` followed by this one.
    #[must_use]
    pub fn on_top_of(&self, earlier: &Self) -> Self {
        let identity = |entry: &codec::PropertyEntry<'_>| {
            Some((entry.has_symbol_key(), entry.key()?.to_owned()))
        };
        let keys: BTreeSet<_> =
            codec::entries(&self.map).filter_map(|entry| identity(&entry)).collect();
        let mut items = Vec::with_capacity(earlier.map.len() + self.map.len());
        let mut count = 0;
        for entry in codec::entries(&earlier.map) {
            if identity(&entry).is_some_and(|key| !keys.contains(&key)) {
                items.extend_from_slice(entry.key_bytes());
                items.extend_from_slice(entry.value);
                count += 2;
            }
        }
        for entry in codec::entries(&self.map) {
            items.extend_from_slice(entry.key_bytes());
            items.extend_from_slice(entry.value);
            count += 2;
        }
        Self::from_items(&items, count)
    }

    /// Changes the properties of `message`; keys must be equal byte for byte. Existing properties
    /// keep their order, new ones follow, and all others are kept (SET-08, ACT-02). Takes time in
    /// proportion to both.
    pub fn apply_to(&self, message: &mut Message) {
        let mut changes = ChangesByKey::of(self, |property, value| {
            set_broker!(message, property, value, id_of, text_of);
        });
        let properties = &mut message.application_properties;
        properties.retain_mut(|(key, old)| match changes.next(key) {
            PropertyEdit::Keep => true,
            PropertyEdit::Remove => false,
            PropertyEdit::Set(value) => {
                *old = value.to_value();
                true
            }
        });
        let new = changes.into_new().map(|(key, value)| (key.to_owned(), value.to_value()));
        properties.extend(new);
    }
}

pub(super) fn id_of(text: Option<&str>) -> Option<MessageId> {
    text_of(text).map(MessageId::String)
}

pub(super) fn text_of(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}
