//! Stored messages over all queues and subscriptions, and the permitted changes between two
//! inspections.

use std::collections::{BTreeMap, BTreeSet};

use peeklock_core::change::codec::{self, RecordKey};
use peeklock_core::ids::EntityId;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::store::{Key, Store};
use peeklock_core::time::Timestamp;
use peeklock_store_testing::{FaultStore, visit_records};

use crate::fan::Fan;
use crate::ground::marker;

/// Location of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub entity: u64,
    pub sequence: u64,
    pub sub_queue: SubQueue,
    pub state: SlotState,
    pub hops: u8,
    pub size: u64,
    pub delivery_count: u32,
    /// End of its delay, current or past (RTY-06).
    pub delayed_until: Option<Timestamp>,
}

/// All messages of all queues by the marker in their bodies.
#[derive(Clone, Default, Debug)]
pub struct Image {
    pub places: BTreeMap<u64, Place>,
    pub entities: BTreeSet<u64>,
}

impl Image {
    /// Reads the spaces of all ids up to `last_id`.
    pub fn read(store: &FaultStore, last_id: u64) -> Self {
        let mut image = Self::default();
        for id in 1..=last_id {
            let mut keys = Vec::new();
            let mut places = Vec::new();
            let (mut overlays, mut counted) = (0, 0);
            visit_records(store, &codec::space_key(EntityId(id)), |key, value| {
                match codec::read_key(key).expect("every key can be read") {
                    RecordKey::Description => {
                        image.entities.insert(id);
                    }
                    RecordKey::Slot(sequence) => {
                        let (slot, _) = codec::read_slot(value).expect("a slot can be read");
                        keys.push(Key::from_bytes(key).unwrap());
                        counted += u64::from(slot.overlay_count);
                        places.push(Place {
                            entity: id,
                            sequence: sequence.0,
                            sub_queue: slot.sub_queue,
                            state: slot.state,
                            hops: slot.hops,
                            size: u64::from(slot.size),
                            delivery_count: slot.delivery_count,
                            delayed_until: codec::read_delay(value).unwrap(),
                        });
                    }
                    RecordKey::Overlay => overlays += 1,
                    _ => {}
                }
            })
            .expect("the store can be scanned");
            assert_eq!(overlays, counted, "overlays of {id} are not with their messages");
            assert!(
                places.is_empty() || image.entities.contains(&id),
                "messages are stored in {id}, which is no entity"
            );
            let mut contents = Vec::new();
            store.image().pin(&keys, &mut contents);
            for (place, content) in places.into_iter().zip(contents) {
                let content = content.unwrap_or_else(|| panic!("{place:?} has no content"));
                let bytes = content.loaded().expect("it is in memory").clone();
                let marker = marker(bytes);
                if let Some(other) = image.places.insert(marker, place) {
                    panic!("message {marker} is in two places: {other:?} and {place:?} (FND-03)");
                }
            }
        }
        image
    }
}

/// Judges the changes from one durable state to the next.
#[derive(Default)]
pub struct Judge {
    pub last: Image,
    /// Messages acknowledged to a sender.
    pub acknowledged: BTreeSet<u64>,
    /// Messages that a client has removed, or may have.
    pub may_go: BTreeSet<u64>,
    /// Messages that their receiver has settled.
    pub tried: BTreeSet<u64>,
    /// Messages that are sent in the transaction that removes the key, if nothing else can have
    /// removed it.
    pub replaced: BTreeMap<u64, Vec<u64>>,
    /// The highest number that used each route, from source to destination.
    pub passed: BTreeMap<(u64, bool, u64), u64>,
    /// Whether numbers pass in order, which holds without locks.
    pub in_order: bool,
    /// Whether a duplicate may disappear in a transfer.
    pub may_absorb: bool,
    /// Messages sent without an id, which are never duplicates (DUP-14).
    pub without_id: BTreeSet<u64>,
    pub moved: u64,
    /// Number of moved messages that had been delayed, in a main queue and in a dead-letter queue.
    pub delayed_moved: [u64; 2],
    pub hops_max: u8,
    pub fan: Fan,
}

