//! Receives what is available, or waits for it; and the answer of all that bring messages when they are asked to.

use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::telemetry::count_undelivered;

use super::Notice;
use super::deliver::{delivered, unreadable};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::message::Delivered;
use crate::frame::{Item, LIST_COUNT_MAX, bodies};

bodies! {
    struct Receive {
        link: u32,
        max_count: u32,
        wait_seconds: f64,
    }

    struct Messages {
        messages: Vec<Delivered>,
    }
}

impl Conversation {
    pub(super) fn receive(&mut self, asked: Asked, receive: &Receive) -> Done {
        if asked.id == 0 {
            return Err(Rejection::argument("receive needs an id for its answer").into());
        }
        let number = receive.link;
        self.receiver(number)?;
        let wait = self.wait_of(receive.wait_seconds)?;
        let count_max = receive.max_count;
        if count_max as usize > LIST_COUNT_MAX {
            let detail = format!("maxCount is {count_max}; it must be 1 to {LIST_COUNT_MAX}");
            return Err(Rejection::out_of_range(detail).into());
        }
        let Asked { id, permit } = asked;
        self.engine.links.receive(number, count_max, wait, self.room_bytes(), id, Some(permit));
        Ok(())
    }

    /// Answers with messages, and what their texts take, or gives them back if one cannot be read. What was removed is
    /// nowhere else: then it is answered without those that cannot be read, unless that is all. Others of its thread
    /// have their turn between them.
    pub(crate) async fn received(
        &mut self,
        id: u32,
        number: u32,
        messages: Vec<ReceivedMessage>,
        taken_count: u64,
        path: &str,
    ) -> Option<u64> {
        let tokens: Vec<LockToken> =
            messages.iter().filter_map(|message| message.facts.lock).map(|it| it.token).collect();
        let encoding = self.encoding;
        let mut read = Vec::with_capacity(messages.len());
        let mut lost_count = 0;
        for message in messages {
            self.engine.steps.add(1);
            self.engine.steps.add_bytes(u64::from(message.facts.size));
            let sequence_number = message.facts.sequence.0;
            match delivered(encoding, message) {
                Some(delivered) => read.push(delivered),
                None if taken_count > 0 => {
                    tracing::error!(path, sequence_number, "a received message is lost");
                    count_undelivered(1);
                    lost_count += 1;
                }
                None => {
                    self.engine.links.give_back(number, tokens);
                    self.fail(id, unreadable(), path);
                    return None;
                }
            }
            self.engine.steps.rest().await;
        }
        if read.is_empty() && lost_count > 0 {
            self.fail(id, unreadable(), path);
            return None;
        }
        let messages = read;
        let text_bytes = messages.iter().map(Delivered::text_bytes).sum();
        self.unwritten_count += taken_count.saturating_sub(lost_count);
        self.ready.push(Item { id, notice: Notice::Received(Messages { messages }) });
        Some(text_bytes)
    }
}
