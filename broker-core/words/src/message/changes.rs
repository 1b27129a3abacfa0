//! The effect of an overlay on the application properties of a message, grouped by key. A message
//! is then changed in one pass over its properties, for any number of changes (SET-08, ACT-02).
//! Overlays, views and header sizes use it.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{Overlay, PropertyChange, SettableProperty, ValueRef};

#[cfg(test)]
mod tests;

/// Maximum number of keys that are compared one by one, enough for nearly every overlay. More keys
/// get an index: both lists come from clients and may have thousands of entries.
const LINEAR_KEYS_MAX: usize = 8;

/// The changes of an overlay to application properties. Changes to the same key are merged.
#[derive(Default)]
pub(super) struct ChangesByKey<'a> {
    changes: SmallVec<[Change<'a>; LINEAR_KEYS_MAX]>,
    /// Position of each key in `changes`; empty for up to `LINEAR_KEYS_MAX` keys.
    places: BTreeMap<&'a str, usize>,
}

/// The merged changes of a key.
pub(super) struct Change<'a> {
    pub(super) key: &'a str,
    /// Whether all properties with this key are removed.
    pub(super) removes: bool,
    /// The final value, and the position of the change that first adds it.
    set: Option<(usize, ValueRef<'a>)>,
}

/// The effect on one property.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PropertyEdit<'a> {
    /// The property is unchanged.
    Keep,
    /// The property is removed.
    Remove,
    /// The property gets this value and keeps its position.
    Set(ValueRef<'a>),
}

impl<'a> ChangesByKey<'a> {
    /// Collects the changes of an overlay. Changes of broker properties go to `set_broker`.
    pub(super) fn of(
        overlay: &'a Overlay,
        mut set_broker: impl FnMut(SettableProperty, ValueRef<'a>),
    ) -> Self {
        let mut by_key = Self::default();
        for (at, change) in overlay.changes().enumerate() {
            match change {
                PropertyChange::Set(key, value) => by_key.set(at, key, value),
                PropertyChange::Remove(key) => by_key.remove(key),
                PropertyChange::SetBroker(property, value) => set_broker(property, value),
            }
        }
        by_key
    }

    fn set(&mut self, at: usize, key: &'a str, value: ValueRef<'a>) {
        if let Some(change) = self.change(key) {
            let first = change.set.map_or(at, |(first, _)| first);
            change.set = Some((first, value));
        }
    }

    fn remove(&mut self, key: &'a str) {
        if let Some(change) = self.change(key) {
            change.removes = true;
            change.set = None;
        }
    }

    /// The changes of this key; empty ones are added if there are none.
    fn change(&mut self, key: &'a str) -> Option<&mut Change<'a>> {
        let place = self.place(key).unwrap_or_else(|| self.add(key));
        self.changes.get_mut(place)
    }

    fn add(&mut self, key: &'a str) -> usize {
        let place = self.changes.len();
        self.changes.push(Change { key, removes: false, set: None });
        if place == LINEAR_KEYS_MAX {
            let keys = self.changes.iter().map(|change| change.key);
            self.places = keys.zip(0..).collect();
        } else if place > LINEAR_KEYS_MAX {
            self.places.insert(key, place);
        }
        place
    }

    fn place(&self, key: &str) -> Option<usize> {
        if self.places.is_empty() {
            return self.changes.iter().position(|change| change.key == key);
        }
        self.places.get(key).copied()
    }

    /// The effect on the next property of the message, which has this key. The first property with
    /// a key gets the new value.
    pub(super) fn next(&mut self, key: &str) -> PropertyEdit<'a> {
        let Some(change) = self.place(key).and_then(|place| self.changes.get_mut(place)) else {
            return PropertyEdit::Keep;
        };
        if change.removes {
            return PropertyEdit::Remove;
        }
        change.set.take().map_or(PropertyEdit::Keep, |(_, value)| PropertyEdit::Set(value))
    }

    /// The properties to append, in their order, after all properties of a message were passed to
    /// `next`.
    pub(super) fn into_new(mut self) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> {
        self.changes.sort_by_key(|change| change.set.map(|(first, _)| first));
        self.changes.into_iter().filter_map(|change| Some((change.key, change.value()?)))
    }

    /// The merged changes, one for each key.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Change<'a>> {
        self.changes.iter()
    }
}

impl<'a> Change<'a> {
    /// The value that is set, if any.
    pub(super) fn value(&self) -> Option<ValueRef<'a>> {
        self.set.map(|(_, value)| value)
    }
}
