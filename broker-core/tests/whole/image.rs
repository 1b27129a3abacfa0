//! Stored records of an entity, in the types of the oracle.

use std::collections::{BTreeMap, BTreeSet};

use peeklock_core::change::codec::{self, RecordKey};
use peeklock_core::content_ref::ContentRef;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::machine::slot::SlotState;
use peeklock_core::message::{Content, Message, MessageId, Overlay, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::store::{Key, Store};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{FaultStore, visit_records};

use crate::ground::marker;

/// A message as its clients see it, with all set properties.
#[derive(Clone, PartialEq, Debug)]
pub struct Bare {
    pub marker: u64,
    pub number: i32,
    pub subject: u64,
    pub session: Option<u64>,
    pub id: String,
    pub time_to_live: Option<TimeSpan>,
    pub schedule: Option<Timestamp>,
    pub rule: Option<String>,
    pub mark: Option<u64>,
    pub reason: Option<String>,
    pub source: Option<String>,
}

/// A message as an entity has stored it.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub bare: Bare,
    pub sub_queue: SubQueue,
    pub state: SlotState,
    pub count: u32,
    pub hops: u8,
    /// Copies already counted for it (FWD-33).
    pub spent: u16,
    /// Its first number, 0 if that is its own (MSG-15).
    pub first: u64,
    pub enqueued_at: Timestamp,
    /// By its own time to live.
    pub expires_at: Timestamp,
    /// Its session, or its destination.
    pub text: Option<String>,
    /// End of its delay; past instants are kept (RTY-06).
    pub delayed_until: Option<Timestamp>,
}

impl Record {
    /// The record at this instant: a due message is no longer delayed.
    pub fn seen_at(mut self, now: Timestamp) -> Self {
        self.delayed_until = self.delayed_until.filter(|until| *until > now);
        self
    }
}

/// All records of one entity.
#[derive(Default)]
pub struct Image {
    pub records: BTreeMap<u64, Record>,
    pub states: BTreeMap<u64, u8>,
    /// Ids by their hash, with the instant of acceptance.
    pub ids: BTreeSet<(u128, Timestamp)>,
    /// The highest number in its records, and the value of the counters.
    pub last: u64,
    pub counted: u64,
    pub size_bytes: u64,
}

impl Image {
    pub fn read(store: &FaultStore, id: u64) -> Self {
        let mut image = Self::default();
        let mut slots = Vec::new();
        let mut states = Vec::new();
        let mut overlays = 0;
        let id = EntityId(id);
        let mut visit = |key: &[u8], value: &[u8]| match codec::read_key(key).unwrap() {
            RecordKey::Slot(sequence) => {
                let (slot, text) = codec::read_slot(value).unwrap();
                let delayed_until = codec::read_delay(value).unwrap();
                slots.push((sequence, slot, text.map(str::to_owned), delayed_until));
            }
            RecordKey::SessionState => {
                let record = codec::read_session_state(value).unwrap();
                image.size_bytes += record.size;
                states.push((record.session, Key::from_bytes(key).unwrap()));
            }
            RecordKey::Counters => {
                image.counted = codec::read_counters(value).unwrap().last_sequence.0;
                image.last = image.counted;
            }
            RecordKey::Id { id_hash, .. } => {
                let (at, _) = codec::read_acceptance(value).unwrap();
                image.ids.insert((id_hash, at));
            }
            RecordKey::Overlay => overlays += 1,
            RecordKey::Description
            | RecordKey::Rule
            | RecordKey::Peer(_)
            | RecordKey::Receipt(_) => {}
        };
        visit_records(store, &codec::space_key(id), &mut visit).unwrap();
        for (session, key) in states {
            let state = pinned(store, &[key]).remove(0);
            image.states.insert(session.parse().unwrap(), state[0]);
        }
        for (sequence, slot, text, delayed_until) in slots {
            let keys: Vec<Key> = std::iter::once(codec::slot_key(id, sequence))
                .chain((0..slot.overlay_count).map(|at| codec::overlay_key(id, sequence, at)))
                .collect();
            overlays -= i32::from(slot.overlay_count);
            let mut contents = pinned(store, &keys).into_iter();
            let content = contents.next().unwrap();
            let overlays: Vec<Overlay> = contents.map(Overlay::from_bytes).collect();
            image.size_bytes += u64::from(slot.size);
            let record = Record {
                bare: bare(content, &overlays),
                sub_queue: slot.sub_queue,
                state: slot.state,
                count: slot.delivery_count,
                hops: slot.hops,
                spent: slot.copies_spent,
                first: slot.enqueued_sequence.0,
                enqueued_at: slot.enqueued_at,
                expires_at: slot.expires_at,
                text,
                delayed_until,
            };
            image.last = image.last.max(sequence.0);
            image.records.insert(sequence.0, record);
        }
        assert_eq!(overlays, 0, "overlays of {id} are not with their messages (LIF-02)");
        image
    }
}

/// Whether the store has a message with this number.
pub fn is_stored(store: &FaultStore, id: u64, sequence: u64) -> bool {
    let mut found = Vec::new();
    store.pin(&[codec::slot_key(EntityId(id), SequenceNumber(sequence))], &mut found);
    found[0].is_some()
}

fn pinned(store: &FaultStore, keys: &[Key]) -> Vec<bytes::Bytes> {
    let mut found = Vec::new();
    store.pin(keys, &mut found);
    let loaded = |(one, key): (Option<ContentRef>, &Key)| {
        let Some(one) = one else { panic!("{key:?} of {keys:?} has no content (LIF-02)") };
        one.loaded().expect("in memory").clone()
    };
    found.into_iter().zip(keys).map(loaded).collect()
}

/// A message by its content and overlays.
pub fn bare(content: bytes::Bytes, overlays: &[Overlay]) -> Bare {
    let marker = marker(content.clone());
    let mut message: Message = Content::parse(content).unwrap().decode().unwrap();
    for overlay in overlays {
        overlay.apply_to(&mut message);
    }
    let text = |key: &str| match message.application_property(key) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let number = |key: &str| match message.application_property(key) {
        Some(Value::I32(number)) => Some(i64::from(*number)),
        Some(Value::I64(number)) => Some(*number),
        _ => None,
    };
    let Some(MessageId::String(id)) = message.message_id.clone() else {
        panic!("every message has an id (MSG-07)");
    };
    Bare {
        marker,
        number: i32::try_from(number("number").unwrap()).unwrap(),
        subject: message.subject.as_deref().unwrap().parse().unwrap(),
        session: message.session_id.as_deref().map(|session| session.parse().unwrap()),
        id,
        time_to_live: message.time_to_live,
        schedule: message.scheduled_enqueue_time,
        rule: text("RuleName"),
        mark: number("mark").map(i64::unsigned_abs),
        reason: text("DeadLetterReason"),
        source: Overlay::dead_letter_source_of(overlays.iter()).map(str::to_owned),
    }
}