impl Judge {
    /// Judges the current durable state.
    pub fn look(&mut self, store: &FaultStore, last_id: u64, at: Timestamp) {
        let now = Image::read(store, last_id);
        let before = std::mem::take(&mut self.last);
        // By their new numbers, so that messages that arrived together are judged in order.
        let mut arrived = Vec::new();
        for (marker, place) in &now.places {
            assert!(place.hops <= 4, "{marker} has made {} hops (FWD-12)", place.hops);
            self.hops_max = self.hops_max.max(place.hops);
            if before.places.get(marker).is_none_or(|old| old.entity != place.entity) {
                self.fan.came(*marker, place.entity);
            }
            if let Some(old) = before.places.get(marker)
                && old.entity != place.entity
            {
                assert_eq!(place.hops, old.hops + 1, "{marker}: {old:?} to {place:?} (FWD-13)");
                arrived.push((place.entity, place.sequence, *old));
                self.moved += 1;
                self.judge_moved(*marker, old, place, at);
            } else if let Some(old) = before.places.get(marker) {
                judge_stayed(*marker, old, place, at);
            }
        }
        arrived.sort_unstable_by_key(|(entity, sequence, _)| (*entity, *sequence));
        for (to, _, old) in arrived {
            let is_pending = old.state == SlotState::Pending;
            if !is_pending && (old.sub_queue != SubQueue::Main || !self.in_order) {
                continue;
            }
            let last = self.passed.entry((old.entity, is_pending, to)).or_default();
            assert!(
                *last < old.sequence,
                "{} after {last} from {old:?} to {to} (FWD-10)",
                old.sequence
            );
            *last = old.sequence;
        }
        for (marker, place) in &before.places {
            let is_gone = !now.places.contains_key(marker);
            let entity_is_gone = !now.entities.contains(&place.entity);
            let may_absorb = self.may_absorb && !self.without_id.contains(marker);
            if is_gone && !entity_is_gone && !may_absorb {
                assert!(
                    self.may_go.contains(marker),
                    "{marker} is lost, it was at {place:?} (FND-03, DUP-14)"
                );
            }
            if let Some(others) = self.replaced.get(marker)
                && is_gone
                && !entity_is_gone
                && !may_absorb
            {
                let are_there = others.iter().all(|other| now.places.contains_key(other));
                assert!(are_there, "{marker} is gone without {others:?} (TXN-01, TXN-15)");
            }
            if is_gone {
                self.may_go.insert(*marker);
            }
        }
        for marker in &self.acknowledged {
            assert!(
                now.places.contains_key(marker) || self.may_go.contains(marker),
                "{marker} was acknowledged and is not stored (FND-02)"
            );
        }
        self.last = now;
    }
    /// RTY-14: a delayed message leaves when it is due, without its delay and count (SET-39).
    fn judge_moved(&mut self, marker: u64, old: &Place, place: &Place, at: Timestamp) {
        if let Some(until) = old.delayed_until {
            assert!(until <= at, "{marker} has left {old:?} before it was due (RTY-14)");
            self.delayed_moved[usize::from(old.sub_queue != SubQueue::Main)] += 1;
        }
        let kept = (place.delayed_until, place.delivery_count);
        assert_eq!(kept, (None, 0), "{marker}: {old:?} to {place:?} (RTY-14, SET-39)");
    }
}

/// RTY-06, RTY-20: an end of a delay stays until it is reached, even if transfers fail meanwhile. A
/// new one follows a further failure.
fn judge_stayed(marker: u64, old: &Place, place: &Place, at: Timestamp) {
    if old.delayed_until.is_some_and(|until| until > at) {
        assert_eq!(
            old.delayed_until, place.delayed_until,
            "{marker}: {old:?} to {place:?} (RTY-06)"
        );
    } else if place.delayed_until.is_some() && place.delayed_until != old.delayed_until {
        let counts = [old, place].map(|one| one.delivery_count);
        // A dead-letter queue counts nothing (SET-38).
        let is_counted = old.sub_queue == SubQueue::Main;
        assert!(!is_counted || counts[0] < counts[1], "{marker}: {old:?} to {place:?} (RTY-20)");
    }
}
