//! A simple model of the copies that a topic must make of published messages: the rules of its
//! subscriptions, its catch-alls, and the copies of each subscription (TOP-01 to TOP-07, TOP-25 to
//! TOP-28).

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_core::change::codec::{self, RecordKey};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::message::{Content, Message, Overlay, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::rule::RuleDescription;
use peeklock_core::store::{Key, Store};
use peeklock_store_testing::{FaultStore, visit_records};

use crate::image::marker;
use crate::rules::{Made, Matter, Rule, copies, rule, select};

/// A copy in a subscription.
#[derive(Clone, PartialEq, Debug)]
pub struct Copied {
    pub marker: u64,
    pub rule: Option<String>,
    pub mark: Option<u64>,
    pub is_dead: bool,
}

/// A subscription.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Subscription {
    pub rules: BTreeMap<String, Rule>,
    pub dead_letters_errors: bool,
    pub catch_all: bool,
    /// By number.
    pub copies: BTreeMap<u64, Copied>,
    pub last: u64,
}

/// A subscription as it is stored.
pub struct Stored {
    pub rules: Vec<RuleDescription>,
    pub catch_all: bool,
    pub copies: BTreeMap<u64, Copied>,
    pub last: u64,
}

/// Result of a publish for catch-alls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caught {
    /// No other subscription selects it, and a catch-all does.
    Yes,
    /// A catch-all would select it, and another subscription does.
    Elsewhere,
    /// No subscription selects it.
    Nobody,
    /// Catch-alls are not involved.
    Ordinary,
}

#[derive(Clone, Default, PartialEq, Debug)]
pub struct Fan {
    pub subscriptions: Vec<Subscription>,
}

impl Fan {
    /// Publishes a message: first to ordinary subscriptions, and to catch-alls if none of those
    /// selects it.
    pub fn publish(&mut self, marker: u64, matter: Matter) -> Caught {
        let selects = |one: &Subscription| select(&one.made_of(matter));
        let (caught, ordinary): (Vec<_>, Vec<_>) =
            self.subscriptions.iter().partition(|one| one.catch_all);
        let is_selected = ordinary.into_iter().any(selects);
        let would_be_caught = caught.into_iter().any(selects);
        for one in self.subscriptions.iter_mut().filter(|one| !one.catch_all || !is_selected) {
            for Made { rule, mark, reason, .. } in one.made_of(matter) {
                one.last += 1;
                let copied = Copied { marker, rule, mark, is_dead: reason.is_some() };
                one.copies.insert(one.last, copied);
            }
        }
        match (is_selected, would_be_caught) {
            (false, true) => Caught::Yes,
            (true, true) => Caught::Elsewhere,
            (false, false) => Caught::Nobody,
            (true, false) => Caught::Ordinary,
        }
    }

    /// Whether the found records agree with this model.
    pub fn is_stored(&self, found: &[Stored]) -> bool {
        self.subscriptions.len() == found.len()
            && self.subscriptions.iter().zip(found).all(|(one, found)| one.is_stored(found))
    }
}

impl Subscription {
    fn made_of(&self, matter: Matter) -> Vec<Made> {
        copies(&self.rules, self.dead_letters_errors, false, matter)
    }

    fn is_stored(&self, found: &Stored) -> bool {
        let is_rule = |given: &RuleDescription| {
            self.rules.get(&*given.name).is_some_and(|known| {
                let known = rule(&given.name, *known);
                (&known.filter, &known.action) == (&given.filter, &given.action)
            })
        };
        self.catch_all == found.catch_all
            && self.last == found.last
            && self.copies == found.copies
            && self.rules.len() == found.rules.len()
            && found.rules.iter().all(is_rule)
    }
}

/// The stored copies of a subscription.
pub fn stored_copies(store: &FaultStore, id: EntityId) -> BTreeMap<u64, Copied> {
    let mut slots = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        if let RecordKey::Slot(sequence) = codec::read_key(key).expect("every key can be read") {
            let (slot, _) = codec::read_slot(value).expect("a slot can be read");
            slots.push((sequence, slot.sub_queue, slot.overlay_count));
        }
    };
    visit_records(store, &codec::space_key(id), &mut visit).expect("the store can be scanned");
    let copied = |(sequence, sub_queue, overlay_count): (SequenceNumber, SubQueue, u16)| {
        let keys: Vec<Key> = std::iter::once(codec::slot_key(id, sequence))
            .chain((0..overlay_count).map(|at| codec::overlay_key(id, sequence, at)))
            .collect();
        let mut contents = Vec::new();
        store.pin(&keys, &mut contents);
        let loaded = contents.into_iter().map(|content| {
            let content = content.expect("every stored copy has its content (LIF-02)");
            content.loaded().expect("it is in memory").clone()
        });
        (sequence.0, read(loaded.collect(), sub_queue != SubQueue::Main))
    };
    slots.into_iter().map(copied).collect()
}

/// A copy by its content and overlays.
pub fn read(contents: Vec<Bytes>, is_dead: bool) -> Copied {
    let mut contents = contents.into_iter();
    let content = contents.next().expect("a message has content");
    let marker = marker(content.clone());
    let content = Content::parse(content).expect("content is kept as it was");
    let mut message: Message = content.decode().expect("and is a message");
    contents.for_each(|overlay| Overlay::from_bytes(overlay).apply_to(&mut message));
    let rule = match message.application_property("RuleName") {
        Some(Value::String(name)) => Some(name.clone()),
        _ => None,
    };
    let mark = match message.application_property("mark") {
        Some(Value::I32(mark)) => Some(i64::from(*mark).unsigned_abs()),
        Some(Value::I64(mark)) => Some(mark.unsigned_abs()),
        _ => None,
    };
    Copied { marker, rule, mark, is_dead }
}
