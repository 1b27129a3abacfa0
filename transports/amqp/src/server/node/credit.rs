//! Credit of a client's sender (AMQP-40): so many messages as there is room for on its connection, if the next are as
//! large as the last were.
//!
//! It is never taken back: some clients subtract without a sign and would have four thousand million instead.
//! Who sends more all the same is held up by its socket.

/// No sender has more.
const CREDIT_MAX: u32 = 1_000;

/// The credit of one sender.
pub(super) struct Credit {
    granted: u32,
    /// The largest message since the last grant, and of those between it and the one before: so one large message is
    /// not remembered for good.
    largest_bytes: u64,
    before_bytes: u64,
}

impl Credit {
    /// Of who has sent nothing: what comes may be as large as its link allows. The first grant comes with it.
    pub(super) fn first(room_bytes: u64, message_bytes_max: u64) -> (Self, u32) {
        let granted = credit(room_bytes, message_bytes_max);
        (Self { granted, largest_bytes: 0, before_bytes: 0 }, granted)
    }

    /// A message of this size came.
    pub(super) fn came(&mut self, bytes: u64) {
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    /// What is to be granted, when half of the last grant is used up.
    pub(super) fn anew(&mut self, left: u32, room_bytes: u64) -> Option<u32> {
        if left > self.granted / 2 {
            return None;
        }
        let largest_bytes = self.largest_bytes.max(self.before_bytes);
        self.before_bytes = std::mem::take(&mut self.largest_bytes);
        self.granted = credit(room_bytes, largest_bytes).max(left);
        Some(self.granted)
    }
}

/// At least one, however large it is.
fn credit(room_bytes: u64, message_bytes: u64) -> u32 {
    let count = room_bytes / message_bytes.max(1);
    u32::try_from(count).unwrap_or(CREDIT_MAX).clamp(1, CREDIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 16 << 20;

    /// AMQP-40: what is granted is what there is room for; small messages have the most, and a large one is remembered
    /// until the grant after the next.
    #[test]
    fn credit_is_what_there_is_room_for() {
        let (mut credit, first) = Credit::first(ROOM, 256 << 10);
        assert_eq!(first, 64);
        credit.came(100);
        assert_eq!(credit.anew(33, ROOM), None);
        assert_eq!(credit.anew(32, ROOM), Some(CREDIT_MAX));
        credit.came(1 << 20);
        credit.came(100);
        assert_eq!(credit.anew(500, ROOM), Some(500), "what was granted is not taken back");
        assert_eq!(credit.anew(10, ROOM), Some(16));
        assert_eq!(credit.anew(8, ROOM), Some(CREDIT_MAX));
        credit.came(ROOM + 1);
        assert_eq!(credit.anew(0, ROOM), Some(1));
        assert_eq!(credit.anew(1, ROOM), None);
    }

    /// AMQP-40: whoever may send at all has credit for one.
    #[test]
    fn there_is_always_credit_for_one() {
        assert_eq!(Credit::first(1, u64::MAX).1, 1);
        assert_eq!(Credit::first(0, 0).1, 1);
    }
}
