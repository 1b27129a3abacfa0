//! Checking that values are well formed to their innermost lengths.

use super::code;
use super::read::{Reader, Width, width};
use crate::message::ContentError;

/// Values nest no deeper than this, so that nobody's stack is at the mercy of a sender.
pub(super) const DEPTH_MAX: usize = 32;
/// No list, map or array has more items, since clients in the field take no more (AMQP-14). Elements of an array may
/// take no bytes, so that a count is not bounded by them.
const COUNT_MAX: usize = 1_000_000;

/// Passes over one value after checking every length and count inside it.
pub fn check_value(reader: &mut Reader<'_>) -> Result<(), ContentError> {
    check_nested(reader, DEPTH_MAX)
}

fn check_nested(reader: &mut Reader<'_>, depth_left: usize) -> Result<(), ContentError> {
    let depth_left = deeper(depth_left)?;
    let mut ahead = *reader;
    match ahead.byte()? {
        code::DESCRIBED => {
            *reader = ahead;
            check_nested(reader, depth_left)?;
            check_nested(reader, depth_left)
        }
        code if is_compound(code) => {
            *reader = ahead;
            check_compound(code, reader, depth_left)
        }
        _ => reader.raw().map(|_| ()),
    }
}

/// How many more levels there may be one level down.
fn deeper(depth_left: usize) -> Result<usize, ContentError> {
    depth_left.checked_sub(1).ok_or(ContentError::TooDeep)
}

const fn is_compound(code: u8) -> bool {
    matches!(
        code,
        code::LIST8 | code::LIST32 | code::MAP8 | code::MAP32 | code::ARRAY8 | code::ARRAY32
    )
}

/// Passes over the list, map or array whose constructor `code` was read, for one value or for all of an array.
fn check_compound(
    code: u8,
    reader: &mut Reader<'_>,
    depth_left: usize,
) -> Result<(), ContentError> {
    let (count, items) = match code {
        code::LIST8 | code::MAP8 | code::ARRAY8 => reader.compound8()?,
        _ => reader.compound32()?,
    };
    match code {
        code::ARRAY8 | code::ARRAY32 => check_array(count, items, depth_left),
        code::MAP8 | code::MAP32 if count % 2 != 0 => Err(ContentError::BadValue("map")),
        _ => check_items(count, items, depth_left),
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

/// Elements share one constructor.
fn check_array(count: usize, mut items: Reader<'_>, depth: usize) -> Result<(), ContentError> {
    check_count(count)?;
    if count == 0 && items.is_empty() {
        // Without elements some clients leave out their constructor, too (AMQP-15).
        return Ok(());
    }
    let mut code = items.byte()?;
    if code == code::DESCRIBED {
        check_nested(&mut items, depth)?;
        code = items.byte()?;
    }
    if is_compound(code) {
        let depth = deeper(depth)?;
        // Every one takes two bytes at least.
        for _ in 0..count {
            check_compound(code, &mut items, depth)?;
        }
        return if items.is_empty() { Ok(()) } else { Err(ContentError::BadCount) };
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
