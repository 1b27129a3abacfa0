//! How much room is asked for at once for something that arrives.

/// What is no larger has room for all of it at once, so that it waits once, holding nothing that others might want back: as
/// large as a message may be in the standard tier of Azure Service Bus.
const AT_ONCE_BYTES: u64 = 256 << 10;
/// Of what is larger, or does not say how large it is, so much: what is only announced takes none.
const STEP_BYTES: u64 = 64 << 10;

/// The next step of something that has room for so much of it, and is so large, if it says so.
#[must_use]
pub const fn arriving_step(whole_bytes: Option<u64>, room_bytes: u64) -> u64 {
    match whole_bytes {
        Some(whole) if whole <= AT_ONCE_BYTES && whole > room_bytes => whole - room_bytes,
        _ => STEP_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is small and says so asks once for all of it, everything else for one step after the other.
    #[test]
    fn what_is_small_asks_once() {
        let step = |whole, room| arriving_step(whole, room);
        assert_eq!(step(Some(100_000), 16 << 10), 100_000 - (16 << 10));
        assert_eq!(step(Some(AT_ONCE_BYTES), 0), AT_ONCE_BYTES);
        assert_eq!(step(Some(AT_ONCE_BYTES + 1), 0), STEP_BYTES);
        assert_eq!(step(None, 0), STEP_BYTES);
        // It goes on beyond what it has said, as the next frame of a message may.
        assert_eq!(step(Some(100_000), 100_000), STEP_BYTES);
    }
}
