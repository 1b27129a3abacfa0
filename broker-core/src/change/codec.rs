//! Keys and values of the store.
//!
//! A key is its space (the entity id, 8 bytes big-endian), a table (1 byte) and the rest, so that a
//! scan of a space meets the description first and messages in order of their numbers. The namespace
//! has space 0, whose records say of which kind an entity is.
//!
//! | table | rest of the key | value |
//! |---|---|---|
//! | 01 description | | properties of the queue, topic or subscription |
//! | 02 counters | | last number, created, updated, last used |
//! | 03 rule | keyed hash of the name in lower case (16) | the rule; in the space of its subscription |
//! | 10 slot | number (8) | the slot; the content is the message |
//! | 11 overlay | number (8), index (2) | nothing; the content is the overlay |
//! | 20 message id | bucket (8), hash (16) | accepted at (8), number if scheduled (8) |
//! | 21 forwarded by a peer | broker (16), entity (8), sub-queue (1), place (2) | ordinal (8), number (8), enqueued at (8), taken at (8) |
//! | 30 session state | keyed hash of the session id (16) | set at (8), size (8), session id; the content is the state |
//!
//! In the namespace's space:
//!
//! | table | rest of the key | value |
//! |---|---|---|
//! | 01 ids | | up to which ids are taken |
//! | 02 secrets | | the key of hashes |
//! | 10 queue | id (8) | its path |
//! | 11 topic | id (8) | its path |
//! | 12 subscription | id (8) | id of its topic (8), name |
//!
//! To change a stored type: give it the next version byte, write only that, and go on reading every
//! earlier one. Golden records of each version stay in the tests.
//!
//! All types are of version 1 but the slot, which has four: 1 for a message without session, 2 for one
//! that belongs to a session, whose id it ends with, 3 for one that waits to be transferred, and ends
//! with the path of its destination. A store without sessions has no version 2 in it, one without
//! send-via no version 3. At a topic, where nothing is in a session, version 2 is one that comes from a
//! dead-letter queue, and ends with the path of where it was dead-lettered. Version 4 is any of these
//! whose sender gave no message id: it ends with a byte that says whether there is such a text, and with
//! the text if there is.

use super::super::entity::peers::{PeerSource, Taking};
use super::super::entity::slot::{Slot, SlotState};
use crate::description::{
    EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription,
};
use crate::ids::{EntityId, SequenceNumber};
use crate::path::SubQueue;
use crate::store::{Key, SPACE_BYTES};
use crate::time::{TimeSpan, Timestamp};

#[cfg(test)]
mod tests;

/// The space of the namespace's own records.
pub(crate) const NAMESPACE_SPACE: u64 = 0;
pub(crate) const QUEUE_ENTRY: u8 = 0x10;
pub(crate) const TOPIC_ENTRY: u8 = 0x11;
pub(crate) const SUBSCRIPTION_ENTRY: u8 = 0x12;

const DESCRIPTION: u8 = 0x01;
const COUNTERS: u8 = 0x02;
const RULE: u8 = 0x03;
const SLOT: u8 = 0x10;
const OVERLAY: u8 = 0x11;
const ID: u8 = 0x20;
const PEER: u8 = 0x21;
const SESSION_STATE: u8 = 0x30;

pub(crate) const VERSION: u8 = 1;
/// The version of a slot whose message belongs to a session.
const VERSION_IN_SESSION: u8 = 2;
/// The version of a slot whose message waits for its transfer.
const VERSION_PENDING: u8 = 3;
/// The version of a slot whose message is never a duplicate, whatever else it is (DUP-14).
const VERSION_NEVER_DUPLICATE: u8 = 4;

/// What a key of an entity's space names.
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
    /// The state of a session.
    SessionState,
}

/// What is stored of a session's state beside its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStateRecord {
    /// The session.
    pub session: Box<str>,
    /// When the state was set.
    pub set_at: Timestamp,
    /// How many bytes it has.
    pub size: u64,
}

/// The counters of an entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    /// The highest number given so far.
    pub last_sequence: SequenceNumber,
    /// When the entity was created.
    pub created_at: Timestamp,
    /// Last change of its description.
    pub updated_at: Timestamp,
    /// Last activity.
    pub last_used_at: Timestamp,
}

