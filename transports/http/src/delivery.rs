//! Messages between the broker and an answer: sent messages with the limits of HTTP, received ones
//! with their content.

use peeklock_core::Entity;
use peeklock_core::call::submit_unanswered;
use peeklock_core::command::{
    Command, InboundMessage, LoadedMessage, ReceiveMode, ReceivedMessage, Settlement,
};
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Defect, Message};
use peeklock_core::telemetry::count_undelivered;

use crate::error::Refusal;
use crate::room::admit;
use crate::site::Site;

/// Prepares a message for the broker. A message above the size limit of HTTP is marked as
/// defective, so that the entity refuses it in the order of its other checks (SND-19, QUO-01).
pub(crate) fn inbound(site: &Site, message: Message) -> InboundMessage {
    let mut inbound = site.broker.inbound(message);
    let bytes_max = site.broker.settings().limits.message_bytes_http_max;
    let bytes = u64::from(inbound.envelope.sent_size());
    if bytes > bytes_max && !matches!(inbound.envelope.defect, Some(Defect::Size(_))) {
        let rejection =
            Rejection::message_size_exceeded("message sent over HTTP", bytes, bytes_max);
        inbound.envelope.defect = Some(Defect::Size(rejection));
    }
    inbound
}

/// The messages of an answer until they are written to the client. If it is dropped earlier,
/// because the client has disconnected, does not read, or the answer cannot be made, the locks are
/// released without a count (RCV-14, HTP-11). Removed messages then count as undelivered (RCV-02).
///
/// Every receive uses locks, even in the mode receive-and-delete: size and available memory are
/// known only after it, and no message is removed before its answer has memory.
pub(crate) struct Delivery {
    entity: Entity,
    tokens: Vec<LockToken>,
    removed_count: u64,
}

impl Delivery {
    /// Makes a delivery of messages received under lock. Messages to be removed are shown without a
    /// lock (RCV-08).
    pub(crate) fn new(
        entity: &Entity,
        mode: ReceiveMode,
        messages: &mut [ReceivedMessage],
    ) -> Self {
        let tokens = messages.iter().filter_map(|message| message.facts.lock);
        let tokens = tokens.map(|lock| lock.token).collect();
        if mode == ReceiveMode::ReceiveAndDelete {
            for message in messages {
                message.facts.lock = None;
            }
        }
        Self { entity: entity.clone(), tokens, removed_count: 0 }
    }

    /// Removes all messages, after the answer has its memory. Messages whose locks have expired are
    /// removed from the list.
    pub(crate) async fn remove(
        &mut self,
        messages: &mut Vec<ReceivedMessage>,
    ) -> Result<(), Refusal> {
        let tokens = self.tokens.iter();
        let completes =
            tokens.map(|token| Command::Settle { token: *token, settlement: Settlement::Complete });
        let completes: Vec<Command> = completes.collect();
        // Without room for the commands, the locks are released as usual.
        let permit = admit(&self.entity, &completes).await?;
        self.tokens.clear();
        // This future may be dropped during the call; until the results arrive, all messages count
        // as removed.
        self.removed_count = completes.len() as u64;
        let removed = self.entity.call_many_admitted(permit, completes).await;
        self.removed_count = removed.iter().filter(|result| result.is_ok()).count() as u64;
        let mut results = removed.iter();
        messages.retain(|_| results.next().is_some_and(Result::is_ok));
        if messages.is_empty() && self.removed_count < removed.len() as u64 {
            let detail = "the messages were released before there was memory for the response";
            return Err(Rejection::server_busy(detail).into());
        }
        Ok(())
    }

    /// Notes that the system has accepted the whole answer.
    pub(crate) fn written(mut self) {
        self.tokens.clear();
        self.removed_count = 0;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let releases = self
            .tokens
            .drain(..)
            .map(|token| Command::Settle { token, settlement: Settlement::Release })
            .collect();
        submit_unanswered(&self.entity, releases);
        if self.removed_count > 0 {
            count_undelivered(self.removed_count);
        }
    }
}

/// Returns the total size of messages in bytes.
pub(crate) fn bytes_of(messages: &[ReceivedMessage]) -> u64 {
    messages.iter().map(|message| u64::from(message.facts.size)).sum()
}

/// Reads a message with the properties that settlements have set.
pub(crate) async fn load(received: &ReceivedMessage) -> Result<LoadedMessage, Refusal> {
    received.load().await.map_err(|error| {
        let sequence_number = received.facts.sequence.0;
        tracing::error!(sequence_number, %error, "message cannot be read");
        Refusal::from(error.refusal("the content of the message"))
    })
}

/// Returns the message id of a stored message as text.
pub(crate) async fn message_id(received: &ReceivedMessage) -> Result<Option<String>, Refusal> {
    Ok(load(received).await?.message.message_id.map(|id| id.to_string()))
}

#[cfg(test)]
mod tests {
    use peeklock_core::Broker;
    use peeklock_core::command::Outcome;
    use peeklock_core::description::{QueueUpdate, Settings};
    use peeklock_core::time::TimeSpan;

    use super::*;

    /// RCV-02, DESIGN D6: messages that cannot be removed for lack of room for commands are
    /// released.
    #[tokio::test]
    async fn messages_without_room_for_removal_are_released() {
        let mut settings = Settings::default();
        settings.limits.broker_inbound_bytes_max = 1 << 20;
        let broker = Broker::builder().arbiters(1).settings(settings).start().await.unwrap();
        broker.create_queue("q", QueueUpdate::default()).await.unwrap();
        let entity = broker.entity("q").unwrap();
        let message = broker.inbound(Message::new("a"));
        entity.call(Command::Send { message }).await.unwrap();
        let receive = || async {
            let (mode, wait) = (ReceiveMode::PeekLock, TimeSpan::ZERO);
            let command =
                Command::Receive { mode, count_max: 1, bytes_max: u64::MAX, wait, holder: None };
            match entity.call(command).await.unwrap() {
                Outcome::Received(messages) => messages,
                other => panic!("{other:?}"),
            }
        };
        let mut messages = receive().await;
        let mut delivery = Delivery::new(&entity, ReceiveMode::ReceiveAndDelete, &mut messages);
        let budget = broker.connection_budget();
        let held: Vec<_> = std::iter::from_fn(|| budget.try_take(1)).collect();
        assert!(delivery.remove(&mut messages).await.is_err());
        assert_eq!(delivery.removed_count, 0);
        drop((delivery, held));
        assert_eq!(receive().await.len(), 1);
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }
}
