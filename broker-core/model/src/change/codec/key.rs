//! Keys of all records: builders for each record, and the parser for keys of an entity's space. The
//! machine builds keys with it, and restoring an entity parses them.

use super::reader::{Read, Reader};
use super::record::sub_queue_code;
use crate::ids::{EntityId, JobId, SequenceNumber};
use crate::store::{Key, SPACE_BYTES};
use crate::time::Timestamp;
use crate::transfer::peer::PeerSource;

/// The space of the namespace's own records.
pub const NAMESPACE_SPACE: u64 = 0;
/// The table of queues in it.
pub const QUEUE_ENTRY: u8 = 0x10;
/// The table of topics in it.
pub const TOPIC_ENTRY: u8 = 0x11;
/// The table of subscriptions in it.
pub const SUBSCRIPTION_ENTRY: u8 = 0x12;
/// The table of policies in it, of the namespace itself and of its queues and topics.
pub const POLICIES: u8 = 0x20;

/// Space of the facts about the namespace itself. It is no entity's space, since ids start at 1. It
/// is not the namespace's space either: brokers of version 0.1 refuse unknown tables there, and
/// never read this space.
const NAMESPACE_FACTS_SPACE: u64 = 1 << 63;
const FACTS: u8 = 0x01;

const DESCRIPTION: u8 = 0x01;
const COUNTERS: u8 = 0x02;
const RULE: u8 = 0x03;
const SLOT: u8 = 0x10;
const OVERLAY: u8 = 0x11;
const ID: u8 = 0x20;
const PEER: u8 = 0x21;
const RECEIPT: u8 = 0x22;
const SESSION_STATE: u8 = 0x30;

/// Record that a key of an entity's space names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKey {
    /// The description.
    Description,
    /// The counters.
    Counters,
    /// A rule of a subscription.
    Rule,
    /// The slot of a message.
    Slot(SequenceNumber),
    /// An overlay of a message.
    Overlay,
    /// A message id of the duplicate detection history.
    Id {
        /// Start of its bucket.
        bucket: Timestamp,
        /// Keyed hash of the id.
        id_hash: u128,
    },
    /// A message that a source at another broker has forwarded.
    Peer(PeerSource),
    /// The receipt of a job.
    Receipt(JobId),
    /// The state of a session.
    SessionState,
}

/// Returns the key of the facts about the namespace itself (CNT-10).
#[must_use]
pub fn namespace_facts_key() -> Key {
    Key::of_space(NAMESPACE_FACTS_SPACE).then(&[FACTS])
}

/// Returns the space of an entity: the prefix of all its keys.
#[must_use]
pub fn space_key(id: EntityId) -> Key {
    Key::of_space(id.0)
}

/// Returns the key of the description.
#[must_use]
pub fn description_key(id: EntityId) -> Key {
    space_key(id).then(&[DESCRIPTION])
}

/// Returns the key of the counters.
#[must_use]
pub fn counters_key(id: EntityId) -> Key {
    space_key(id).then(&[COUNTERS])
}

/// Returns the key of a rule of a subscription. It has a keyed hash of the rule's lower-case name,
/// because a name can be longer than a key.
#[must_use]
pub fn rule_key(subscription: EntityId, name_hash: u128) -> Key {
    space_key(subscription).then(&[RULE]).then(&name_hash.to_be_bytes())
}

/// Returns the key of a message.
#[must_use]
pub fn slot_key(id: EntityId, sequence: SequenceNumber) -> Key {
    space_key(id).then(&[SLOT]).then(&sequence.0.to_be_bytes())
}

/// Returns the key of an overlay of a message.
#[must_use]
pub fn overlay_key(id: EntityId, sequence: SequenceNumber, index: u16) -> Key {
    overlays_key(id, sequence).then(&index.to_be_bytes())
}

/// Returns the prefix of all overlays of a message.
#[must_use]
pub fn overlays_key(id: EntityId, sequence: SequenceNumber) -> Key {
    space_key(id).then(&[OVERLAY]).then(&sequence.0.to_be_bytes())
}