/// The space of an entity: the prefix of all its keys.
#[must_use]
pub fn space_key(id: EntityId) -> Key {
    Key::of_space(id.0)
}

/// Where the description lies.
#[must_use]
pub fn description_key(id: EntityId) -> Key {
    space_key(id).then(&[DESCRIPTION])
}

/// Where the counters lie.
#[must_use]
pub fn counters_key(id: EntityId) -> Key {
    space_key(id).then(&[COUNTERS])
}

/// Where a rule of a subscription lies, by a keyed hash of its name in lower case: a name can be longer
/// than a key.
#[must_use]
pub fn rule_key(subscription: EntityId, name_hash: u128) -> Key {
    space_key(subscription).then(&[RULE]).then(&name_hash.to_be_bytes())
}

/// Where a message lies.
#[must_use]
pub fn slot_key(id: EntityId, sequence: SequenceNumber) -> Key {
    space_key(id).then(&[SLOT]).then(&sequence.0.to_be_bytes())
}

/// Where an overlay of a message lies.
#[must_use]
pub fn overlay_key(id: EntityId, sequence: SequenceNumber, index: u16) -> Key {
    overlays_key(id, sequence).then(&index.to_be_bytes())
}

/// The prefix of all overlays of a message.
#[must_use]
pub fn overlays_key(id: EntityId, sequence: SequenceNumber) -> Key {
    space_key(id).then(&[OVERLAY]).then(&sequence.0.to_be_bytes())
}

/// Where a message id lies.
#[must_use]
pub fn id_key(id: EntityId, bucket: Timestamp, id_hash: u128) -> Key {
    id_bucket_key(id, bucket).then(&id_hash.to_be_bytes())
}

/// The prefix of all message ids of a bucket.
#[must_use]
pub fn id_bucket_key(id: EntityId, bucket: Timestamp) -> Key {
    space_key(id).then(&[ID]).then(&bucket.ticks().to_be_bytes())
}

/// Where it lies that a message of another broker was taken, by its place in the ring of its source.
#[must_use]
pub fn peer_key(id: EntityId, source: &PeerSource, place: u64) -> Key {
    let place = u16::try_from(place).unwrap_or(u16::MAX);
    peer_source_key(id, source).then(&place.to_be_bytes())
}

/// The prefix of all messages that were taken of a source.
#[must_use]
pub fn peer_source_key(id: EntityId, source: &PeerSource) -> Key {
    space_key(id)
        .then(&[PEER])
        .then(&source.broker.to_be_bytes())
        .then(&source.entity.0.to_be_bytes())
        .then(&[sub_queue_code(source.sub_queue)])
}

/// Where the state of a session lies, by a keyed hash of its id: an id can be longer than a key.
#[must_use]
pub fn session_state_key(id: EntityId, session_hash: u128) -> Key {
    space_key(id).then(&[SESSION_STATE]).then(&session_hash.to_be_bytes())
}

/// Where the namespace notes a queue.
#[must_use]
pub fn queue_entry_key(id: EntityId) -> Key {
    entry_key(QUEUE_ENTRY, id)
}

/// Where the namespace notes a topic.
#[must_use]
pub fn topic_entry_key(id: EntityId) -> Key {
    entry_key(TOPIC_ENTRY, id)
}

/// Where the namespace notes a subscription.
#[must_use]
pub fn subscription_entry_key(id: EntityId) -> Key {
    entry_key(SUBSCRIPTION_ENTRY, id)
}

fn entry_key(table: u8, id: EntityId) -> Key {
    Key::of_space(NAMESPACE_SPACE).then(&[table]).then(&id.0.to_be_bytes())
}

/// Writes what the namespace notes of a subscription.
pub fn write_subscription_entry(topic: EntityId, name: &str, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&topic.0.to_be_bytes());
    write_text(name, value);
}

