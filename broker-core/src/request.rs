//! Mail between transports and entities: requests in, answers and deliveries out, both in groups.
//!
//! A transport groups the commands of one read by entity and submits each group at once; the entity
//! hands back everything for one connection as one group, with one wake-up (DESIGN D1).

use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::admission::Permit;
use crate::command::{Command, MessageFacts};
use crate::content_ref::ContentRef;
use crate::error::Rejection;
use crate::ids::{ReceiverId, Ticket};
use crate::message::{Content, ContentError, Message, Overlay};
use crate::path::SubQueue;
use crate::store::StoreError;
use crate::traced::{Traced, Witness};
use crate::transfer::passage::Passage;

/// An outcome as a client is told: with references to contents, and the way in to a session.
pub type Outcome = peeklock_model::command::Outcome<ReceivedMessage, ContentRef, Option<Way>>;

/// A message as it leaves the broker: facts, and references to its pinned content.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    /// What the broker says about it.
    pub facts: MessageFacts,
    /// The bare message.
    pub content: ContentRef,
    /// Property overlays in the order in which they were set.
    pub overlays: Vec<ContentRef>,
}

/// A message as it is read for a client.
#[derive(Clone, Debug)]
pub struct LoadedMessage {
    /// With the properties that settlements gave it.
    pub message: Message,
    /// The entity in which it was dead-lettered before it was forwarded (FWD-26).
    pub dead_letter_source: Option<String>,
}

impl ReceivedMessage {
    /// Fetches the message with all that was set on it since it was sent. To be called outside the
    /// broker's arbiters; may wait for the disk.
    ///
    /// # Errors
    /// When the store cannot read it, or what it gives is no message.
    pub async fn load(&self) -> Result<LoadedMessage, Unreadable> {
        let content = self.content.load().await?;
        let mut overlays = Vec::with_capacity(self.overlays.len());
        for overlay in &self.overlays {
            overlays.push(overlay.load().await?);
        }
        Ok(LoadedMessage::read(content, overlays)?)
    }
}

impl LoadedMessage {
    /// Reads a message of what is stored of it: its content, and the overlays in the order in which they were set.
    ///
    /// # Errors
    /// When the bytes are no message.
    pub fn read(
        content: Bytes,
        overlays: impl IntoIterator<Item = Bytes>,
    ) -> Result<Self, ContentError> {
        let overlays: Vec<_> = overlays.into_iter().map(Overlay::from_bytes).collect();
        let message = Content::parse(content)?.message(&overlays)?;
        let dead_letter_source = Overlay::source_of(overlays.iter()).map(str::to_owned);
        Ok(Self { message, dead_letter_source })
    }
}

/// Why a stored message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The store cannot give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the store gives is no message.
    #[error(transparent)]
    Content(#[from] ContentError),
}

/// A command on its way to an entity.
pub struct Request {
    /// Names the command; from [`crate::Broker::ticket`].
    pub ticket: Ticket,
    /// The sub-queue it is for.
    pub sub_queue: SubQueue,
    /// What is asked.
    pub command: Command,
    /// Where the answer goes.
    pub reply: Reply,
}

/// The way in to the driver of a session that is held. Whoever holds the session asks everything by it,
/// which keeps the order; see [`crate::Entity::by_way_of`]. The end of the hold, and what is asked behind it,
/// is passed on to the entity.
#[derive(Clone)]
pub struct Way(Arc<dyn Entrance>);

/// Where requests go in.
pub(crate) trait Entrance: Send + Sync {
    /// Hands requests in, in order. What comes back is for the entity: the end of the hold with all behind
    /// it, or everything, if the hold is over.
    fn enter(&self, group: Vec<Request>) -> Result<(), Vec<Request>>;
}

impl Way {
    pub(crate) fn new(entrance: Arc<impl Entrance + 'static>) -> Self {
        Self(entrance)
    }

    pub(crate) fn enter(&self, group: Vec<Request>) -> Result<(), Vec<Request>> {
        self.0.enter(group)
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Way")
    }
}

/// Where answers and deliveries go: one per connection, or one per call.
pub trait Outlet: Send + Sync {
    /// Takes a group, in order. Called from arbiter threads; must not block and must not panic.
    fn release(&self, group: Vec<Released>);
}

