//! What an overlay does to the application properties of a message, gathered by their keys: the properties are gone
//! through once, however many of them it changes (SET-08, ACT-02).

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{Overlay, PropertyChange, SettableProperty, ValueRef};

#[cfg(test)]
mod tests;

/// So many keys are compared one by one, which is all that nearly every overlay has. Of more there is an index: both
/// lists are a client's, and may have thousands.
const FEW: usize = 8;

/// The changes of an overlay to application properties. Of those that one key has only their sum is kept.
#[derive(Default)]
pub(super) struct ChangesByKey<'a> {
    changes: SmallVec<[Change<'a>; FEW]>,
    /// Where each key is; empty as long as they are few.
    places: BTreeMap<&'a str, usize>,
}

/// What one key has.
pub(super) struct Change<'a> {
    pub(super) key: &'a str,
    /// Whether all properties with this key go.
    pub(super) removes: bool,
    /// What it is set to at last, and which change of all would first add it.
    set: Option<(usize, ValueRef<'a>)>,
}

/// What becomes of a property.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Becomes<'a> {
    /// It stays as it is.
    Kept,
    /// It goes.
    Removed,
    /// It has this value, in its place.
    Set(ValueRef<'a>),
}

impl<'a> ChangesByKey<'a> {
    /// Those of an overlay, whose broker properties are handed to `set_broker`.
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

    /// What this key has, made if there is nothing.
    fn change(&mut self, key: &'a str) -> Option<&mut Change<'a>> {
        let place = self.place(key).unwrap_or_else(|| self.add(key));
        self.changes.get_mut(place)
    }

    fn add(&mut self, key: &'a str) -> usize {
        let place = self.changes.len();
        self.changes.push(Change { key, removes: false, set: None });
        if place == FEW {
            let keys = self.changes.iter().map(|change| change.key);
            self.places = keys.zip(0..).collect();
        } else if place > FEW {
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

    /// What becomes of the next property of a message, if it has this key. The first one with a key takes the value
    /// that is set.
    pub(super) fn next(&mut self, key: &str) -> Becomes<'a> {
        let Some(change) = self.place(key).and_then(|place| self.changes.get_mut(place)) else {
            return Becomes::Kept;
        };
        if change.removes {
            return Becomes::Removed;
        }
        change.set.take().map_or(Becomes::Kept, |(_, value)| Becomes::Set(value))
    }

    /// When all properties of a message were gone through, those that come behind them, in their order.
    pub(super) fn into_new(mut self) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> {
        self.changes.sort_by_key(|change| change.set.map(|(first, _)| first));
        self.changes.into_iter().filter_map(|change| Some((change.key, change.value()?)))
    }

    /// What each key has.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Change<'a>> {
        self.changes.iter()
    }
}

impl<'a> Change<'a> {
    /// What is set.
    pub(super) fn value(&self) -> Option<ValueRef<'a>> {
        self.set.map(|(_, value)| value)
    }
}
