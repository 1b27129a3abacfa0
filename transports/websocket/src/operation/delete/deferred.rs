//! Deletes one deferred message.

use peeklock_core::command::Command;
use peeklock_core::ids::SequenceNumber;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Expect;

bodies! {
    struct DeleteDeferred {
        link: u32,
        sequence_number: u64,
    }
}

impl Conversation {
    pub(in crate::operation) fn delete_deferred(
        &mut self,
        asked: Asked,
        delete: &DeleteDeferred,
    ) -> Done {
        let sequence = SequenceNumber(delete.sequence_number);
        self.command(asked, delete.link, Command::DeleteDeferred { sequence }, Expect::DONE)
    }
}
