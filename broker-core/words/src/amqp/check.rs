//! Checking that values are well formed to their innermost lengths.

use super::read::{Reader, Width, width};
use super::{ContentError, code};

/// Values nest no deeper than this, so that nobody's stack is at the mercy of a sender.
pub(super) const DEPTH_MAX: usize = 32;
/// No list, map or array of a sender has more items, keys and values of a map counted apart, since clients in the field
/// take no more (AMQP-14).
const COUNT_MAX: usize = 65_536;
/// The same of what was stored when more were taken.
const STORED_COUNT_MAX: usize = 1_000_000;

/// How many items the values of one message may still have.
#[derive(Clone, Copy, Debug)]
pub struct ItemBounds {
    /// In each list, map and array.
    count_max: usize,
    /// In all arrays together whose elements take no bytes: no size bounds their count.
    widthless_left: usize,
}

impl ItemBounds {
    /// Those of a message that a sender sends (AMQP-14).
    #[must_use]
    pub const fn of_sender() -> Self {
        Self { count_max: COUNT_MAX, widthless_left: COUNT_MAX }
    }

    /// Those of a message that is stored, which may have been sent when more was taken.
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

/// Passes over one value that a client sent by itself, after checking every length and count inside it.
pub fn check_value(reader: &mut Reader<'_>) -> Result<(), ContentError> {
    check_value_of(reader, &mut ItemBounds::of_sender())
}

/// The same for one of the values that share `bounds`.
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
    // Every item takes at least one byte, so a claimed count cannot make this long.
    for _ in 0..count {
        check_nested(&mut items, depth, bounds)?;
    }
    if items.is_empty() { Ok(()) } else { Err(ContentError::BadCount) }
}

/// Elements share one constructor.
fn check_array(
    count: usize,
    mut items: Reader<'_>,
    depth: usize,
    bounds: &mut ItemBounds,
) -> Result<(), ContentError> {
    bounds.check(count)?;
    if count == 0 && items.is_empty() {
        // Without elements some clients leave out their constructor, too (AMQP-15).
        return Ok(());
    }
    let mut code = items.byte()?;
    if code == code::DESCRIBED {
        check_nested(&mut items, depth, bounds)?;
        code = items.byte()?;
    }
    if is_compound(code) {
        let depth = deeper(depth)?;
        // Every one takes two bytes at least.
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
