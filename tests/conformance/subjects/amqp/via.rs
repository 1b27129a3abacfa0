//! A sender through another entity, and the sequence numbers of sent messages, which AMQP does not
//! return.

use std::rc::Rc;

use async_trait::async_trait;
use peeklock_amqp::message::BATCH_FORMAT;
use peeklock_core::message::{Message, MessageId};
use peeklock_core::time::Timestamp;

use super::in_process::{InProcess, Row};
use super::link::Link;
use super::message::{batch, encoded};
use crate::subject::{Answer, Subject as _, Topics as _, Via};
use crate::subjects::handles::Handles;

/// The highest sequence number of a queue or topic; 0 for anything else.
pub async fn last_number(in_process: &Handles, path: &str) -> u64 {
    if let Ok(queue) = in_process.describe(path).await {
        return queue.last_sequence.0;
    }
    in_process.topic(path).await.map_or(0, |topic| topic.last_sequence.0)
}

/// The sequence numbers of messages sent since the highest was `before`; 0 for a dropped duplicate
/// (DUP-02).
pub async fn numbers_since(
    in_process: &Handles,
    path: &str,
    before: u64,
    messages: &[Message],
) -> Vec<u64> {
    let after = last_number(in_process, path).await;
    let all = before + 1..=before + messages.len() as u64;
    if after == *all.end() {
        return all.collect();
    }
    let stored = in_process.peek(path, before + 1, 250).await.unwrap_or_default();
    let mut ids = stored.iter().map(|seen| &seen.message.message_id).peekable();
    let mut next = before;
    let mut number = |id: &Option<MessageId>| {
        if id.is_some() && ids.peek() != Some(&id) {
            return 0;
        }
        ids.next();
        next += 1;
        next
    };
    messages.iter().map(|message| number(&message.message_id)).collect()
}

/// A link that stays attached.
pub struct SenderVia {
    pub via: String,
    pub link: Link,
    pub in_process: Rc<InProcess>,
}

#[async_trait(?Send)]
impl Via for SenderVia {
    async fn send(&self, message: Message) -> Answer<u64> {
        let in_process = self.in_process.by(Row::Numbers);
        let before = last_number(in_process, &self.via).await;
        self.link.send(0, None, &encoded(&message)).await?;
        Ok(numbers_since(in_process, &self.via, before, &[message]).await[0])
    }

    async fn send_batch(&self, messages: Vec<Message>) -> Answer<Vec<u64>> {
        let in_process = self.in_process.by(Row::Numbers);
        let before = last_number(in_process, &self.via).await;
        self.link.send(BATCH_FORMAT, None, &batch(&messages)).await?;
        Ok(numbers_since(in_process, &self.via, before, &messages).await)
    }

    async fn schedule(&self, message: Message, at: Timestamp) -> Answer<u64> {
        self.send(message.with_scheduled_enqueue_time(at)).await
    }
}
