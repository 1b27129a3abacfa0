//! Codec of small records: counters, message ids, messages taken from a peer, session states,
//! entries of the namespace. Records of older versions stay readable.

use std::sync::Arc;

use bytes::Bytes;

use super::VERSION;
use super::reader::{Read, Reader, write_optional_text, write_text};
use crate::command::{ActResult, ActedMessage, BodyEdit, Edit, JobStep, Receipt, Route};
use crate::ids::{EntityId, JobId, SequenceNumber};
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::time::Timestamp;
use crate::transfer::peer::PeerRecord;

/// Record of a session's state; its content has the bytes of the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStateRecord {
    /// The session.
    pub session: Box<str>,
    /// Instant of the last change of the state.
    pub set_at: Timestamp,
    /// Number of bytes of the state.
    pub size: u64,
}

/// The counters of an entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    /// The highest sequence number that was given.
    pub last_sequence: SequenceNumber,
    /// Instant of the creation of the entity.
    pub created_at: Timestamp,
    /// Last change of its description.
    pub updated_at: Timestamp,
    /// Last activity.
    pub last_used_at: Timestamp,
}

/// Facts about the namespace itself (CNT-10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceFacts {
    /// Instant of the creation of the namespace.
    pub created_at: Timestamp,
    /// Instant of the last change of name or tier.
    pub modified_at: Timestamp,
    /// The name after that change.
    pub name: Box<str>,
    /// The name of the tier after that change.
    pub tier: Box<str>,
}

/// Writes the facts about the namespace itself.
pub fn write_namespace_facts(facts: &NamespaceFacts, value: &mut Vec<u8>) {
    value.push(VERSION);
    for at in [facts.created_at, facts.modified_at] {
        value.extend_from_slice(&at.ticks().to_be_bytes());
    }
    write_text(&facts.name, value);
    write_text(&facts.tier, value);
}

/// Reads the facts about the namespace itself.
///
/// # Errors
/// A description of the error in the value.
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

/// Writes the namespace's entry for a subscription.
pub fn write_subscription_entry(topic: EntityId, name: &str, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&topic.0.to_be_bytes());
    write_text(name, value);
}

/// Reads the namespace's entry for a subscription: its topic and its name.
///
/// # Errors
/// A description of the error in the value.
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

/// Writes the identity of a message taken from another broker.
pub fn write_peer_record(record: &PeerRecord, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&record.ordinal.to_be_bytes());
    value.extend_from_slice(&record.sequence.0.to_be_bytes());
    for at in [record.enqueued_at, record.at] {
        value.extend_from_slice(&at.ticks().to_be_bytes());
    }
}

/// Reads the identity of a message taken from another broker.
///
/// # Errors
/// A description of the error in the value.
pub fn read_peer_record(value: &[u8]) -> Read<PeerRecord> {
    let mut reader = Reader::new(value);
    reader.version()?;
    let found = PeerRecord {
        ordinal: reader.u64()?,
        sequence: SequenceNumber(reader.u64()?),
        enqueued_at: reader.instant()?,
        at: reader.instant()?,
    };
    reader.end()?;
    Ok(found)
}

/// Version of a receipt whose messages have a route.
const ROUTED: u8 = VERSION + 1;

/// Marks of an edit with a new body, in addition to the number of the edit.
const WHOLE_BODY: u8 = 4;
const MERGE_PATCH: u8 = 8;

