//! The stored records of an entity, read without the machine.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_core::change::codec::{self, RecordKey};
use peeklock_core::description::QueueDescription;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::machine::slot::SlotState;
use peeklock_core::message::Content;
use peeklock_core::path::SubQueue;
use peeklock_core::store::{Key, Store};
use peeklock_store_testing::{FaultStore, visit_records};

/// A message as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    pub sequence: u64,
    pub marker: u64,
    pub sub_queue: SubQueue,
    pub state: SlotState,
    /// Whether it is delayed, or was when it was last written.
    pub is_delayed: bool,
    pub delivery_count: u32,
    pub size: u64,
    pub overlay_count: u16,
    pub session: Option<String>,
}

/// An entity as it is stored.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub description: Option<QueueDescription>,
    pub messages: Vec<Stored>,
    pub last_sequence: u64,
    pub size_bytes: u64,
    pub overlay_count: u64,
    pub states: BTreeMap<String, Bytes>,
}

impl Image {
    /// Reads an entity; `None` if nothing is stored.
    pub fn read(store: &FaultStore, id: EntityId) -> Option<Self> {
        let mut image = Self::default();
        let mut keys: Vec<Key> = Vec::new();
        let mut states: Vec<(Key, String, u64)> = Vec::new();
        let mut overlay_records = 0;
        visit_records(store, &codec::space_key(id), |key, value| {
            match codec::read_key(key).expect("every key can be read") {
                RecordKey::Description => {
                    let description = codec::read_description(value);
                    image.description = Some(description.expect("a description can be read"));
                }
                RecordKey::Counters => {
                    let counters = codec::read_counters(value).expect("counters can be read");
                    image.last_sequence = counters.last_sequence.0;
                }
                RecordKey::Slot(sequence) => {
                    let (slot, session) = codec::read_slot(value).expect("a slot can be read");
                    keys.push(Key::from_bytes(key).expect("a key of a legal length"));
                    image.size_bytes += u64::from(slot.size);
                    image.overlay_count += u64::from(slot.overlay_count);
                    image.messages.push(Stored {
                        sequence: sequence.0,
                        marker: 0,
                        sub_queue: slot.sub_queue,
                        state: slot.state,
                        is_delayed: slot.is_delayed(),
                        delivery_count: slot.delivery_count,
                        size: u64::from(slot.size),
                        overlay_count: slot.overlay_count,
                        session: session.map(|session| session.to_string()),
                    });
                }
                RecordKey::Overlay => overlay_records += 1,
                RecordKey::SessionState => {
                    let state = codec::read_session_state(value).expect("a state can be read");
                    let key = Key::from_bytes(key).expect("a key of a legal length");
                    image.size_bytes += state.size;
                    states.push((key, state.session.to_string(), state.size));
                }
                RecordKey::Id { .. }
                | RecordKey::Rule
                | RecordKey::Peer(_)
                | RecordKey::Receipt(_) => {}
            }
        })
        .expect("the store can be scanned");
        let mut contents = Vec::new();
        store.pin(&keys, &mut contents);
        for (message, content) in image.messages.iter_mut().zip(contents) {
            let content = content.expect("every stored message has its content");
            message.marker = marker(content.loaded().expect("it is in memory").clone());
        }
        for (key, session, size) in states {
            let mut found = Vec::new();
            store.pin(&[key], &mut found);
            let content = found.pop().flatten().expect("a stored state has its bytes");
            let bytes = content.loaded().expect("it is in memory").clone();
            assert_eq!(bytes.len() as u64, size, "the size of the state of {session} (SES-27)");
            assert!(image.states.insert(session, bytes).is_none(), "a session has two states");
        }
        let is_there = image.description.is_some();
        assert!(is_there || image.messages.is_empty(), "messages without an entity are stored");
        assert_eq!(overlay_records, image.overlay_count, "overlays are stored with their messages");
        is_there.then_some(image)
    }

    /// Whether a message is stored.
    pub fn holds(store: &FaultStore, id: EntityId, sequence: u64) -> bool {
        let key = codec::slot_key(id, SequenceNumber(sequence));
        let mut found = false;
        visit_records(store, &key, |stored, _| found |= stored == key.as_bytes())
            .expect("the store can be scanned");
        found
    }
}

/// The number that a client wrote into the body.
pub fn marker(content: bytes::Bytes) -> u64 {
    let body = Content::parse(content).expect("content is kept as it was").body_bytes();
    std::str::from_utf8(&body)
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("a body is the number that its sender wrote")
}
