//! Comparison of the store with the predictions.

use std::collections::BTreeMap;

use peeklock_core::machine::slot::SlotState;
use peeklock_core::time::Timestamp;

use super::{Card, Doing, Incoming, Kind, Oracle};
use crate::image::{Image, Record};

impl Oracle {
    /// Compares the entities of a tree with the store after one of its batches. `has` returns
    /// whether the store has a message of another entity.
    pub fn look(&mut self, images: &BTreeMap<u64, Image>, has: &dyn Fn(u64, u64) -> bool) {
        let mut realised: BTreeMap<u64, usize> = BTreeMap::new();
        for (id, image) in images {
            self.look_at_cards(*id, image, &mut realised);
        }
        for (id, image) in images {
            self.look_at_incoming(*id, image, has, &mut realised);
            let entity = &self.entities[id];
            let stored: Vec<&u64> = image.records.keys().collect();
            let known: Vec<&u64> = entity
                .cards
                .iter()
                .filter(|(_, card)| !card.has_vanished)
                .map(|(sequence, _)| sequence)
                .collect();
            assert_eq!(stored, known, "{}: stored, and known (FND-03)", entity.nature.path);
            assert!(
                entity.durable_states.contains(&image.states),
                "{}: states {:?} are stored (SES-24)",
                entity.nature.path,
                image.states
            );
            assert!(image.last >= entity.last_number, "{}: numbers (MSG-12)", entity.nature.path);
        }
        for (group, count) in realised {
            let whole = self.groups.remove(&group);
            assert_eq!(whole, Some(count), "a part of command {group} is stored (TXN-01, TOP-07)");
        }
    }

    fn look_at_cards(&mut self, id: u64, image: &Image, realised: &mut BTreeMap<u64, usize>) {
        let now = self.now;
        let numbers: Vec<u64> = self.entities[&id].cards.keys().copied().collect();
        for sequence in numbers {
            let entity = self.of(id);
            let card = entity.cards.get_mut(&sequence).unwrap();
            let raw = image.records.get(&sequence);
            let Some(stored) = raw.map(|stored| stored.clone().seen_at(now)) else {
                match &card.doing {
                    Some((Doing::Gone(_), group)) => {
                        *realised.entry(*group).or_default() += 1;
                        entity.cards.remove(&sequence);
                    }
                    _ if card.is_frozen => card.has_vanished = true,
                    _ => panic!("{id}/{sequence} is lost: {card:?} (FND-03)"),
                }
                continue;
            };
            assert!(!card.has_vanished, "{id}/{sequence} is back (FND-03)");
            card.record = card.record.clone().seen_at(now);
            // A delay that has already ended shows only in the raw record (RTY-01, SET-38).
            let is_done = card.doing.as_ref().is_some_and(|(doing, _)| {
                matches!(doing, Doing::Count(..)) && raw == Some(&after(&card.record, doing))
            });
            if stored == card.record && !is_done {
                continue;
            }
            let (count_before, before) = (card.record.count, &card.record);
            if let Some((doing, group)) = &card.doing
                && *doing != Doing::Unchanged
                && after(before, doing).seen_at(now) == stored
            {
                *realised.entry(*group).or_default() += 1;
                card.doing = None;
            } else {
                // The effect of each failure is known; the last stored one decides (RTY-06,
                // SET-27).
                let delayed_until = card.failures.get(&stored.count).copied().flatten();
                let counted = Record { count: stored.count, delayed_until, ..before.clone() };
                let counted = counted.seen_at(now);
                assert_eq!(counted, stored, "{id}/{sequence} has changed for nothing: {card:?}");
                let most = card.count;
                assert!(stored.count <= most, "{id}/{sequence} counts {} (SET-29)", stored.count);
            }
            assert!(stored.count >= count_before, "{id}/{sequence} counts less (SET-29)");
            card.record = stored.clone();
            card.count = card.count.max(stored.count);
        }
    }

