//! Events of a connection, and the identifiers of sessions, links and deliveries in them.
//! [`next_event`](super::Connection::next_event) returns events in the order of the frames that
//! cause them.

use bytes::Bytes;

use crate::error::AmqpError;
use crate::performative::{Attach, DeliveryTag, Open};
use crate::sasl::Credentials;
use crate::state::DeliveryState;

/// Identifier of a session; a later session on the same channel has another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId {
    pub(crate) channel: u16,
    pub(crate) generation: u64,
}

/// Identifier of a link; a later link on the same handle has another one, which is greater within
/// the session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId {
    pub(crate) session: SessionId,
    pub(crate) generation: u64,
}

/// Identifier of a delivery from the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReceivedId {
    pub(crate) session: SessionId,
    pub(crate) id: u32,
}

/// Identifier of a delivery to the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SentId {
    pub(crate) session: SessionId,
    pub(crate) number: i64,
}

impl SentId {
    /// Returns the session of the delivery.
    #[must_use]
    pub const fn session(self) -> SessionId {
        self.session
    }
}

impl LinkId {
    /// Returns the session of the link.
    #[must_use]
    pub const fn session(self) -> SessionId {
        self.session
    }

    /// Range of all possible links of a session.
    #[cfg(feature = "server")]
    pub(crate) const fn all_of(session: SessionId) -> std::ops::RangeInclusive<Self> {
        Self { session, generation: 0 }..=Self { session, generation: u64::MAX }
    }
}

/// Continuation after a part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Continuation {
    /// More parts follow.
    More,
    /// The message is complete.
    Whole,
    /// The message is void: it was aborted, or is too large. Earlier parts must be dropped, and
    /// later ones are not reported.
    Void,
    /// The message is too large and complete; the value is its size in bytes. It must be rejected
    /// (AMQP-43).
    TooLarge(u64),
}

/// Part of a message from a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessagePart {
    /// Delivery of the message.
    pub delivery: ReceivedId,
    /// Tag of the delivery.
    pub tag: DeliveryTag,
    /// Format of the message (AMQP-42).
    pub message_format: u32,
    /// Whether the client wants no answer; known only after the last part.
    pub settled: bool,
    /// Transaction, if this part names one.
    pub state: Option<DeliveryState>,
    /// Bytes of the part, a slice of the received bytes.
    pub payload: Bytes,
    /// Continuation after this part.
    pub continuation: Continuation,
}

/// Event of a connection, for the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A client sends credentials. Nothing more is read before [`admit`](super::Connection::admit)
    /// or [`deny`](super::Connection::deny).
    Login(Credentials),
    /// The connection is open on both sides.
    Opened(Box<Open>),
    /// A session has begun on both sides.
    Begun(SessionId),
    /// A client attaches a link. The caller must accept or refuse it. Until then only its
    /// `Detached` may follow.
    Attached {
        /// Identifier of the link.
        link: LinkId,
        /// The performative of the client.
        attach: Box<Attach>,
    },
    /// New credit of a link on which the client receives: the number of deliveries that may follow
    /// (AMQP-50).
    Credit {
        /// Identifier of the link.
        link: LinkId,
        /// Number of deliveries.
        credit: u32,
        /// Whether the caller must return unused credit with
        /// [`drained`](super::Connection::drained) (AMQP-51).
        drain: bool,
    },
    /// A part of a message arrived.
    Received {
        /// Identifier of the link.
        link: LinkId,
        /// The part.
        part: MessagePart,
    },
    /// A client reports an outcome of a delivery, or has settled it. If it has not settled it, an
    /// answer is due (AMQP-60).
    Disposition {
        /// Link of the delivery, which may be detached already (AMQP-39).
        link: LinkId,
        /// Identifier of the delivery.
        delivery: SentId,
        /// Tag of the delivery.
        tag: DeliveryTag,
        /// State that the client reports.
        state: Option<DeliveryState>,
        /// Whether the client has settled the delivery.
        settled: bool,
    },
    /// A client detaches a link. The caller must answer with [`detach`](super::Connection::detach).
    Detached {
        /// Identifier of the link.
        link: LinkId,
        /// Error of the client, if any.
        error: Option<AmqpError>,
    },
    /// This side detached a link because of an error of the client.
    Failed {
        /// Identifier of the link.
        link: LinkId,
        /// Reason.
        error: AmqpError,
    },
    /// A session ended with all its links, by the client or because of an error of the client.
    Ended {
        /// Identifier of the session.
        session: SessionId,
        /// Tags of the deliveries to the client that it can no longer settle.
        unsettled: Vec<DeliveryTag>,
        /// Error, if any.
        error: Option<AmqpError>,
    },
    /// The connection ended with all its sessions. The output may still be written.
    Closed {
        /// Error, if any.
        error: Option<AmqpError>,
        /// Whether the client closed the connection; otherwise this side did, because of an error
        /// of the client.
        by_client: bool,
    },
}