/// Something that leaves the broker.
#[derive(Debug)]
pub enum Released {
    /// The answer to a command.
    Answer {
        /// As given with [`Reply::new`].
        correlation: u64,
        /// The answer.
        result: Result<Outcome, Rejection>,
    },
    /// A message for a receiver link. Who cannot write it gives it back with
    /// [`crate::command::Settlement::Release`].
    Delivery {
        /// The link.
        receiver: ReceiverId,
        /// The message.
        message: Box<ReceivedMessage>,
    },
    /// A receiver link was closed by the entity.
    Detached {
        /// The link.
        receiver: ReceiverId,
        /// Why.
        reason: Rejection,
    },
    /// The entity of a link that is watched over ([`crate::Entity::watch`]) was deleted, or is closed for good. A
    /// link with a flow hears [`Released::Detached`], too, or that it cannot have one.
    Closed {
        /// The link.
        receiver: ReceiverId,
        /// Why.
        reason: Rejection,
    },
}

/// Who asks, as far as one who waits for answers can be told from another while both do: a connection, or one call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Asker(usize);

/// Observer of the answer to a command that may leave something open, such as a link.
pub(crate) trait AnswerObserver: Send + Sync {
    /// Takes note of the answer, and returns the answer to give.
    fn answered(&self, result: Result<Outcome, Rejection>) -> Result<Outcome, Rejection>;

    /// Takes note that no answer was made.
    fn unanswered(&self);
}

/// Registration of a link that hears when its entity is closed; see [`crate::Entity::watch`]. It ends when this is
/// dropped.
#[derive(Default)]
pub struct Watch(Option<(Weak<dyn WatchRegistry>, ReceiverId)>);

/// The place at which links are registered.
pub(crate) trait WatchRegistry: Send + Sync {
    /// Ends the registration of a link.
    fn unwatch(&self, receiver: ReceiverId);
}

impl Watch {
    pub(crate) fn new(registry: Weak<impl WatchRegistry + 'static>, receiver: ReceiverId) -> Self {
        Self(Some((registry, receiver)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((registry, receiver)) = self.0.take()
            && let Some(registry) = registry.upgrade()
        {
            registry.unwatch(receiver);
        }
    }
}

/// The place of one answer. Dropped without one, it answers that the outcome is unknown: a command
/// is answered exactly once, whatever becomes of the entity.
pub struct Reply {
    outlet: Option<Arc<dyn Outlet>>,
    correlation: u64,
    permit: Option<Permit>,
    /// Keeps account of what the command leaves open.
    observer: Option<Arc<dyn AnswerObserver>>,
    /// The guard of the list that a transfer brings.
    passage: Option<Passage>,
    /// What a tracer is told of it, if there is one.
    traced: Option<Box<Traced>>,
}

impl Reply {
    /// A reply to this outlet, under a number of the caller's choice. The permit is given back when
    /// the answer is taken or the command begins to wait.
    #[must_use]
    pub const fn new(outlet: Arc<dyn Outlet>, correlation: u64, permit: Option<Permit>) -> Self {
        Self {
            outlet: Some(outlet),
            correlation,
            permit,
            passage: None,
            observer: None,
            traced: None,
        }
    }

    /// The reply to who brings a list of messages from another entity of this broker.
    #[must_use]
    pub fn of_passage(passage: Passage) -> Self {
        Self {
            outlet: Some(passage.outlet()),
            correlation: 0,
            permit: None,
            passage: Some(passage),
            observer: None,
            traced: None,
        }
    }

    /// The guard of the list, if a transfer brings one.
    #[must_use]
    pub const fn passage(&self) -> Option<&Passage> {
        self.passage.as_ref()
    }

    /// A reply that nobody waits for.
    #[must_use]
    pub const fn nobody() -> Self {
        Self {
            outlet: None,
            correlation: 0,
            permit: None,
            passage: None,
            observer: None,
            traced: None,
        }
    }

    /// Who waits for the answer; another entity, which brings messages, is nobody.
    pub(crate) fn asker(&self) -> Option<Asker> {
        if self.passage.is_some() {
            return None;
        }
        self.outlet.as_ref().map(|outlet| Asker(Arc::as_ptr(outlet).cast::<()>().addr()))
    }

    /// The outlet that deliveries of a new link go to.
    pub(crate) fn outlet(&self) -> Option<&Arc<dyn Outlet>> {
        self.outlet.as_ref()
    }

    /// The link that the command opens: deliveries go where its answer goes.
    pub(crate) fn link(&self) -> Option<Link> {
        let outlet = Arc::clone(self.outlet.as_ref()?);
        let witness = self.traced.as_ref().map(|traced| traced.witness().clone());
        Some(Link { outlet, witness })
    }

    /// Has a tracer told when the command is answered.
    pub(crate) fn trace(&mut self, traced: Option<Box<Traced>>) {
        self.traced = traced;
    }

    /// Has an observer take note of the answer.
    pub(crate) fn watch(&mut self, observer: Arc<dyn AnswerObserver>) {
        self.observer = Some(observer);
    }

    /// Gives the permit back, because the command waits from now on and holds little.
    pub(crate) fn wait(&mut self) {
        self.permit = None;
    }

    /// Makes the answer, to be released when it may leave.
    pub(crate) fn answer(mut self, result: Result<Outcome, Rejection>) -> Option<Release> {
        let result = match self.observer.take() {
            Some(observer) => observer.answered(result),
            None => result,
        };
        let outlet = self.outlet.take()?;
        let item = Released::Answer { correlation: self.correlation, result };
        let (permit, traced) = (self.permit.take(), self.traced.take());
        Some(Release { on_its_way: Some((outlet, item)), permit, traced })
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer.unanswered();
        }
        if let Some(outlet) = self.outlet.take() {
            let answer = unknown_outcome(self.correlation);
            end(self.traced.take(), &answer);
            outlet.release(vec![answer]);
        }
    }
}

/// Where deliveries of a link go.
#[derive(Clone)]
pub(crate) struct Link {
    outlet: Arc<dyn Outlet>,
    /// Where a tracer is told of them, if there is one.
    witness: Option<Witness>,
}

impl Link {
    /// A message for it.
    pub(crate) fn delivery(self, receiver: ReceiverId, message: ReceivedMessage) -> Release {
        let traced = self.witness.as_ref().map(|witness| witness.delivery(&message));
        let item = Released::Delivery { receiver, message: Box::new(message) };
        let mut release = Release::to(self.outlet, item);
        release.traced = traced;
        release
    }

