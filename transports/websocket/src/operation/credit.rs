//! Sets how far a receiver may be sent.

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    struct Credit {
        link: u32,
        /// The highest delivery number that may be sent.
        up_to: u32,
    }
}

/// The number of a delivery on the wire: no credit reaches further than its numbers do.
pub(super) fn on_the_wire(delivery: u64) -> u32 {
    u32::try_from(delivery).unwrap_or(u32::MAX)
}

impl Conversation {
    pub(super) fn credit(&mut self, asked: &Asked, credit: &Credit) -> Done {
        let Credit { link: number, up_to } = *credit;
        self.receiver(number)?;
        self.engine.links.credit(number, up_to.into());
        self.done(asked)
    }
}
