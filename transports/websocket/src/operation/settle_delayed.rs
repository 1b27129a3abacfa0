//! Abandons messages for a time.

use super::{Delay, Settle};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    /// An abandon with a delay, which the binary form of a settlement has no place for.
    struct SettleDelayed {
        delay_milliseconds: u64,
        settle: Settle,
    }
}

impl Conversation {
    pub(super) fn settle_delayed(&mut self, asked: Asked, delayed: SettleDelayed) -> Done {
        let SettleDelayed { delay_milliseconds, mut settle } = delayed;
        settle.delay_milliseconds =
            Delay(Some(i64::try_from(delay_milliseconds).unwrap_or(i64::MAX)));
        self.settle(asked, &settle)
    }
}
