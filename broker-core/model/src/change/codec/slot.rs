//! Codec of slots. `codec.rs` lists the versions. Old versions stay readable.

use super::VERSION;
use super::reader::{Read, Reader, write_text};
use super::record::sub_queue_code;
use crate::change::slot::{Mark, Marks, Slot, SlotState};
use crate::ids::SequenceNumber;
use crate::time::Timestamp;

/// Version of a slot whose message belongs to a session.
const VERSION_IN_SESSION: u8 = 2;
/// Version of a slot whose message waits for its transfer.
const VERSION_PENDING: u8 = 3;
/// Version of a slot whose message is never a duplicate, in any state (DUP-14).
const VERSION_NEVER_DUPLICATE: u8 = 4;
/// Version of a slot whose publish has made copies, in any state (FWD-33).
const VERSION_COPIED: u8 = 5;
/// Version of a Delayed slot: end of the delay, then the slot in another version (RTY-01).
const VERSION_DELAYED: u8 = 6;
/// State code of an active message that was scheduled (PEK-05).
const ACTIVE_AFTER_SCHEDULE: u8 = 4;
/// Bits of the flags in [`VERSION_COPIED`].
const HAS_TEXT: u8 = 1;
const IS_NEVER_DUPLICATE: u8 = 2;

/// Writes a slot and its text: the session of its message, the destination of a pending message,
/// or, for a message that waits at a topic, the entity in which it was dead-lettered. Locks and
/// in-flight marks are not stored: a lock does not survive a restart, and a stored slot is durable.
pub fn write_slot(slot: &Slot, text: Option<&str>, value: &mut Vec<u8>) {
    let state = match slot.state {
        SlotState::Scheduled => 0,
        SlotState::Active if slot.was_scheduled() => ACTIVE_AFTER_SCHEDULE,
        SlotState::Active => 1,
        SlotState::Deferred => 2,
        SlotState::Pending => 3,
    };
    let sub_queue = sub_queue_code(slot.sub_queue);
    let never_duplicate = slot.is_never_duplicate();
    let version = match (slot.state, text) {
        _ if slot.copies_spent > 0 => VERSION_COPIED,
        _ if never_duplicate => VERSION_NEVER_DUPLICATE,
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
        VERSION_COPIED => {
            value.extend_from_slice(&slot.copies_spent.to_be_bytes());
            let never_duplicate = if never_duplicate { IS_NEVER_DUPLICATE } else { 0 };
            value.push(never_duplicate | text.map_or(0, |_| HAS_TEXT));
            if let Some(text) = text {
                write_text(text, value);
            }
        }
        _ => write_text(text.unwrap_or_default(), value),
    }
}

/// Writes the end of a delay; the slot of the Delayed message follows.
pub fn write_delay(until: Timestamp, value: &mut Vec<u8>) {
    value.push(VERSION_DELAYED);
    value.extend_from_slice(&until.ticks().to_be_bytes());
}

/// Reads the end of the delay of a slot, if its message is Delayed.
///
/// # Errors
/// A description of the error in the value.
pub fn read_delay(value: &[u8]) -> Read<Option<Timestamp>> {
    split_delay(value).map(|(until, _)| until)
}

/// Splits a value into the end of its delay and the slot.
fn split_delay(value: &[u8]) -> Read<(Option<Timestamp>, &[u8])> {
    let Some((&VERSION_DELAYED, rest)) = value.split_first() else { return Ok((None, value)) };
    let (until, rest) = rest.split_first_chunk().ok_or("value too short")?;
    Ok((Some(Timestamp::from_ticks(i64::from_be_bytes(*until))), rest))
}

/// Reads a slot and the text that [`write_slot`] got. A Delayed slot gets [`Mark::Delayed`];
/// [`read_delay`] returns the end of its delay.
///
/// # Errors
/// A description of the error in the value.
pub fn read_slot(value: &[u8]) -> Read<(Slot, Option<&str>)> {
    let (until, value) = split_delay(value)?;
    let (mut slot, text) = read_undelayed(value)?;
    if until.is_some() {
        if slot.state != SlotState::Active {
            return Err("only an active message can be delayed");
        }
        slot.marks.set(Mark::Delayed);
    }
    Ok((slot, text))
}

/// Reads a slot that is not Delayed.
fn read_undelayed(value: &[u8]) -> Read<(Slot, Option<&str>)> {
    let mut reader = Reader::new(value);
    let version = reader.u8()?;
    let state_code = reader.u8()?;
    let state = match state_code {
        0 => SlotState::Scheduled,
        1 => SlotState::Active,
        2 => SlotState::Deferred,
        3 => SlotState::Pending,
        ACTIVE_AFTER_SCHEDULE => SlotState::Active,
        _ => return Err("unknown state"),
    };
    let sub_queue = reader.sub_queue()?;
    let hops = reader.u8()?;
    let mut slot = Slot {
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
        marks: Marks::never_duplicate(version == VERSION_NEVER_DUPLICATE),
        copies_spent: 0,
    };
    let text = match version {
        VERSION => None,
        VERSION_COPIED => read_copies_spent(&mut slot, &mut reader)?,
        VERSION_NEVER_DUPLICATE if !reader.switch()? => None,
        VERSION_NEVER_DUPLICATE | VERSION_IN_SESSION | VERSION_PENDING => Some(reader.str()?),
        _ => return Err("version is not known"),
    };
    if state_code == ACTIVE_AFTER_SCHEDULE {
        slot.marks.set(Mark::WasScheduled);
    }
    let has_destination = match version {
        VERSION_NEVER_DUPLICATE | VERSION_COPIED => {
            slot.state == SlotState::Pending && text.is_some()
        }
        _ => version == VERSION_PENDING,
    };
    if (slot.state == SlotState::Pending) != has_destination {
        return Err("only a pending message can have a destination");
    }
    reader.end()?;
    Ok((slot, text))
}

/// Reads the end of a slot of version 5: copies spent, flags and text.
fn read_copies_spent<'a>(slot: &mut Slot, reader: &mut Reader<'a>) -> Read<Option<&'a str>> {
    slot.copies_spent = reader.u16()?;
    if slot.copies_spent == 0 {
        return Err("a slot of this version has made copies");
    }
    let flags = reader.u8()?;
    if flags & !(HAS_TEXT | IS_NEVER_DUPLICATE) != 0 {
        return Err("unknown property of a message");
    }
    slot.marks = Marks::never_duplicate(flags & IS_NEVER_DUPLICATE != 0);
    if flags & HAS_TEXT == 0 { Ok(None) } else { reader.str().map(Some) }
}
