//! A link: a client's handle on an entity or sub-queue, and for receivers the flow of deliveries.

use std::sync::Arc;

use peeklock_core::command::{Command, InboundMessage, LinkEnd, ReceiveMode, SessionCommand};
use peeklock_core::ids::{LockToken, ReceiverId};
use peeklock_core::request::Watch;

use crate::credit::{Bounds, Flow, Limits};

/// What a link is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives, settles and looks.
    Receiver,
    /// It looks, for which less is granted than to receive.
    Browser,
}

/// A link.
pub struct Link<E> {
    /// What it is a handle on.
    pub entity: E,
    /// The path, for errors.
    pub path: Arc<str>,
    /// What it is for.
    pub role: Role,
    /// How received messages leave the entity.
    pub mode: ReceiveMode,
    /// Where messages go that are only stored at the entity (VIA-01).
    pub destination: Option<Arc<str>>,
    /// What it receives from.
    pub source: Source,
    /// Holds the locks.
    pub receiver: ReceiverId,
    /// The number of the last delivery.
    pub(crate) last: u64,
    /// How far the client lets it be sent.
    pub(crate) up_to: u64,
    pub(crate) flow: Option<Flow>,
    /// How it is being closed.
    pub(crate) closing: Option<Closing>,
    /// It is told when its entity is gone.
    pub(crate) watch: Watch,
    /// What arrived for it and was not delivered, to be given back.
    pub(crate) undelivered: Vec<LockToken>,
}

/// What a receiver receives from.
#[derive(Debug)]
pub enum Source {
    /// The entity, without sessions.
    Queue,
    /// No session yet: it waits for one.
    Awaited,
    /// This session, as long as its lock lasts.
    Session(Box<str>),
}

/// How a link is being closed.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    /// The request that closes it.
    pub id: u32,
    /// In which way.
    pub end: LinkEnd,
}

impl<E> Link<E> {
    /// A link on which nothing was delivered, whose deliveries are numbered from behind this one.
    #[must_use]
    pub fn new(
        entity: E,
        path: Arc<str>,
        role: Role,
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
            source: Source::Queue,
            receiver,
            last,
            up_to: last,
            flow: None,
            closing: None,
            watch: Watch::default(),
            undelivered: Vec::new(),
        }
    }

    /// The session that it was bound to, if it was.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        match &self.source {
            Source::Session(session) => Some(session),
            Source::Queue | Source::Awaited => None,
        }
    }

    /// Whether it was bound to a session and holds it no more: its flow ends with the session lock (SES-15).
    #[must_use]
    pub fn has_lost_session(&self) -> bool {
        self.session().is_some() && self.flow.is_none()
    }

    /// The number of the last delivery.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Whether it may be asked anything: it is attached and not being closed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.closing.is_none() && !matches!(self.source, Source::Awaited)
    }

    /// What opens its flow.
    pub(crate) const fn attach(&self) -> Command {
        match self.source {
            Source::Session(_) => self.in_session(SessionCommand::Attach),
            Source::Queue | Source::Awaited => {
                Command::Attach { receiver: self.receiver, mode: self.mode }
            }
        }
    }

    /// Bytes of deliveries are with the client.
    pub(crate) const fn give_back(&mut self, bytes: u64) {
        if let Some(flow) = &mut self.flow {
            flow.returned_bytes = flow.returned_bytes.saturating_add(bytes);
        }
    }

    /// The limits to be told to the entity, if they have changed enough.
    pub(crate) fn new_limits(&mut self, bounds: Bounds, unsettled_count: u32) -> Option<Limits> {
        let room = bounds.unsettled_max.saturating_sub(unsettled_count);
        let up_to = if bounds.paused || self.closing.is_some() {
            self.last
        } else {
            self.up_to.min(self.last.saturating_add(u64::from(room)))
        };
        self.flow.as_mut()?.new_limits(up_to, bounds.window_bytes)
    }

    /// A drain is done: what credit there was is used up.
    pub(crate) fn drained(&mut self) {
        self.up_to = self.up_to.min(self.last);
        if let Some(flow) = &mut self.flow {
            flow.draining = false;
            flow.delivery_limit = self.last.saturating_sub(flow.base);
        }
    }
}

impl<E> Link<E> {
    /// What sends a message over it: to the entity, or by way of it.
    pub fn send(&self, message: InboundMessage) -> Command {
        match &self.destination {
            None => Command::Send { message },
            Some(_) => self.send_batch(vec![message]),
        }
    }

    /// The same for messages of which all are stored or none.
    pub fn send_batch(&self, messages: Vec<InboundMessage>) -> Command {
        match &self.destination {
            None => Command::SendBatch { messages },
            Some(destination) => {
                Command::SendVia { destination: Arc::clone(destination), messages }
            }
        }
    }

    /// Something that only the holder of its session may ask.
    #[must_use]
    pub const fn in_session(&self, command: SessionCommand) -> Command {
        Command::InSession { receiver: self.receiver, command }
    }
}