/// Reads what the namespace notes of a subscription: its topic and its name.
///
/// # Errors
/// With what is wrong with it.
pub fn read_subscription_entry(value: &[u8]) -> Read<(EntityId, Box<str>)> {
    let mut reader = Reader(value);
    reader.version()?;
    let found = (EntityId(reader.u64()?), reader.text()?);
    reader.end()?;
    Ok(found)
}

type Read<T> = Result<T, &'static str>;

/// Takes a key of an entity's space apart.
///
/// # Errors
/// With what is wrong with it.
pub fn read_key(key: &[u8]) -> Read<RecordKey> {
    let mut reader = Reader(key.get(SPACE_BYTES..).ok_or("key without space")?);
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
        SESSION_STATE => {
            reader.u128()?;
            RecordKey::SessionState
        }
        _ => return Err("unknown table"),
    };
    reader.end()?;
    Ok(found)
}

/// Writes a slot, and the session its message belongs to; of a pending one, its destination instead; of
/// one that waits at a topic, the entity in which it was dead-lettered. Its lock does not survive a restart, and what is read was durable.
pub fn write_slot(slot: &Slot, text: Option<&str>, value: &mut Vec<u8>) {
    let state = match slot.state {
        SlotState::Scheduled => 0,
        SlotState::Active => 1,
        SlotState::Deferred => 2,
        SlotState::Pending => 3,
    };
    let sub_queue = sub_queue_code(slot.sub_queue);
    let version = match (slot.state, text) {
        _ if slot.never_duplicate => VERSION_NEVER_DUPLICATE,
        (SlotState::Pending, _) => VERSION_PENDING,
        (_, Some(_)) => VERSION_IN_SESSION,
        (_, None) => VERSION,
    };
    value.extend_from_slice(&[version, state, sub_queue, slot.hops]);
    value.extend_from_slice(&slot.enqueued_at.ticks().to_be_bytes());
    value.extend_from_slice(&slot.expires_at.ticks().to_be_bytes());
    value.extend_from_slice(&slot.enqueued_sequence.0.to_be_bytes());
    value.extend_from_slice(&slot.size.to_be_bytes());
    value.extend_from_slice(&slot.header_size.to_be_bytes());
    value.extend_from_slice(&slot.delivery_count.to_be_bytes());
    value.extend_from_slice(&slot.overlay_count.to_be_bytes());
    match version {
        VERSION => {}
        VERSION_NEVER_DUPLICATE => {
            value.push(u8::from(text.is_some()));
            if let Some(text) = text {
                write_text(text, value);
            }
        }
        _ => write_text(text.unwrap_or_default(), value),
    }
}

/// Reads a slot, and the text beside it that [`write_slot`] was given.
///
/// # Errors
/// With what is wrong with it.
pub fn read_slot(value: &[u8]) -> Read<(Slot, Option<&str>)> {
    let mut reader = Reader(value);
    let version = reader.u8()?;
    let state = match reader.u8()? {
        0 => SlotState::Scheduled,
        1 => SlotState::Active,
        2 => SlotState::Deferred,
        3 => SlotState::Pending,
        _ => return Err("unknown state"),
    };
    let sub_queue = reader.sub_queue()?;
    let hops = reader.u8()?;
    let slot = Slot {
        enqueued_at: reader.instant()?,
        expires_at: reader.instant()?,
        enqueued_sequence: SequenceNumber(reader.u64()?),
        size: reader.u32()?,
        header_size: reader.u32()?,
        delivery_count: reader.u32()?,
        lock: None,
        overlay_count: reader.u16()?,
        state,
        sub_queue,
        hops,
        in_flight: false,
        transferring: false,
        never_duplicate: version == VERSION_NEVER_DUPLICATE,
    };
    let text = match version {
        VERSION => None,
        VERSION_NEVER_DUPLICATE if !reader.switch()? => None,
        VERSION_NEVER_DUPLICATE | VERSION_IN_SESSION | VERSION_PENDING => Some(reader.str()?),
        _ => return Err("version is not known"),
    };
    let has_destination = match version {
        VERSION_NEVER_DUPLICATE => slot.state == SlotState::Pending && text.is_some(),
        _ => version == VERSION_PENDING,
    };
    if (slot.state == SlotState::Pending) != has_destination {
        return Err("only a pending message has a destination");
    }
    reader.end()?;
    Ok((slot, text))
}

