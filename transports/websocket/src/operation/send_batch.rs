//! Sends messages, all or none.

use peeklock_core::command::Outcome;
use peeklock_core::error::Rejection;

use super::send::runs;
use super::{Accepted, Expect, Notice, Send, unexpected};
use crate::connection::{Asked, Conversation, Done};

impl Conversation {
    pub(super) fn send_batch(&mut self, asked: Asked, send: Send) -> Done {
        let number = send.link;
        let messages = self.all_inbound(send.messages)?;
        let command = self.sender(number)?.send_batch(messages);
        self.command(asked, number, command, Expect::One(Self::batch_sent))
    }

    fn batch_sent(&mut self, _: u32, outcome: Outcome, _: &str) -> Result<Notice, Rejection> {
        let Outcome::AcceptedBatch(numbers) = outcome else { return Err(unexpected()) };
        let sequence_numbers = runs(numbers.into_iter().map(|number| number.0));
        Ok(Notice::Accepted(Accepted { sequence_numbers, failed: Vec::new() }))
    }
}
