//! Mail between transports and entities: requests in, answers and deliveries out, both in groups.
//!
//! A transport sorts the commands of each read into one group per entity, and submits a group at
//! once. The entity returns everything for a connection as one group, with one wake-up (DESIGN D1).

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
use crate::traced::{CommandTrace, TraceRecorder};
use crate::transfer::claim::TransferClaim;

/// Name of a content in refusals.
const MESSAGE: &str = "the content of a message";

/// An outcome in the form for clients: with references to contents, and the entrance of a session.
pub type Outcome =
    peeklock_model::command::Outcome<ReceivedMessage, ContentRef, Option<SessionEntrance>>;

/// A message as it leaves the broker: facts, and references to its pinned content.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    /// Facts of the broker about the message.
    pub facts: MessageFacts,
    /// The encoded message, without overlays.
    pub content: ContentRef,
    /// Property overlays in the order in which they were set.
    pub overlays: Vec<ContentRef>,
}

/// A message with its content loaded.
#[derive(Clone, Debug)]
pub struct LoadedMessage {
    /// The message with the properties that settlements set.
    pub message: Message,
    /// The entity in which it was dead-lettered before it was forwarded (FWD-26).
    pub dead_letter_source: Option<String>,
}

impl ReceivedMessage {
    /// Returns the refusal of a message whose contents could not all be loaded: `ServerBusy` if the
    /// store is not available at present, otherwise `InternalError`.
    #[must_use]
    pub fn unreadable(&self) -> Rejection {
        let contents = std::iter::once(&self.content).chain(&self.overlays);
        let mut errors = contents.filter_map(ContentRef::known_error);
        let is_unavailable = errors.any(|error| error.is_unavailable());
        unreadable(MESSAGE, is_unavailable)
    }

    /// Returns the refusal of a delivery whose contents could not all be loaded. A message without
    /// a lock is removed and lost, so the refusal is never `ServerBusy` (ERR-06).
    #[must_use]
    pub fn undeliverable(&self) -> Rejection {
        match self.facts.lock {
            Some(_) => self.unreadable(),
            None => unreadable(MESSAGE, false),
        }
    }

    /// Loads the message with all overlays set since it was sent. May wait for the disk; call it
    /// outside the broker's arbiters.
    ///
    /// # Errors
    /// A message that the store cannot read, or bytes that are not a message.
    pub async fn load(&self) -> Result<LoadedMessage, MessageReadError> {
        let content = self.content.load().await?;
        let mut overlays = Vec::with_capacity(self.overlays.len());
        for overlay in &self.overlays {
            overlays.push(overlay.load().await?);
        }
        Ok(LoadedMessage::read(content, overlays)?)
    }
}

impl LoadedMessage {
    /// Decodes a stored message: its content, and the overlays in the order in which they were set.
    ///
    /// # Errors
    /// Bytes that are not a message.
    pub fn read(
        content: Bytes,
        overlays: impl IntoIterator<Item = Bytes>,
    ) -> Result<Self, ContentError> {
        let overlays: Vec<_> = overlays.into_iter().map(Overlay::from_bytes).collect();
        let message = Content::parse(content)?.message(&overlays)?;
        let dead_letter_source = Overlay::dead_letter_source_of(overlays.iter()).map(str::to_owned);
        Ok(Self { message, dead_letter_source })
    }
}

/// Reason why a stored message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MessageReadError {
    /// The store cannot return it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored bytes are not a message.
    #[error(transparent)]
    Content(#[from] ContentError),
}

impl MessageReadError {
    /// Returns the refusal of a request for a content with this name, such as `the content of a
    /// message`.
    #[must_use]
    pub fn refusal(&self, name: &str) -> Rejection {
        unreadable(name, matches!(self, Self::Store(error) if error.is_unavailable()))
    }
}

/// Returns the refusal of a session state that could not be loaded.
#[must_use]
pub fn unreadable_state(state: &ContentRef) -> Rejection {
    let is_unavailable = state.known_error().is_some_and(|error| error.is_unavailable());
    unreadable("the state of a session", is_unavailable)
}

/// Returns the refusal of a request for a content that cannot be read, or not at present.
fn unreadable(name: &str, is_unavailable: bool) -> Rejection {
    match is_unavailable {
        true => Rejection::server_busy(format!(
            "{name} cannot be read because the store is not available; wait 10 s and retry"
        )),
        false => Rejection::internal(format!("{name} cannot be read")),
    }
}

/// A command for an entity, with its reply.
pub struct Request {
    /// Name of the command, from [`crate::Broker::ticket`].
    pub ticket: Ticket,
    /// Addressed sub-queue.
    pub sub_queue: SubQueue,
    /// The command.
    pub command: Command,
    /// Receiver of the answer.
    pub reply: Reply,
}