const fn sub_queue_code(sub_queue: SubQueue) -> u8 {
    match sub_queue {
        SubQueue::Main => 0,
        SubQueue::DeadLetter => 1,
        SubQueue::TransferDeadLetter => 2,
    }
}

/// Writes which message of another broker was taken.
pub fn write_taking(taking: &Taking, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&taking.ordinal.to_be_bytes());
    value.extend_from_slice(&taking.sequence.0.to_be_bytes());
    for at in [taking.enqueued_at, taking.at] {
        value.extend_from_slice(&at.ticks().to_be_bytes());
    }
}

/// Reads which message of another broker was taken.
///
/// # Errors
/// With what is wrong with it.
pub fn read_taking(value: &[u8]) -> Read<Taking> {
    let mut reader = Reader(value);
    reader.version()?;
    let found = Taking {
        ordinal: reader.u64()?,
        sequence: SequenceNumber(reader.u64()?),
        enqueued_at: reader.instant()?,
        at: reader.instant()?,
    };
    reader.end()?;
    Ok(found)
}

/// Writes what is stored of a session's state beside its bytes.
pub fn write_session_state(session: &str, set_at: Timestamp, size: u64, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&set_at.ticks().to_be_bytes());
    value.extend_from_slice(&size.to_be_bytes());
    write_text(session, value);
}

/// Reads what is stored of a session's state beside its bytes.
///
/// # Errors
/// With what is wrong with it.
pub fn read_session_state(value: &[u8]) -> Read<SessionStateRecord> {
    let mut reader = Reader(value);
    reader.version()?;
    let (set_at, size) = (reader.instant()?, reader.u64()?);
    let found = SessionStateRecord { session: reader.text()?, set_at, size };
    reader.end()?;
    Ok(found)
}

/// Writes when an id was accepted.
pub fn write_acceptance(at: Timestamp, sequence: SequenceNumber, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&at.ticks().to_be_bytes());
    value.extend_from_slice(&sequence.0.to_be_bytes());
}

/// Reads when an id was accepted.
///
/// # Errors
/// With what is wrong with it.
pub fn read_acceptance(value: &[u8]) -> Read<(Timestamp, SequenceNumber)> {
    let mut reader = Reader(value);
    reader.version()?;
    let found = (reader.instant()?, SequenceNumber(reader.u64()?));
    reader.end()?;
    Ok(found)
}

/// Writes the counters.
pub fn write_counters(counters: &Counters, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&counters.last_sequence.0.to_be_bytes());
    for at in [counters.created_at, counters.updated_at, counters.last_used_at] {
        value.extend_from_slice(&at.ticks().to_be_bytes());
    }
}

/// Reads the counters.
///
/// # Errors
/// With what is wrong with them.
pub fn read_counters(value: &[u8]) -> Read<Counters> {
    let mut reader = Reader(value);
    reader.version()?;
    let found = Counters {
        last_sequence: SequenceNumber(reader.u64()?),
        created_at: reader.instant()?,
        updated_at: reader.instant()?,
        last_used_at: reader.instant()?,
    };
    reader.end()?;
    Ok(found)
}

/// Writes the description of a queue.
pub fn write_description(description: &QueueDescription, value: &mut Vec<u8>) {
    let QueueDescription {
        path,
        lock_duration,
        max_size_in_megabytes,
        requires_duplicate_detection,
        duplicate_detection_history_time_window,
        requires_session,
        default_message_time_to_live,
        dead_lettering_on_message_expiration,
        max_delivery_count,
        enable_batched_operations,
        status,
        forward_to,
        forward_dead_lettered_messages_to,
        auto_delete_on_idle,
        enable_partitioning,
        enable_express,
        max_message_size_in_kilobytes,
        user_metadata,
    } = description;
    value.push(VERSION);
    write_text(path, value);
    for span in [
        lock_duration,
        duplicate_detection_history_time_window,
        default_message_time_to_live,
        auto_delete_on_idle,
    ] {
        value.extend_from_slice(&span.ticks().to_be_bytes());
    }
    value.extend_from_slice(&max_size_in_megabytes.to_be_bytes());
    value.extend_from_slice(&max_message_size_in_kilobytes.to_be_bytes());
    value.extend_from_slice(&max_delivery_count.to_be_bytes());
    for switch in [
        requires_duplicate_detection,
        requires_session,
        dead_lettering_on_message_expiration,
        enable_batched_operations,
        enable_partitioning,
        enable_express,
    ] {
        value.push(u8::from(*switch));
    }
    write_text(status.name(), value);
    for text in [forward_to, forward_dead_lettered_messages_to, user_metadata] {
        write_optional_text(text.as_deref(), value);
    }
}

