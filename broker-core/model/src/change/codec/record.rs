//! Small records: counters, ids, what was taken of a peer, states of sessions, entries of the namespace.

use super::VERSION;
use super::reader::{Read, Reader, write_text};
use crate::ids::{EntityId, SequenceNumber};
use crate::path::SubQueue;
use crate::time::Timestamp;
use crate::transfer::peer::Taking;

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

/// What is stored of the namespace itself (CNT-10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceFacts {
    /// When it was created.
    pub created_at: Timestamp,
    /// When name or tier were last changed.
    pub modified_at: Timestamp,
    /// The name since then.
    pub name: Box<str>,
    /// The name of the tier since then.
    pub tier: Box<str>,
}

/// Writes what is stored of the namespace itself.
pub fn write_namespace_facts(facts: &NamespaceFacts, value: &mut Vec<u8>) {
    value.push(VERSION);
    for at in [facts.created_at, facts.modified_at] {
        value.extend_from_slice(&at.ticks().to_be_bytes());
    }
    write_text(&facts.name, value);
    write_text(&facts.tier, value);
}

/// Reads what is stored of the namespace itself.
///
/// # Errors
/// With what is wrong with it.
pub fn read_namespace_facts(value: &[u8]) -> Read<NamespaceFacts> {
    let mut reader = Reader::new(value);
    reader.version()?;
    let found = NamespaceFacts {
        created_at: reader.instant()?,
        modified_at: reader.instant()?,
        name: reader.text()?,
        tier: reader.text()?,
    };
    reader.end()?;
    Ok(found)
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
    let mut reader = Reader::new(value);
    reader.version()?;
    let found = (EntityId(reader.u64()?), reader.text()?);
    reader.end()?;
    Ok(found)
}

pub(super) const fn sub_queue_code(sub_queue: SubQueue) -> u8 {
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
    let mut reader = Reader::new(value);
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
    let mut reader = Reader::new(value);
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
    let mut reader = Reader::new(value);
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
    let mut reader = Reader::new(value);
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
