//! Compares all changes at once with a reference that makes one change after another.

use std::fmt::Write as _;

use bytes::Bytes;

use super::*;
use crate::message::overlay::{id_of, text_of};
use crate::message::settable::set_broker;
use crate::message::{Content, Message, MessageId, Value};
use crate::time::TimeSpan;

/// Random numbers, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    fn value(&mut self) -> Value {
        match self.below(6) {
            0 => Value::Null,
            1 => Value::I32(i32::try_from(self.below(1_000)).unwrap()),
            2 => Value::String("x".repeat(self.below(300))),
            3 => Value::TimeSpan(20_000),
            4 => Value::Uri("a:b".into()),
            _ => Value::Bool(true),
        }
    }

    /// One of `keys` different keys.
    fn key(&mut self, keys: usize) -> String {
        format!("k{}", self.below(keys))
    }

    /// An overlay with `count` changes, of which several may have one key: bytes of any origin do
    /// no harm.
    fn overlay(&mut self, count: usize, keys: usize) -> Overlay {
        let drawn: Vec<_> = (0..count)
            .map(|_| (self.below(5 + SettableProperty::ALL.len()), self.key(keys), self.value()))
            .collect();
        let changes = drawn.iter().map(|(kind, key, value)| match kind {
            0 | 1 => PropertyChange::Remove(key),
            2..=4 => PropertyChange::Set(key, borrowed(value)),
            _ => PropertyChange::SetBroker(SettableProperty::ALL[kind - 5], borrowed(value)),
        });
        Overlay::of_changes(changes)
    }

    fn message(&mut self, count: usize, keys: usize) -> Message {
        let mut message = Message::new("body")
            .with_message_id(MessageId::Ulong(5))
            .with_subject("subject")
            .with_time_to_live(TimeSpan::from_minutes(1));
        for _ in 0..count {
            message.application_properties.push((self.key(keys), self.value()));
        }
        message
    }
}

fn borrowed(value: &Value) -> ValueRef<'_> {
    match value {
        Value::I32(value) => ValueRef::I32(*value),
        Value::String(text) => ValueRef::String(text),
        Value::TimeSpan(ticks) => ValueRef::TimeSpan(*ticks),
        Value::Bool(value) => ValueRef::Bool(*value),
        Value::Uri(uri) => ValueRef::Uri(uri),
        _ => ValueRef::Null,
    }
}

/// The reference: one change after another.
fn apply_one_by_one(overlay: &Overlay, message: &mut Message) {
    for change in overlay.changes() {
        let properties = &mut message.application_properties;
        match change {
            PropertyChange::Set(key, value) => {
                let value = value.to_value();
                match properties.iter_mut().find(|(name, _)| name == key) {
                    Some((_, old)) => *old = value,
                    None => properties.push((key.to_owned(), value)),
                }
            }
            PropertyChange::Remove(key) => properties.retain(|(name, _)| name != key),
            PropertyChange::SetBroker(property, value) => {
                set_broker!(message, property, value, id_of, text_of);
            }
        }
    }
}

/// The keys and values of a view in their order, and some broker properties.
fn shown(content: &Content, overlay: Option<&Overlay>) -> String {
    let mut view = content.property_view();
    if let Some(overlay) = overlay {
        view = view.with(overlay);
    }
    let mut text = String::new();
    for key in view.keys() {
        write!(text, "{key} {:?}, ", view.resolve(key)).unwrap();
    }
    write!(text, "{:?} {:?} {:?}", view.message_id(), view.subject(), view.time_to_live()).unwrap();
    text
}

/// Cases with few and many changes, of few and many keys.
fn cases() -> impl Iterator<Item = (Message, Overlay, Overlay)> {
    let mut draw = Draw(1);
    (0..600).map(move |case| {
        let keys = [1, 4, 12, 60][case % 4];
        let count = [0, 1, LINEAR_KEYS_MAX, LINEAR_KEYS_MAX + 1, 40][case % 5];
        let property_count = draw.below(30);
        let message = draw.message(property_count, keys);
        (message, draw.overlay(count, keys), draw.overlay(5, keys))
    })
}

/// SET-08, ACT-02: all changes at once have the same result as one after another, including the
/// order of the properties, for keys with one or several properties.
#[test]
fn changes_by_key_match_sequential_changes() {
    for (message, overlay, _) in cases() {
        let (mut at_once, mut expected) = (message.clone(), message.clone());
        at_once.apply_overlay(&overlay);
        apply_one_by_one(&overlay, &mut expected);
        assert_eq!(at_once, expected, "{message:?} {overlay:?}");
        let content = message.encode();
        assert_eq!(shown(&content, Some(&overlay)), shown(&expected.encode(), None));
    }
}

/// DLQ-20: the sizes computed without encoding equal the sizes of the encoded messages, and an
/// earlier overlay counts too.
#[test]
fn header_sizes_match_the_changed_messages() {
    for (message, before, later) in cases() {
        let content = message.encode();
        let mut changed = message;
        apply_one_by_one(&before, &mut changed);
        assert_eq!(content.header_size_with(&before), changed.encode().header_size());
        let sizes = content.header_sizes(Some(&before)).unwrap();
        assert_eq!(sizes.plain(), changed.encode().header_size());
        apply_one_by_one(&later, &mut changed);
        assert_eq!(sizes.with(&later), changed.encode().header_size(), "{before:?} {later:?}");
    }
}

/// SET-08: an indexed overlay gives the same bytes as `on_top_of`, for each overlay on top.
#[test]
fn indexed_overlay_matches_on_top_of() {
    for (_, before, later) in cases() {
        for (before, later) in [(&before, &later), (&later, &before)] {
            assert_eq!(before.indexed().combined_with(later), later.on_top_of(before));
        }
    }
    let garbage = Overlay::from_bytes(Bytes::from_static(b"\xc1\x05\x04\x40\x40\xa1\x01"));
    let set = Draw(2).overlay(3, 3);
    assert_eq!(garbage.indexed().combined_with(&set), set.on_top_of(&garbage));
    assert_eq!(set.indexed().combined_with(&garbage), garbage.on_top_of(&set));
}

/// DESIGN D6: the number of comparisons grows with both lists, not with their product.
#[test]
fn an_index_is_made_of_more_than_a_few_keys() {
    let keys: Vec<_> = (0..=LINEAR_KEYS_MAX).map(|key| format!("k{key}")).collect();
    for count in [LINEAR_KEYS_MAX, LINEAR_KEYS_MAX + 1] {
        let changes = keys.iter().take(count).map(|key| PropertyChange::Set(key, ValueRef::Null));
        let overlay = Overlay::of_changes(changes);
        let changes = ChangesByKey::of(&overlay, |_, _| ());
        assert_eq!(changes.places.is_empty(), count == LINEAR_KEYS_MAX, "{count}");
        assert!((0..count).all(|key| changes.place(&format!("k{key}")) == Some(key)));
    }
}
