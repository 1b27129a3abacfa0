//! Contract of a forwarder, which sends messages from an entity to a destination outside this
//! broker (FWD-31, FWD-32).
//!
//! The scheme of ForwardTo or ForwardDeadLetteredMessagesTo selects a forwarder, for example
//! `webhook+https://`. The forwarder returns a verdict for each message. The broker counts the hop
//! and enforces its limit before it calls the forwarder, carries the verdict out in one atomic
//! step, and fills the transfer dead-letter queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::command::MessageFacts;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::message::{Content, ContentError, Message, Overlay};
use crate::path::SubQueue;

/// Opens routes to destinations of its schemes. A broker has one, shared by all entities that name
/// it.
///
/// This example drops every message:
///
/// ```
/// # use peeklock_core as peeklock;
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use peeklock::Broker;
/// use peeklock::contract::{Forwarder, Outgoing, Route, Source, Verdict};
/// use peeklock::description::QueueUpdate;
/// use peeklock::error::Rejection;
///
/// struct Nowhere;
///
/// impl Forwarder for Nowhere {
///     fn name(&self) -> &'static str {
///         "nowhere"
///     }
///
///     fn schemes(&self) -> &'static [&'static str] {
///         &["nowhere"]
///     }
///
///     fn check(&self, destination: &str) -> Result<(), Rejection> {
///         match destination {
///             "nowhere://" => Ok(()),
///             _ => Err(Rejection::argument("invalid destination: expected `nowhere://`")),
///         }
///     }
///
///     fn route(&self, _: &str, _: Source) -> Result<Box<dyn Route>, Rejection> {
///         Ok(Box::new(Nowhere))
///     }
/// }
///
/// #[async_trait]
/// impl Route for Nowhere {
///     async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
///         vec![Verdict::Delivered; messages.len()]
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().forwarder(Arc::new(Nowhere)).start().await?;
/// let to = |text: &str| QueueUpdate { forward_to: Some(text.into()), ..QueueUpdate::default() };
/// broker.create_queue("done", to("nowhere://")).await?;
/// assert!(broker.create_queue("wrong", to("nowhere://there")).await.is_err());
/// # broker.stop(std::time::Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
pub trait Forwarder: Send + Sync {
    /// Name in configuration, logs and metrics.
    fn name(&self) -> &'static str;

    /// Schemes of its destinations, in lower case and without `://`.
    fn schemes(&self) -> &'static [&'static str];

    /// Checks a destination when an entity that names it is created or updated (FWD-02). Must not
    /// connect or block.
    ///
    /// # Errors
    /// `ArgumentError` with the fault; the entity is then not created or changed.
    fn check(&self, destination: &str) -> Result<(), Rejection>;

    /// Creates the route from one source to one destination. Called again after a restart, and
    /// after a call of the route panicked or exceeded its time limit. Must not connect: the first
    /// [`Route::forward`] does.
    ///
    /// # Errors
    /// As [`Forwarder::check`]; each message of the source then counts a failed transfer.
    fn route(&self, destination: &str, source: Source) -> Result<Box<dyn Route>, Rejection>;
}

/// Route from one source to one destination. It runs on its own thread: if it blocks, fails or
/// panics, only its own source waits.
#[async_trait]
pub trait Route: Send {
    /// Forwards messages in order and returns their verdicts: one for each message, starting with
    /// the first. Messages without a verdict count as not tried and are offered again in the same
    /// order. A delivered message can be offered again if the broker ended before it stored the
    /// verdict; [`Source`] and the sequence number identify it permanently. May block.
    ///
    /// An empty list, a panic, and a call longer than the limit `forwarder_time_max` count as a
    /// failed transfer of the first message.
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict>;
}

/// Source of forwarded messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Identity of the broker: random, kept permanently with its data.
    pub broker: u128,
    /// Id of the entity, which is never reused, even if its path is.
    pub entity: EntityId,
    /// Path of the entity, in the case given at creation.
    pub path: Arc<str>,
    /// Main queue if messages are forwarded, dead-letter queue if dead letters are.
    pub sub_queue: SubQueue,
}

/// A message to forward. It stays at its source until the verdict is stored.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Number, instants and counts.
    pub facts: MessageFacts,
    /// The content as sent.
    pub content: Content,
    /// Properties changed since the send, oldest first.
    pub overlays: Vec<Overlay>,
    /// Number of transfers including this one; at most the limit (FWD-13).
    pub hops: u8,
    /// Copies that the original message has made already, or that other copies may still make; the
    /// limit minus this is left to this message. 0 for a message that was in no topic (FWD-33).
    pub copies_spent: u16,
    /// Entity in which the message was dead-lettered, if dead letters are forwarded (FWD-26).
    pub dead_letter_source: Option<Arc<str>>,
    /// Whether duplicate detection must ignore the message: its sender gave it no id, and its
    /// present id was created by a broker (DUP-14).
    pub never_duplicate: bool,
}

impl Outgoing {
    /// Returns the message with all changes of its properties.
    ///
    /// # Errors
    /// Content that cannot be read; content accepted by a send always can.
    pub fn message(&self) -> Result<Message, ContentError> {
        self.content.message(&self.overlays)
    }
}

/// Result for one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The message was delivered and leaves the source.
    Delivered,
    /// The message belongs to this queue or topic of this broker; the broker moves it as an
    /// ordinary transfer (FWD-09).
    To(Box<str>),
    /// The destination will never accept the message; it goes to the transfer dead-letter queue
    /// with these texts.
    Refused {
        /// Becomes DeadLetterReason.
        reason: Box<str>,
        /// Becomes DeadLetterErrorDescription.
        description: Box<str>,
    },
    /// The destination is unreachable or busy. The message is offered again, before later ones, and
    /// no attempt is counted.
    Postponed {
        /// Delay until the next attempt; the broker chooses one if none.
        retry_after: Option<Duration>,
    },
    /// The attempt failed. The message is offered again, before later ones, up to MaxDeliveryCount
    /// attempts (FWD-32).
    Failed {
        /// Cause, for the log.
        why: Box<str>,
        /// Delay until the next attempt; the broker chooses one if none.
        retry_after: Option<Duration>,
    },
}