    /// That it was closed.
    pub(crate) fn detached(self, receiver: ReceiverId, reason: Rejection) -> Release {
        Release::to(self.outlet, Released::Detached { receiver, reason })
    }
}

/// Tells a tracer of what leaves, if there is one.
fn end(traced: Option<Box<Traced>>, item: &Released) {
    if let Some(traced) = traced {
        traced.end(item);
    }
}

fn unknown_outcome(correlation: u64) -> Released {
    let result = Err(Rejection::internal(
        "the entity failed before it answered; it is unknown whether the command took effect",
    ));
    Released::Answer { correlation, result }
}

/// Something that leaves the broker, and where to. An answer that is dropped instead, because what it
/// rests on was not stored, becomes one that the outcome is unknown; that a link was closed is told all the
/// same.
pub struct Release {
    on_its_way: Option<(Arc<dyn Outlet>, Released)>,
    permit: Option<Permit>,
    traced: Option<Box<Traced>>,
}

impl Release {
    /// Something for a link.
    #[must_use]
    pub const fn to(outlet: Arc<dyn Outlet>, item: Released) -> Self {
        Self { on_its_way: Some((outlet, item)), permit: None, traced: None }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        match self.on_its_way.take() {
            Some((outlet, Released::Answer { correlation, .. })) => {
                let answer = unknown_outcome(correlation);
                end(self.traced.take(), &answer);
                outlet.release(vec![answer]);
            }
            // Whatever became of the change that closed it, the link is gone with the tree.
            Some((outlet, item @ (Released::Detached { .. } | Released::Closed { .. }))) => {
                outlet.release(vec![item]);
            }
            Some((_, Released::Delivery { .. })) | None => {}
        }
    }
}

/// How many outlets a group is sorted into by a plain search.
const OUTLETS_SEARCHED: usize = 16;

/// Lets everything out, one call per outlet, each outlet's items in order.
pub fn release_all(releases: &mut Vec<Release>) {
    let mut groups: Vec<(Arc<dyn Outlet>, Vec<Released>)> = Vec::new();
    let mut permits = Vec::new();
    let count = releases.len();
    for mut release in releases.drain(..) {
        permits.extend(release.permit.take());
        let Some((outlet, item)) = release.on_its_way.take() else { continue };
        end(release.traced.take(), &item);
        let known =
            groups.iter_mut().rev().take(OUTLETS_SEARCHED).find(|(of, _)| Arc::ptr_eq(of, &outlet));
        if let Some((_, items)) = known {
            items.push(item);
            continue;
        }
        let mut items = Vec::with_capacity(if groups.is_empty() { count } else { 1 });
        items.push(item);
        groups.push((outlet, items));
    }
    for (outlet, items) in groups {
        outlet.release(items);
    }
}
