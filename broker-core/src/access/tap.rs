//! Reads taps: the heads of the messages that an entity accepts (CON-34).

use std::sync::Arc;

use peeklock_model::inspect::HeadFacts;

use super::Access;
use super::inspect::{Holders, read_head};
use crate::broker::Entity;
use crate::command::{Command, Outcome};
use crate::contract::action::Action;
use crate::error::{BrokerError, Rejection};
use crate::findings::{TapId, TapPage};
use crate::path::SubQueue;
use crate::taps::{BufferedMessages, TapBuffer};
use crate::time::TimeSpan;

/// Maximum time for which a read waits for messages.
const WAIT_MAX: TimeSpan = TimeSpan::from_seconds(5);
/// Time for which a polled tap waits for messages.
const POLL_TIME: TimeSpan = TimeSpan::from_seconds(1);

/// Open tap on an entity. It takes no message and changes nothing. Dropping it closes it.
pub struct Tap {
    access: Access,
    path: String,
    buffer: Arc<TapBuffer>,
}

impl Access {
    /// Opens a tap on an entity. It shows the heads of the messages that are accepted from now on,
    /// at most 50 and 256 KiB of heads in a second, and counts the others. Of a topic, it shows
    /// messages that clients publish, and counts scheduled and forwarded ones.
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`; `InvalidOperation` for a sub-queue; `ServerBusy` if too
    /// many taps are open.
    pub async fn tap(&self, path: &str) -> Result<Tap, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let buffer = self.open_tap(&entity, false).await?;
        Ok(Tap { access: self.clone(), path: path.to_owned(), buffer })
    }

    /// Returns the messages since the last read of a tap whose reader polls. Opens a tap if there
    /// is none with this id.
    pub(super) async fn tap_page(
        &self,
        path: &str,
        tap: Option<TapId>,
    ) -> Result<TapPage, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let known = tap.and_then(|tap| self.broker.shared.taps.polled(entity.id(), tap));
        match known {
            Some(buffer) => self.read_tap(&buffer, POLL_TIME).await,
            None => {
                let buffer = self.open_tap(&entity, true).await?;
                Ok(TapPage { tap: buffer.id, heads: Vec::new(), omitted: 0 })
            }
        }
    }

    async fn open_tap(
        &self,
        entity: &Entity,
        is_polled: bool,
    ) -> Result<Arc<TapBuffer>, BrokerError> {
        if entity.sub_queue() != SubQueue::Main {
            let detail = "a sub-queue accepts no messages of clients; tap the entity instead";
            return Err(entity.refuse(Rejection::invalid_operation(detail)));
        }
        let shared = &self.broker.shared;
        // The entity answers after everything that it has accepted before.
        let seen = match entity.as_broker().manage(Command::Describe).await? {
            Outcome::Described(queue) => queue.last_sequence,
            Outcome::TopicDescribed(topic) => topic.last_sequence,
            Outcome::SubscriptionDescribed(subscription) => subscription.last_sequence,
            _ => return Err(entity.refuse(Rejection::internal("unexpected answer"))),
        };
        // 53 bits, so that the number is exact in JSON. It cannot be guessed.
        let id = TapId(shared.edge.entropy().next_u64() >> 11);
        let count_max = shared.settings.limits.tap_count_max;
        let opened =
            shared.taps.open((id, entity.id()), seen, is_polled, count_max, self.broker.now());
        opened.ok_or_else(|| {
            entity.refuse(Rejection::server_busy(format!(
                "all {count_max} taps that `limits.tap_count_max` allows are open; close one, or \
                 try again later"
            )))
        })
    }

    /// Takes the messages of a tap. Waits for some if there are none.
    async fn read_tap(&self, buffer: &TapBuffer, wait: TimeSpan) -> Result<TapPage, BrokerError> {
        let clock = &self.broker.shared.clock;
        let until = clock.now().plus(wait.min(WAIT_MAX));
        while !buffer.has_some() && clock.now() < until {
            tokio::select! {
                () = buffer.arrived() => {}
                () = clock.sleep_until(until) => {}
            }
        }
        // A page rests on the memory of the broker (CLU-17).
        self.wait_for_tenure("").await?;
        let BufferedMessages { messages, omitted } = buffer.take(clock.now());
        let mut page = TapPage { tap: buffer.id, heads: Vec::new(), omitted };
        let mut holders = Holders::of(&self.broker);
        for facts in messages {
            let facts: HeadFacts<_, _> = facts.with_holder(|receiver| holders.get(receiver));
            page.heads.push(read_head(facts).await);
        }
        Ok(page)
    }
}

impl Tap {
    /// Name of the tap.
    #[must_use]
    pub fn id(&self) -> TapId {
        self.buffer.id
    }

    /// Returns the messages since the last read. If there are none, waits for some for at most
    /// `wait`, and returns an empty page if none came. A tap that is not read for 10 seconds keeps
    /// no messages and only counts them.
    ///
    /// # Errors
    /// `Unauthorized` if the grant has ended; `EntityNotFound` if the entity was deleted.
    pub async fn next(&mut self, wait: TimeSpan) -> Result<TapPage, BrokerError> {
        let entity = self.access.entity(&self.path, Action::Inspect).await?;
        if entity.id() != self.buffer.entity {
            return Err(entity.refuse(Rejection::entity_not_found(&self.path)));
        }
        self.access.read_tap(&self.buffer, wait).await
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.access.broker.shared.taps.close(&self.buffer);
    }
}
