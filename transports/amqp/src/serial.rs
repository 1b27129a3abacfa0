//! Serial numbers (RFC 1982): the counters of sessions and links wrap at 2³² (AMQP-09). All
//! comparisons of such counters use these functions.

/// Distance from `from` to `to`; negative if `to` precedes `from`.
#[must_use]
pub const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

/// Number of values from `from` up to but not including `to`; 0 if `to` precedes `from`.
#[must_use]
pub fn room(from: u32, to: u32) -> u32 {
    u32::try_from(distance(from, to)).unwrap_or(0)
}