/// Reads the description of a queue.
///
/// # Errors
/// With what is wrong with it.
pub fn read_description(value: &[u8]) -> Read<QueueDescription> {
    let mut reader = Reader(value);
    reader.version()?;
    let description = QueueDescription {
        path: reader.text()?,
        lock_duration: reader.span()?,
        duplicate_detection_history_time_window: reader.span()?,
        default_message_time_to_live: reader.span()?,
        auto_delete_on_idle: reader.span()?,
        max_size_in_megabytes: reader.u64()?,
        max_message_size_in_kilobytes: reader.u64()?,
        max_delivery_count: reader.u32()?,
        requires_duplicate_detection: reader.switch()?,
        requires_session: reader.switch()?,
        dead_lettering_on_message_expiration: reader.switch()?,
        enable_batched_operations: reader.switch()?,
        enable_partitioning: reader.switch()?,
        enable_express: reader.switch()?,
        status: EntityStatus::parse(&reader.text()?).ok_or("unknown status")?,
        forward_to: reader.optional_text()?,
        forward_dead_lettered_messages_to: reader.optional_text()?,
        user_metadata: reader.optional_text()?,
    };
    reader.end()?;
    Ok(description)
}

/// Writes the description of a topic.
pub fn write_topic(description: &TopicDescription, value: &mut Vec<u8>) {
    let TopicDescription {
        path,
        max_size_in_megabytes,
        requires_duplicate_detection,
        duplicate_detection_history_time_window,
        default_message_time_to_live,
        enable_batched_operations,
        status,
        auto_delete_on_idle,
        enable_partitioning,
        enable_express,
        support_ordering,
        max_message_size_in_kilobytes,
        user_metadata,
    } = description;
    value.push(VERSION);
    write_text(path, value);
    for span in
        [duplicate_detection_history_time_window, default_message_time_to_live, auto_delete_on_idle]
    {
        value.extend_from_slice(&span.ticks().to_be_bytes());
    }
    value.extend_from_slice(&max_size_in_megabytes.to_be_bytes());
    value.extend_from_slice(&max_message_size_in_kilobytes.to_be_bytes());
    for switch in [
        requires_duplicate_detection,
        enable_batched_operations,
        enable_partitioning,
        enable_express,
        support_ordering,
    ] {
        value.push(u8::from(*switch));
    }
    write_text(status.name(), value);
    write_optional_text(user_metadata.as_deref(), value);
}

/// Reads the description of a topic.
///
/// # Errors
/// With what is wrong with it.
pub fn read_topic(value: &[u8]) -> Read<TopicDescription> {
    let mut reader = Reader(value);
    reader.version()?;
    let description = TopicDescription {
        path: reader.text()?,
        duplicate_detection_history_time_window: reader.span()?,
        default_message_time_to_live: reader.span()?,
        auto_delete_on_idle: reader.span()?,
        max_size_in_megabytes: reader.u64()?,
        max_message_size_in_kilobytes: reader.u64()?,
        requires_duplicate_detection: reader.switch()?,
        enable_batched_operations: reader.switch()?,
        enable_partitioning: reader.switch()?,
        enable_express: reader.switch()?,
        support_ordering: reader.switch()?,
        status: EntityStatus::parse(&reader.text()?).ok_or("unknown status")?,
        user_metadata: reader.optional_text()?,
    };
    reader.end()?;
    Ok(description)
}