/// Writes the receipt of a job.
pub fn write_receipt(receipt: &Receipt, value: &mut Vec<u8>) {
    value.push(if receipt.route.is_some() { ROUTED } else { VERSION });
    value.extend_from_slice(&receipt.step.number.to_be_bytes());
    value.extend_from_slice(&receipt.at.ticks().to_be_bytes());
    value.push(sub_queue_code(receipt.sub_queue));
    value.extend_from_slice(&receipt.deed_hash.to_be_bytes());
    if let Some(Route { to, is_resubmit, edit }) = &receipt.route {
        value.push(u8::from(*is_resubmit));
        write_optional_text(to.as_deref(), value);
        let changes = edit.as_ref().map(|edit| edit.changes.as_bytes());
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
        let body = edit.as_ref().and_then(|edit| edit.body.as_ref());
        let mark = match body {
            None => 0,
            Some(BodyEdit::Whole(_)) => WHOLE_BODY,
            Some(BodyEdit::MergePatch(_)) => MERGE_PATCH,
        };
        value.push(edit.as_ref().map_or(0, |edit| 1 + u8::from(edit.new_id) + mark));
        let changes = changes.map_or(&[][..], |changes| &**changes);
        for bytes in std::iter::once(changes).chain(body.map(BodyEdit::as_bytes)) {
            value.extend_from_slice(&length(bytes));
            value.extend_from_slice(bytes);
        }
    }
    for message in &receipt.messages {
        value.extend_from_slice(&message.sequence.0.to_be_bytes());
        value.push(message.result as u8);
    }
}

/// Reads the receipt of a job.
///
/// # Errors
/// A description of the error in the value.
pub fn read_receipt(job: JobId, value: &[u8]) -> Read<Receipt> {
    let mut reader = Reader::new(value);
    let is_routed = reader.version_or(ROUTED)?;
    let step = JobStep { job, number: reader.u64()? };
    let (at, sub_queue) = (reader.instant()?, reader.sub_queue()?);
    let deed_hash = reader.u64()?;
    let route = match is_routed {
        true => {
            let is_resubmit = reader.switch()?;
            let to = reader.optional_text()?.map(Into::into);
            let (marks, length) = (reader.u8()?, reader.u32()?);
            let is_body = matches!(marks & !3, 0 | WHOLE_BODY | MERGE_PATCH);
            if marks > 0 && !(is_body && matches!(marks & 3, 1 | 2)) {
                return Err("unknown marks of an edit");
            }
            let changes = Bytes::copy_from_slice(reader.take(length as usize)?);
            let body = match marks & (WHOLE_BODY | MERGE_PATCH) {
                0 => None,
                mark => {
                    let length = reader.u32()?;
                    let bytes = reader.take(length as usize)?;
                    Some(match mark {
                        MERGE_PATCH => BodyEdit::MergePatch(
                            std::str::from_utf8(bytes).map_err(|_| "a patch is no text")?.into(),
                        ),
                        _ => BodyEdit::Whole(Bytes::copy_from_slice(bytes)),
                    })
                }
            };
            let (changes, new_id) = (Overlay::from_bytes(changes), marks & 2 != 0);
            let edit = (marks > 0).then(|| Edit { changes, new_id, body });
            Some(Route { to, is_resubmit, edit: edit.map(Arc::new) })
        }
        false => None,
    };
    let mut messages = Vec::new();
    while reader.end().is_err() {
        let sequence = SequenceNumber(reader.u64()?);
        let result = ActResult::ALL.get(usize::from(reader.u8()?)).ok_or("unknown result")?;
        messages.push(ActedMessage { sequence, result: *result });
    }
    Ok(Receipt { step, at, sub_queue, deed_hash, route, messages })
}

/// Writes the record of a session's state.
pub fn write_session_state(session: &str, set_at: Timestamp, size: u64, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&set_at.ticks().to_be_bytes());
    value.extend_from_slice(&size.to_be_bytes());
    write_text(session, value);
}

/// Reads the record of a session's state.
///
/// # Errors
/// A description of the error in the value.
pub fn read_session_state(value: &[u8]) -> Read<SessionStateRecord> {
    let mut reader = Reader::new(value);
    reader.version()?;
    let (set_at, size) = (reader.instant()?, reader.u64()?);
    let found = SessionStateRecord { session: reader.text()?, set_at, size };
    reader.end()?;
    Ok(found)
}

/// Writes the acceptance of a message id.
pub fn write_acceptance(at: Timestamp, sequence: SequenceNumber, value: &mut Vec<u8>) {
    value.push(VERSION);
    value.extend_from_slice(&at.ticks().to_be_bytes());
    value.extend_from_slice(&sequence.0.to_be_bytes());
}

/// Reads the acceptance of a message id: its instant, and the number of a scheduled message.
///
/// # Errors
/// A description of the error in the value.
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
/// A description of the error in the value.
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