/// Entrance to the driver of a held session. The holder submits all requests to it, which keeps
/// their order; see [`crate::Entity::with_session_entrance`]. The end of the hold and all later
/// requests are passed on to the entity.
#[derive(Clone)]
pub struct SessionEntrance(Arc<dyn Entrance>);

/// A queue that accepts requests.
pub(crate) trait Entrance: Send + Sync {
    /// Submits requests, in order. Returned requests are for the entity: the end of the hold with
    /// all after it, or all requests if the hold is over.
    fn enter(&self, group: Vec<Request>) -> Result<(), Vec<Request>>;
}

impl SessionEntrance {
    pub(crate) fn new(entrance: Arc<impl Entrance + 'static>) -> Self {
        Self(entrance)
    }

    pub(crate) fn enter(&self, group: Vec<Request>) -> Result<(), Vec<Request>> {
        self.0.enter(group)
    }
}

impl fmt::Debug for SessionEntrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionEntrance")
    }
}

/// Receiver of answers and deliveries: one for each connection or call.
pub trait Outlet: Send + Sync {
    /// Takes a group, in order. Called on arbiter threads; must not block and must not panic.
    fn release(&self, group: Vec<Released>);
}

/// An item that leaves the broker.
#[derive(Debug)]
pub enum Released {
    /// The answer to a command.
    Answer {
        /// As given with [`Reply::new`].
        correlation: u64,
        /// The answer.
        result: Result<Outcome, Rejection>,
    },
    /// A message for a receiver link. A transport that cannot write it must return it with
    /// [`crate::command::Settlement::Release`].
    Delivery {
        /// The link.
        receiver: ReceiverId,
        /// The message.
        message: Box<ReceivedMessage>,
    },
    /// The entity closed a receiver link.
    Detached {
        /// The link.
        receiver: ReceiverId,
        /// Reason for the end.
        reason: Rejection,
    },
    /// The entity of a watched link ([`crate::Entity::watch`]) was deleted or is closed
    /// permanently. A link with a flow also gets [`Released::Detached`], or a refusal to open it.
    Closed {
        /// The link.
        receiver: ReceiverId,
        /// Reason for the end.
        reason: Rejection,
    },
}

/// Identity of a connection or call that waits for answers; distinct while both wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RequesterId(usize);

/// Observer of the answer to a command that may leave a link or wait open.
pub(crate) trait AnswerObserver: Send + Sync {
    /// Notes the answer, and returns the answer to give.
    fn answered(&self, result: Result<Outcome, Rejection>) -> Result<Outcome, Rejection>;

    /// Notes that the command ended without an answer.
    fn unanswered(&self);
}

/// Registration of a link for the end of its entity; see [`crate::Entity::watch`]. Dropping it ends
/// the registration.
#[derive(Default)]
pub struct Watch(Option<(Weak<dyn WatchRegistry>, ReceiverId)>);

/// Registry of watched links.
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

/// Duty to answer one command. If it is dropped without an answer, it answers that the outcome is
/// unknown: a command is answered exactly once, even if its entity fails.
pub struct Reply {
    outlet: Option<Arc<dyn Outlet>>,
    correlation: u64,
    permit: Option<Permit>,
    /// Tracks links and waits that the command leaves open.
    observer: Option<Arc<dyn AnswerObserver>>,
    /// Guard of the list of a transfer.
    claim: Option<TransferClaim>,
    /// Trace of the command, if there is a tracer.
    traced: Option<Box<CommandTrace>>,
}

impl Reply {
    /// Creates a reply to an outlet, with a number of the caller's choice. The permit is released
    /// when the answer is taken or the command begins to wait.
    #[must_use]
    pub const fn new(outlet: Arc<dyn Outlet>, correlation: u64, permit: Option<Permit>) -> Self {
        Self {
            outlet: Some(outlet),
            correlation,
            permit,
            claim: None,
            observer: None,
            traced: None,
        }
    }

    /// Creates the reply to a list of messages from another entity of this broker.
    #[must_use]
    pub fn for_claim(claim: TransferClaim) -> Self {
        Self {
            outlet: Some(claim.outlet()),
            correlation: 0,
            permit: None,
            claim: Some(claim),
            observer: None,
            traced: None,
        }
    }

    /// Guard of the list, for a transfer.
    #[must_use]
    pub const fn transfer_claim(&self) -> Option<&TransferClaim> {
        self.claim.as_ref()
    }

    /// Creates a reply without a receiver.
    #[must_use]
    pub const fn without_receiver() -> Self {
        Self {
            outlet: None,
            correlation: 0,
            permit: None,
            claim: None,
            observer: None,
            traced: None,
        }
    }