/// Writes the description of a subscription.
pub fn write_subscription(description: &SubscriptionDescription, value: &mut Vec<u8>) {
    let SubscriptionDescription {
        topic,
        name,
        lock_duration,
        requires_session,
        default_message_time_to_live,
        dead_lettering_on_message_expiration,
        enable_dead_lettering_on_filter_evaluation_exceptions,
        max_delivery_count,
        enable_batched_operations,
        status,
        forward_to,
        forward_dead_lettered_messages_to,
        auto_delete_on_idle,
        user_metadata,
    } = description;
    value.push(VERSION);
    write_text(topic, value);
    write_text(name, value);
    for span in [lock_duration, default_message_time_to_live, auto_delete_on_idle] {
        value.extend_from_slice(&span.ticks().to_be_bytes());
    }
    value.extend_from_slice(&max_delivery_count.to_be_bytes());
    for switch in [
        requires_session,
        dead_lettering_on_message_expiration,
        enable_dead_lettering_on_filter_evaluation_exceptions,
        enable_batched_operations,
    ] {
        value.push(u8::from(*switch));
    }
    write_text(status.name(), value);
    for text in [forward_to, forward_dead_lettered_messages_to, user_metadata] {
        write_optional_text(text.as_deref(), value);
    }
}

/// Reads the description of a subscription.
///
/// # Errors
/// With what is wrong with it.
pub fn read_subscription(value: &[u8]) -> Read<SubscriptionDescription> {
    let mut reader = Reader(value);
    reader.version()?;
    let description = SubscriptionDescription {
        topic: reader.text()?,
        name: reader.text()?,
        lock_duration: reader.span()?,
        default_message_time_to_live: reader.span()?,
        auto_delete_on_idle: reader.span()?,
        max_delivery_count: reader.u32()?,
        requires_session: reader.switch()?,
        dead_lettering_on_message_expiration: reader.switch()?,
        enable_dead_lettering_on_filter_evaluation_exceptions: reader.switch()?,
        enable_batched_operations: reader.switch()?,
        status: EntityStatus::parse(&reader.text()?).ok_or("unknown status")?,
        forward_to: reader.optional_text()?,
        forward_dead_lettered_messages_to: reader.optional_text()?,
        user_metadata: reader.optional_text()?,
    };
    reader.end()?;
    Ok(description)
}

fn write_optional_text(text: Option<&str>, value: &mut Vec<u8>) {
    value.push(u8::from(text.is_some()));
    write_text(text.unwrap_or_default(), value);
}

pub(crate) fn write_text(text: &str, value: &mut Vec<u8>) {
    value.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    value.extend_from_slice(text.as_bytes());
}

/// Reads fields off the front of a value.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(value: &'a [u8]) -> Self {
        Self(value)
    }

    pub(crate) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("value too short")?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| "value too short")
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Read<u128> {
        Ok(u128::from_be_bytes(self.array()?))
    }

    fn sub_queue(&mut self) -> Read<SubQueue> {
        match self.u8()? {
            0 => Ok(SubQueue::Main),
            1 => Ok(SubQueue::DeadLetter),
            2 => Ok(SubQueue::TransferDeadLetter),
            _ => Err("unknown sub-queue"),
        }
    }

    pub(crate) fn instant(&mut self) -> Read<Timestamp> {
        Ok(Timestamp::from_ticks(i64::from_be_bytes(self.array()?)))
    }

    pub(crate) fn span(&mut self) -> Read<TimeSpan> {
        Ok(TimeSpan::from_ticks(i64::from_be_bytes(self.array()?)))
    }

    pub(crate) fn switch(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("switch is neither 0 nor 1"),
        }
    }

    fn str(&mut self) -> Read<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).map_err(|_| "text is not UTF-8")
    }

    pub(crate) fn text(&mut self) -> Read<Box<str>> {
        Ok(self.str()?.into())
    }

    pub(crate) fn optional_text(&mut self) -> Read<Option<Box<str>>> {
        let present = self.switch()?;
        let text = self.text()?;
        Ok(present.then_some(text))
    }

    pub(crate) fn version(&mut self) -> Read<()> {
        if self.u8()? == VERSION { Ok(()) } else { Err("version is not known") }
    }

    pub(crate) const fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err("value too long") }
    }
}
