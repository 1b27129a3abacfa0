//! Serial numbers (RFC 1982): counters of sessions and links go round at 2³² (AMQP-09).

/// How far `to` is behind `from`; negative if it stands before it.
#[must_use]
pub const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

/// How many there are from `from` to before `to`; none if it stands before it.
#[must_use]
pub fn room(from: u32, to: u32) -> u32 {
    u32::try_from(distance(from, to)).unwrap_or(0)
}
