//! Checking that values are well formed to their innermost lengths.

use super::code;
use super::read::{Reader, Width, width};
use crate::message::ContentError;

/// Values nest no deeper than this, so that nobody's stack is at the mercy of a sender.
const DEPTH_MAX: usize = 32;
/// No list, map or array has more items, since clients in the field take no more (AMQP-14). Elements of an array may
/// take no bytes, so that a count is not bounded by them.
const COUNT_MAX: usize = 1_000_000;

/// Passes over one value after checking every length and count inside it.
pub fn check_value(reader: &mut Reader<'_>) -> Result<(), ContentError> {
    check_nested(reader, DEPTH_MAX)
}

fn check_nested(reader: &mut Reader<'_>, depth_left: usize) -> Result<(), ContentError> {
    let depth_left = depth_left.checked_sub(1).ok_or(ContentError::TooDeep)?;
    let mut ahead = *reader;
    match ahead.byte()? {
        code::DESCRIBED => {
            *reader = ahead;
            check_nested(reader, depth_left)?;
            check_nested(reader, depth_left)
        }
        code::LIST8 | code::LIST32 => {
            let (count, items) = reader.list()?;
            check_items(count, items, depth_left)
        }
        code::MAP8 | code::MAP32 => {
            let (count, items) = reader.map()?;
            check_items(count, items, depth_left)
        }
        code::ARRAY8 => {
            *reader = ahead;
            let (count, items) = reader.compound8()?;
            check_array(count, items, depth_left)
        }
        code::ARRAY32 => {
            *reader = ahead;
            let (count, items) = reader.compound32()?;
            check_array(count, items, depth_left)
        }
        _ => reader.raw().map(|_| ()),
    }
}

fn check_items(count: usize, mut items: Reader<'_>, depth: usize) -> Result<(), ContentError> {
    check_count(count)?;
    // Every item takes at least one byte, so a claimed count cannot make this long.
    for _ in 0..count {
        check_nested(&mut items, depth)?;
    }
    if items.is_empty() { Ok(()) } else { Err(ContentError::BadCount) }
}

fn check_count(count: usize) -> Result<(), ContentError> {
    if count > COUNT_MAX { Err(ContentError::TooMany) } else { Ok(()) }
}

/// Elements share one constructor. Compound elements are bounded by their own sizes only.
fn check_array(count: usize, mut items: Reader<'_>, depth: usize) -> Result<(), ContentError> {
    check_count(count)?;
    let mut code = items.byte()?;
    if code == code::DESCRIBED {
        check_nested(&mut items, depth)?;
        code = items.byte()?;
    }
    match width(code)? {
        Width::Fixed(bytes) => {
            let bytes = count.checked_mul(bytes).ok_or(ContentError::BadCount)?;
            items.take(bytes)?;
        }
        Width::Length8 => {
            for _ in 0..count {
                let length = usize::from(items.byte()?);
                items.take(length)?;
            }
        }
        Width::Length32 => {
            for _ in 0..count {
                let length = items.length32()?;
                items.take(length)?;
            }
        }
    }
    if items.is_empty() { Ok(()) } else { Err(ContentError::BadCount) }
}