/// Returns the key of a message id for duplicate detection.
#[must_use]
pub fn id_key(id: EntityId, bucket: Timestamp, id_hash: u128) -> Key {
    id_bucket_key(id, bucket).then(&id_hash.to_be_bytes())
}

/// Returns the prefix of all message ids of a bucket.
#[must_use]
pub fn id_bucket_key(id: EntityId, bucket: Timestamp) -> Key {
    space_key(id).then(&[ID]).then(&bucket.ticks().to_be_bytes())
}

/// Returns the key of a message taken from another broker, by its place in the ring of its source.
#[must_use]
pub fn peer_key(id: EntityId, source: &PeerSource, place: u64) -> Key {
    let place = u16::try_from(place).unwrap_or(u16::MAX);
    peer_source_key(id, source).then(&place.to_be_bytes())
}

/// Returns the prefix of all messages taken from a source.
#[must_use]
pub fn peer_source_key(id: EntityId, source: &PeerSource) -> Key {
    space_key(id)
        .then(&[PEER])
        .then(&source.broker.to_be_bytes())
        .then(&source.entity.0.to_be_bytes())
        .then(&[sub_queue_code(source.sub_queue)])
}

/// Returns the key of the receipt of a job.
#[must_use]
pub fn receipt_key(id: EntityId, job: JobId) -> Key {
    space_key(id).then(&[RECEIPT]).then(&job.0.to_be_bytes())
}

/// Returns the key of a session's state. It has a keyed hash of the session id, because an id can
/// be longer than a key.
#[must_use]
pub fn session_state_key(id: EntityId, session_hash: u128) -> Key {
    space_key(id).then(&[SESSION_STATE]).then(&session_hash.to_be_bytes())
}

/// Returns the key of the namespace's entry for a queue.
#[must_use]
pub fn queue_entry_key(id: EntityId) -> Key {
    entry_key(QUEUE_ENTRY, id)
}

/// Returns the key of the namespace's entry for a topic.
#[must_use]
pub fn topic_entry_key(id: EntityId) -> Key {
    entry_key(TOPIC_ENTRY, id)
}

/// Returns the key of the namespace's entry for a subscription.
#[must_use]
pub fn subscription_entry_key(id: EntityId) -> Key {
    entry_key(SUBSCRIPTION_ENTRY, id)
}

/// Returns the key of all policies of a queue or topic; the id [`NAMESPACE_SPACE`] stands for the
/// namespace itself.
#[must_use]
pub fn policies_key(id: EntityId) -> Key {
    entry_key(POLICIES, id)
}

fn entry_key(table: u8, id: EntityId) -> Key {
    Key::of_space(NAMESPACE_SPACE).then(&[table]).then(&id.0.to_be_bytes())
}

/// Parses a key of an entity's space.
///
/// # Errors
/// A description of the error in the key.
pub fn read_key(key: &[u8]) -> Read<RecordKey> {
    let mut reader = Reader::new(key.get(SPACE_BYTES..).ok_or("key without space")?);
    let found = match reader.u8()? {
        DESCRIPTION => RecordKey::Description,
        COUNTERS => RecordKey::Counters,
        RULE => {
            reader.u128()?;
            RecordKey::Rule
        }
        SLOT => RecordKey::Slot(SequenceNumber(reader.u64()?)),
        OVERLAY => {
            reader.u64()?;
            reader.u16()?;
            RecordKey::Overlay
        }
        ID => RecordKey::Id { bucket: reader.instant()?, id_hash: reader.u128()? },
        PEER => {
            let broker = reader.u128()?;
            let entity = EntityId(reader.u64()?);
            let source = PeerSource { broker, entity, sub_queue: reader.sub_queue()? };
            reader.u16()?;
            RecordKey::Peer(source)
        }
        RECEIPT => RecordKey::Receipt(JobId(reader.u128()?)),
        SESSION_STATE => {
            reader.u128()?;
            RecordKey::SessionState
        }
        _ => return Err("unknown table"),
    };
    reader.end()?;
    Ok(found)
}