    /// Identity of the connection or call that waits for the answer; none for a transfer from
    /// another entity.
    pub(crate) fn requester(&self) -> Option<RequesterId> {
        if self.claim.is_some() {
            return None;
        }
        self.outlet.as_ref().map(|outlet| RequesterId(Arc::as_ptr(outlet).cast::<()>().addr()))
    }

    /// Outlet for deliveries of a new link.
    pub(crate) fn outlet(&self) -> Option<&Arc<dyn Outlet>> {
        self.outlet.as_ref()
    }

    /// Returns the link that the command opens: deliveries go to the outlet of its answer.
    pub(crate) fn link(&self) -> Option<Link> {
        let outlet = Arc::clone(self.outlet.as_ref()?);
        let witness = self.traced.as_ref().map(|traced| traced.witness().clone());
        Some(Link { outlet, witness })
    }

    /// Sets the trace that ends with the answer.
    pub(crate) fn trace(&mut self, traced: Option<Box<CommandTrace>>) {
        self.traced = traced;
    }

    /// Sets the observer of the answer.
    pub(crate) fn watch(&mut self, observer: Arc<dyn AnswerObserver>) {
        self.observer = Some(observer);
    }

    /// Releases the permit, because the command waits from now on and needs little memory.
    pub(crate) fn release_permit(&mut self) {
        self.permit = None;
    }

    /// Creates the answer, for release when it may leave.
    pub(crate) fn answer(mut self, result: Result<Outcome, Rejection>) -> Option<Release> {
        let result = match self.observer.take() {
            Some(observer) => observer.answered(result),
            None => result,
        };
        let outlet = self.outlet.take()?;
        let item = Released::Answer { correlation: self.correlation, result };
        let (permit, traced) = (self.permit.take(), self.traced.take());
        Some(Release { target: Some((outlet, item)), permit, traced })
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer.unanswered();
        }
        if let Some(outlet) = self.outlet.take() {
            let answer = unknown_outcome(self.correlation);
            end_trace(self.traced.take(), &answer);
            outlet.release(vec![answer]);
        }
    }
}

/// Receiver of the deliveries of a link.
#[derive(Clone)]
pub(crate) struct Link {
    outlet: Arc<dyn Outlet>,
    /// Trace recorder for deliveries, if there is a tracer.
    witness: Option<TraceRecorder>,
}

impl Link {
    /// Creates a delivery over the link.
    pub(crate) fn delivery(self, receiver: ReceiverId, message: ReceivedMessage) -> Release {
        let traced = self.witness.as_ref().map(|witness| witness.delivery(&message));
        let item = Released::Delivery { receiver, message: Box::new(message) };
        let mut release = Release::to(self.outlet, item);
        release.traced = traced;
        release
    }

    /// Creates the notification that the link was closed.
    pub(crate) fn detached(self, receiver: ReceiverId, reason: Rejection) -> Release {
        Release::to(self.outlet, Released::Detached { receiver, reason })
    }
}

/// Reports an item to its tracer, if there is one.
fn end_trace(traced: Option<Box<CommandTrace>>, item: &Released) {
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

/// An item that leaves the broker, with its outlet. If an answer is dropped because its changes
/// were not stored, it becomes an answer with unknown outcome. The notification of a closed link is
/// sent anyway.
pub struct Release {
    target: Option<(Arc<dyn Outlet>, Released)>,
    permit: Option<Permit>,
    traced: Option<Box<CommandTrace>>,
}

impl Release {
    /// Creates a release for an outlet.
    #[must_use]
    pub const fn to(outlet: Arc<dyn Outlet>, item: Released) -> Self {
        Self { target: Some((outlet, item)), permit: None, traced: None }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        match self.target.take() {
            Some((outlet, Released::Answer { correlation, .. })) => {
                let answer = unknown_outcome(correlation);
                end_trace(self.traced.take(), &answer);
                outlet.release(vec![answer]);
            }
            // The link ends with the tree, even if the change that closed it was lost.
            Some((outlet, item @ (Released::Detached { .. } | Released::Closed { .. }))) => {
                outlet.release(vec![item]);
            }
            Some((_, Released::Delivery { .. })) | None => {}
        }
    }
}

/// Maximum number of outlets that are searched linearly when a group is sorted.
const OUTLETS_SEARCHED: usize = 16;

/// Releases all items, with one call per outlet, the items of each outlet in order.
pub fn release_all(releases: &mut Vec<Release>) {
    let mut groups: Vec<(Arc<dyn Outlet>, Vec<Released>)> = Vec::new();
    let mut permits = Vec::new();
    let count = releases.len();
    for mut release in releases.drain(..) {
        permits.extend(release.permit.take());
        let Some((outlet, item)) = release.target.take() else { continue };
        end_trace(release.traced.take(), &item);
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