    /// New messages appear in the order of their acceptance, with their predicted numbers.
    fn look_at_incoming(
        &mut self,
        id: u64,
        image: &Image,
        has: &dyn Fn(u64, u64) -> bool,
        realised: &mut BTreeMap<u64, usize>,
    ) {
        while let Some(next) = self.entities[&id].incoming.front().cloned() {
            let group = next.group();
            match next {
                Incoming::New { sequence, record, .. } => {
                    let Some(stored) = image.records.get(&sequence) else { return };
                    assert_eq!(
                        *stored, *record,
                        "{id}/{sequence} is stored, and what it should be"
                    );
                    let entity = self.of(id);
                    let card = Card {
                        count: 0,
                        record: *record,
                        lock: None,
                        doing: None,
                        is_frozen: false,
                        has_vanished: false,
                        stays: false,
                        not_before: Timestamp::NONE,
                        delayed_until: None,
                        failures: BTreeMap::new(),
                    };
                    let before = entity.cards.insert(sequence, card);
                    assert!(before.is_none(), "{id}/{sequence} is given twice (MSG-12)");
                    entity.last_number = entity.last_number.max(sequence);
                    *realised.entry(group).or_default() += 1;
                }
                Incoming::Left { from, sequence, .. } => {
                    if has(from, sequence) {
                        return;
                    }
                    let source = self.of(from);
                    let card = source.cards.remove(&sequence);
                    let was_frozen = card.is_some_and(|card| card.is_frozen);
                    assert!(was_frozen, "{from}/{sequence} has left, and not by a list (FND-03)");
                    // A source that was opened again knows of no transfer.
                    let knows = source.ways.values().filter_map(|way| way.list.as_ref());
                    if knows.flatten().any(|one| *one == sequence) {
                        source.departing.insert(sequence);
                    }
                    *realised.entry(group).or_default() += 1;
                }
            }
            self.of(id).incoming.pop_front();
            // Ids of a durable command are certainly remembered (DUP-08).
            let all = self.entities.values_mut().flat_map(|entity| entity.ids.values_mut());
            for acceptance in all.filter(|one| one.ticket == group) {
                acceptance.is_told = true;
            }
        }
    }

    /// A command of this entity was answered: its changes are durable.
    pub fn settled(&mut self, id: u64, ticket: u64, last: u64) {
        let entity = self.of(id);
        entity.last_number = entity.last_number.max(last);
        for acceptance in entity.ids.values_mut().filter(|one| one.ticket == ticket) {
            acceptance.is_told = true;
        }
        if let Some(to) = entity.updates.remove(&ticket) {
            entity.durable = to;
        }
        let all = self.entities.values_mut().flat_map(|entity| entity.cards.values_mut());
        for card in all.filter(|card| card.doing == Some((Doing::Unchanged, ticket))) {
            card.doing = None;
        }
    }

    /// A tree was opened again: state in memory is gone, and pending changes are stored or not
    /// (LIF-04, SET-27, SES-18).
    pub fn reopen(&mut self, images: &BTreeMap<u64, Image>, ids: &dyn Fn(&str) -> u128) {
        for (id, image) in images {
            let now = self.now;
            let entity = self.of(*id);
            for card in entity.cards.values_mut() {
                card.count = card.record.count;
                card.delayed_until = card.record.delayed_until;
                card.lock = None;
                card.stays = false;
                card.not_before = Timestamp::NONE;
                card.doing = None;
                // If it has vanished, the transfer is still in progress.
                card.is_frozen = card.has_vanished;
            }
            entity.incoming.clear();
            entity.calls.clear();
            entity.holds.clear();
            entity.departing.clear();
            entity.ways.clear();
            entity.states.clone_from(&image.states);
            entity.durable_states = vec![image.states.clone()];
            entity.last = image.last;
            entity.last_number = image.last;
            if entity.nature.kind != Kind::Subscription {
                entity.ids.retain(|id, acceptance| {
                    let is_stored = image.ids.contains(&(ids(id), acceptance.at));
                    let is_over = acceptance.at.plus(super::WINDOW) <= now;
                    assert!(
                        is_stored || !acceptance.is_told || is_over,
                        "id {id} is forgotten (DUP-08)"
                    );
                    is_stored
                });
            }
        }
        let mut waiting: BTreeMap<u64, usize> = BTreeMap::new();
        for entity in self.entities.values() {
            let doings = entity.cards.values().filter_map(|card| card.doing.as_ref());
            let doings = doings.filter(|(doing, _)| *doing != Doing::Unchanged);
            let doings = doings.map(|(_, group)| *group);
            let incoming = entity.incoming.iter().map(Incoming::group);
            for group in doings.chain(incoming) {
                *waiting.entry(group).or_default() += 1;
            }
        }
        self.groups = waiting;
    }
}

/// A record after a change.
fn after(before: &Record, doing: &Doing) -> Record {
    let mut record = before.clone();
    match doing {
        Doing::Gone(_) | Doing::Unchanged => {}
        Doing::Count(count, delayed_until) => {
            record.count = *count;
            record.delayed_until = *delayed_until;
        }
        Doing::Defer(count) => {
            record.delayed_until = None;
            record.state = SlotState::Deferred;
            record.count = *count;
        }
        Doing::Move { into, count, reason } => {
            record.sub_queue = *into;
            record.state = SlotState::Active;
            record.count = *count;
            record.delayed_until = None;
            record.text = None;
            if let Some(reason) = reason {
                record.bare.reason = Some(reason.clone());
            }
        }
    }
    record
}
