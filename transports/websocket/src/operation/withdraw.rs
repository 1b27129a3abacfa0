//! Ends a receive or an accept that waits.

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    struct Withdraw {
        /// The id of the receive.
        request: u32,
    }
}

impl Conversation {
    pub(super) fn withdraw(&mut self, asked: &Asked, withdraw: &Withdraw) -> Done {
        self.engine.links.withdraw(withdraw.request);
        self.done(asked)
    }
}
