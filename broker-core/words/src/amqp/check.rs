//! Checks that values are well formed to their innermost lengths. [`message`](crate::message) uses
//! it for content, and the AMQP transport for the values of its frames.

use super::read::{Reader, Width, width};
use super::{ContentError, code};

/// Maximum depth of nested values. It bounds the stack that a sender can consume.
pub(super) const DEPTH_MAX: usize = 32;
/// Maximum number of items in a list, map or array from a sender; keys and values of a map count
/// separately. Clients in the field accept no more (AMQP-14).
const COUNT_MAX: usize = 65_536;
/// Maximum number of items in stored content, which may have been accepted under an earlier, higher
/// limit.
const STORED_COUNT_MAX: usize = 1_000_000;

/// Remaining numbers of items that the values of a message may have.
#[derive(Clone, Copy, Debug)]
pub struct ItemBounds {
    /// Maximum in each list, map and array.
    count_max: usize,
    /// Remaining elements of arrays whose elements take no bytes, over all such arrays: their size
    /// does not bound their count.
    widthless_left: usize,
}

impl ItemBounds {
    /// Bounds for a message from a sender (AMQP-14).
    #[must_use]
    pub const fn of_sender() -> Self {
        Self { count_max: COUNT_MAX, widthless_left: COUNT_MAX }
    }

    /// Bounds for a stored message, which may have been accepted under a higher limit.
    #[must_use]
    pub const fn stored() -> Self {
        Self { count_max: STORED_COUNT_MAX, widthless_left: usize::MAX }
    }

    const fn check(self, count: usize) -> Result<(), ContentError> {
        if count > self.count_max { Err(ContentError::TooMany) } else { Ok(()) }
    }

    fn take_widthless(&mut self, count: usize) -> Result<(), ContentError> {
        let left = self.widthless_left.checked_sub(count);
        self.widthless_left = left.ok_or(ContentError::TooManyWidthless)?;
        Ok(())
    }
}

/// Skips one value, after checking every length and count inside it under bounds of its own.
pub fn check_value(reader: &mut Reader<'_>) -> Result<(), ContentError> {
    check_value_of(reader, &mut ItemBounds::of_sender())
}

/// Skips one of the values that share `bounds`, after checking it.
pub fn check_value_of(
    reader: &mut Reader<'_>,
    bounds: &mut ItemBounds,
) -> Result<(), ContentError> {
    check_nested(reader, DEPTH_MAX, bounds)
}

fn check_nested(
    reader: &mut Reader<'_>,
    depth_left: usize,
    bounds: &mut ItemBounds,
) -> Result<(), ContentError> {
    let depth_left = deeper(depth_left)?;
    let mut ahead = *reader;
    match ahead.byte()? {
        code::DESCRIBED => {
            *reader = ahead;
            check_nested(reader, depth_left, bounds)?;
            check_nested(reader, depth_left, bounds)
        }
        code if is_compound(code) => {
            *reader = ahead;
            check_compound(code, reader, depth_left, bounds)
        }
        _ => reader.raw().map(|_| ()),
    }
}

/// The number of levels that may follow one level further down.
fn deeper(depth_left: usize) -> Result<usize, ContentError> {
    depth_left.checked_sub(1).ok_or(ContentError::TooDeep)
}

const fn is_compound(code: u8) -> bool {
    matches!(
        code,
        code::LIST8 | code::LIST32 | code::MAP8 | code::MAP32 | code::ARRAY8 | code::ARRAY32
    )
}

/// Skips the list, map or array whose constructor `code` was read already; elements of an array
/// share theirs.
fn check_compound(
    code: u8,
    reader: &mut Reader<'_>,
    depth_left: usize,
    bounds: &mut ItemBounds,
) -> Result<(), ContentError> {
    let (count, items) = match code {
        code::LIST8 | code::MAP8 | code::ARRAY8 => reader.compound8()?,
        _ => reader.compound32()?,
    };
    match code {
        code::ARRAY8 | code::ARRAY32 => check_array(count, items, depth_left, bounds),
        code::MAP8 | code::MAP32 if count % 2 != 0 => Err(ContentError::BadValue("map")),
        _ => check_items(count, items, depth_left, bounds),
    }
}

fn check_items(
    count: usize,
    mut items: Reader<'_>,
    depth: usize,
    bounds: &mut ItemBounds,
) -> Result<(), ContentError> {
    bounds.check(count)?;
    // Every item takes at least one byte, so the bytes present bound the loop, not the claimed
    // count.
    for _ in 0..count {
        check_nested(&mut items, depth, bounds)?;
    }
    if items.is_empty() { Ok(()) } else { Err(ContentError::BadCount) }
}

/// Checks an array, whose elements share one constructor.
fn check_array(
    count: usize,
    mut items: Reader<'_>,
    depth: usize,
    bounds: &mut ItemBounds,
) -> Result<(), ContentError> {
    bounds.check(count)?;
    if count == 0 && items.is_empty() {
        // Some clients omit the constructor of an empty array (AMQP-15).
        return Ok(());
    }
    let mut code = items.byte()?;
    if code == code::DESCRIBED {
        check_nested(&mut items, depth, bounds)?;
        code = items.byte()?;
    }
    if is_compound(code) {
        let depth = deeper(depth)?;
        // Every element takes at least two bytes, so the bytes present bound the loop.
        for _ in 0..count {
            check_compound(code, &mut items, depth, bounds)?;
        }
        return if items.is_empty() { Ok(()) } else { Err(ContentError::BadCount) };
    }
    match width(code)? {
        Width::Fixed(0) => bounds.take_widthless(count)?,
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
