//! The contract of a forwarder: where messages go that leave an entity for somewhere else than a path
//! of this broker (FWD-31, FWD-32).
//!
//! A forwarder is chosen by the scheme of ForwardTo or ForwardDeadLetteredMessagesTo, such as
//! `webhook+https://`. It says what becomes of each message; the broker counts the hop and enforces its
//! limit before it asks, carries the verdict out in one atomic step, and fills the transfer dead-letter
//! queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::command::MessageFacts;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::message::{Content, ContentError, Message, Overlay};
use crate::path::SubQueue;

/// Opens routes to destinations of its schemes. One per broker, shared by all entities that name it.
///
/// One that lets go of what is sent to it, for what is only to be counted:
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
///             _ => Err(Rejection::argument("nowhere has no places: say `nowhere://`")),
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
    /// The name in configuration, logs and metrics.
    fn name(&self) -> &'static str;

    /// The schemes of destinations it serves, in lower case and without `://`.
    fn schemes(&self) -> &'static [&'static str];

    /// Judges a destination when an entity that names it is created or updated (FWD-02). Does not
    /// connect, and does not wait.
    ///
    /// # Errors
    /// `ArgumentError` with what is wrong; the entity is not created or changed.
    fn check(&self, destination: &str) -> Result<(), Rejection>;

    /// Makes the way from one source to one destination. Called again after a start, and after a call
    /// of the route panicked or went over its time. Does not connect: that is part of the first
    /// [`Route::forward`].
    ///
    /// # Errors
    /// As [`Forwarder::check`]; each message of the source then counts a failed transfer.
    fn route(&self, destination: &str, source: Source) -> Result<Box<dyn Route>, Rejection>;
}

/// The way from one source to one destination. It has a thread of its own: one that blocks, fails or
/// panics holds up its own source and nobody else.
#[async_trait]
pub trait Route: Send {
    /// Forwards messages in their order, and says of each what became of it: one verdict for each
    /// message from the first on. Messages without one count as not tried, and are offered again in
    /// the same order. A message can be offered again although it was delivered, when the broker ended
    /// before it had stored the verdict; [`Source`] and the sequence number name it for ever.
    ///
    /// No verdict at all, a panic, and a call that takes longer than the limit `forwarder_time_max`, count as a
    /// failed transfer of the first message.
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict>;
}

/// Who forwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The broker: random, kept with its data for ever.
    pub broker: u128,
    /// The entity; an id is never given twice, whatever becomes of its path.
    pub entity: EntityId,
    /// Its path, in the case given at creation.
    pub path: Arc<str>,
    /// Whether its messages or its dead letters are forwarded.
    pub sub_queue: SubQueue,
}

/// A message on its way out. It stays with its source until the verdict is stored.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Number, instants, counts.
    pub facts: MessageFacts,
    /// What was sent.
    pub content: Content,
    /// Properties that were changed since, the oldest first.
    pub overlays: Vec<Overlay>,
    /// Transfers so far, this one included; never more than the limit (FWD-13).
    pub hops: u8,
    /// Of the copies that one message may become over all its hops, those that are not its own to make any
    /// more; 0 for one that was in no topic (FWD-33).
    pub copies_spent: u16,
    /// The entity in which it was dead-lettered, if dead letters are forwarded (FWD-26).
    pub dead_letter_source: Option<Arc<str>>,
    /// Whether it is never a duplicate: its sender gave it no id, and that which it has was made by a
    /// broker (DUP-14).
    pub never_duplicate: bool,
}

impl Outgoing {
    /// The message with all changes of its properties.
    ///
    /// # Errors
    /// When the content cannot be read; content that was sent always can.
    pub fn message(&self) -> Result<Message, ContentError> {
        self.content.message(&self.overlays)
    }
}

/// What became of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is where it should be, and leaves the source.
    Delivered,
    /// It belongs into this queue or topic of this broker; the broker transfers it by the rules of a
    /// transfer (FWD-09).
    To(Box<str>),
    /// It will never be taken; it goes into the transfer dead-letter queue with these texts.
    Refused {
        /// Becomes DeadLetterReason.
        reason: Box<str>,
        /// Becomes DeadLetterErrorDescription.
        description: Box<str>,
    },
    /// Nothing is known against it: the destination is away, or busy. It is offered again, before later
    /// ones, and that is not counted.
    Postponed {
        /// When; without it the broker decides.
        retry_after: Option<Duration>,
    },
    /// It was not taken this time. It is offered again, before later ones, until it has failed as often
    /// as MaxDeliveryCount says (FWD-32).
    Failed {
        /// What the log says.
        why: Box<str>,
        /// When to try again; without it the broker decides.
        retry_after: Option<Duration>,
    },
}
