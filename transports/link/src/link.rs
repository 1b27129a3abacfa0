//! A link: a client's handle on an entity or sub-queue, and for receivers the flow of deliveries.
//! [`Links`](crate::Links) owns it.

use std::sync::Arc;

use peeklock_core::clients::{LinkGuard, LinkIdentity};
use peeklock_core::command::{Command, InboundMessage, LinkEnd, ReceiveMode, SessionCommand};
use peeklock_core::ids::{LockToken, ReceiverId};
use peeklock_core::inspect::LinkRole;
use peeklock_core::request::Watch;

use crate::credit::{CreditBounds, CreditLimits, ReceiverFlow};

/// Link of a connection to an entity or sub-queue.
pub struct Link<E> {
    /// Handle on the entity.
    pub entity: E,
    /// Path of the entity, for error messages.
    pub path: Arc<str>,
    /// Purpose of the link.
    pub role: LinkRole,
    /// Whether received messages are locked or deleted.
    pub mode: ReceiveMode,
    /// Path of the destination for sends via this entity (VIA-01): messages are stored at the
    /// entity and then transferred.
    pub destination: Option<Arc<str>>,
    /// Queue or session that the link receives from.
    pub source: MessageSource,
    /// Id under which the entity knows this link; locks of its deliveries belong to it.
    pub receiver: ReceiverId,
    /// Number before the first delivery.
    first: u64,
    /// Number of the last delivery.
    pub(crate) last: u64,
    /// Number of the last delivery that the client's credit allows.
    pub(crate) credit_limit: u64,
    pub(crate) flow: Option<ReceiverFlow>,
    /// Present while the link is being closed.
    pub(crate) closing: Option<PendingClose>,
    /// Registration that reports the deletion of the entity to this link.
    pub(crate) watch: Watch,
    /// Place of the link in the list of clients; none if the broker lists too many.
    pub(crate) listed: Option<LinkGuard>,
    /// Lock tokens of messages that arrived for this link but were not delivered; they are
    /// released.
    pub(crate) undelivered: Vec<LockToken>,
}

/// Source of the messages of a receiver.
#[derive(Debug)]
pub enum MessageSource {
    /// The entity, without sessions.
    Queue,
    /// A session that is not assigned yet; the link waits for it.
    NotAssigned,
    /// The session with this id, until its lock ends.
    Session(Box<str>),
}

/// Pending close of a link.
#[derive(Clone, Copy, Debug)]
pub struct PendingClose {
    /// Id of the request that closes the link.
    pub id: u32,
    /// Whether the client detached in order or its connection broke.
    pub end: LinkEnd,
}

impl<E> Link<E> {
    /// Creates a link without deliveries. Its deliveries are numbered from `last + 1`.
    #[must_use]
    pub fn new(
        entity: E,
        path: Arc<str>,
        role: LinkRole,
        mode: ReceiveMode,
        receiver: ReceiverId,
        last: u64,
    ) -> Self {
        Self {
            entity,
            path,
            role,
            mode,
            destination: None,
            source: MessageSource::Queue,
            receiver,
            first: last,
            last,
            credit_limit: last,
            flow: None,
            closing: None,
            watch: Watch::default(),
            listed: None,
            undelivered: Vec::new(),
        }
    }

    /// Session that the link was bound to, even if its lock has ended; none for other links.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        match &self.source {
            MessageSource::Session(session) => Some(session),
            MessageSource::Queue | MessageSource::NotAssigned => None,
        }
    }

    /// Whether the session lock of the link has ended: the flow of a session link ends with its
    /// lock (SES-15).
    #[must_use]
    pub fn has_lost_session(&self) -> bool {
        self.session().is_some() && self.flow.is_none()
    }

    /// Number of the last delivery.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Facts about the link for the list of clients (CON-24).
    pub(crate) fn identity(&self, policy: Option<Arc<str>>) -> LinkIdentity {
        let mode = (self.role == LinkRole::Receiver).then_some(self.mode);
        let path = Arc::clone(&self.path);
        LinkIdentity { receiver: self.receiver, path, role: self.role, mode, policy }
    }

    /// Stores the numbers of the link for the list of clients.
    pub(crate) fn store_gauge(&self, unsettled_count: u32) {
        let Some(listed) = &self.listed else { return };
        let gauge = listed.gauge();
        gauge.set_credit(self.credit_limit.saturating_sub(self.last));
        gauge.set_delivered(self.last.saturating_sub(self.first));
        gauge.set_unsettled(unsettled_count);
    }

    /// Whether the link accepts requests: it is attached and not being closed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.closing.is_none() && !matches!(self.source, MessageSource::NotAssigned)
    }

    /// Command that opens the flow of the link.
    pub(crate) const fn attach(&self) -> Command {
        match self.source {
            MessageSource::Session(_) => self.in_session(SessionCommand::Attach),
            MessageSource::Queue | MessageSource::NotAssigned => {
                Command::Attach { receiver: self.receiver, mode: self.mode }
            }
        }
    }

    /// Records that the client has received `bytes` of deliveries, so that the entity may send as
    /// many again.
    pub(crate) const fn return_bytes(&mut self, bytes: u64) {
        if let Some(flow) = &mut self.flow {
            flow.returned_bytes = flow.returned_bytes.saturating_add(bytes);
        }
    }

    /// CreditLimits to send to the entity, unless they differ too little from the last ones
    /// ([`ReceiverFlow::new_limits`]) or the link has no flow.
    pub(crate) fn new_limits(
        &mut self,
        bounds: CreditBounds,
        unsettled_count: u32,
    ) -> Option<CreditLimits> {
        let room = bounds.unsettled_max.saturating_sub(unsettled_count);
        let up_to = if bounds.paused || self.closing.is_some() {
            self.last
        } else {
            self.credit_limit.min(self.last.saturating_add(u64::from(room)))
        };
        self.flow.as_mut()?.new_limits(up_to, bounds.window_bytes)
    }

    /// Ends a drain: no unused credit is left.
    pub(crate) fn drained(&mut self) {
        self.credit_limit = self.credit_limit.min(self.last);
        if let Some(flow) = &mut self.flow {
            flow.draining = false;
            flow.delivery_limit = self.last.saturating_sub(flow.base);
        }
    }
}

impl<E> Link<E> {
    /// Command that sends a message to the entity, or via it to the link's destination.
    pub fn send_command(&self, message: InboundMessage) -> Command {
        match &self.destination {
            None => Command::Send { message },
            Some(_) => self.batch_command(vec![message]),
        }
    }

    /// Command that sends a batch; either all of its messages are stored or none.
    pub fn batch_command(&self, messages: Vec<InboundMessage>) -> Command {
        match &self.destination {
            None => Command::SendBatch { messages },
            Some(destination) => {
                Command::SendVia { destination: Arc::clone(destination), messages }
            }
        }
    }

    /// Wraps a command that only the holder of the link's session may issue.
    #[must_use]
    pub const fn in_session(&self, command: SessionCommand) -> Command {
        Command::InSession { receiver: self.receiver, command }
    }
}
