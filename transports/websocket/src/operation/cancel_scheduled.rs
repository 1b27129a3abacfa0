//! Cancelling scheduled messages, all or none.

use peeklock_core::command::Command;
use peeklock_core::ids::SequenceNumber;

use super::Expect;
use crate::connection::{Asked, Conversation, Done};
use crate::frame::{bodies, json};

bodies! {
    /// Messages by their numbers.
    struct Numbered {
        link: u32,
        #[serde(deserialize_with = "json::bounded")]
        sequence_numbers: Vec<u64>,
    }
}

impl Numbered {
    /// How many numbers it has.
    pub(crate) const fn count(&self) -> usize {
        self.sequence_numbers.len()
    }
}

impl From<Numbered> for Vec<SequenceNumber> {
    fn from(numbered: Numbered) -> Self {
        numbered.sequence_numbers.into_iter().map(SequenceNumber).collect()
    }
}

impl Conversation {
    pub(super) fn cancel_scheduled(&mut self, asked: Asked, numbered: Numbered) -> Done {
        let number = numbered.link;
        self.sender(number)?;
        let command = Command::CancelScheduled { sequences: numbered.into() };
        self.command(asked, number, command, Expect::DONE)
    }
}
