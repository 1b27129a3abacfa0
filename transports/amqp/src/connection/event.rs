//! What a connection tells whoever drives it.

use bytes::Bytes;

use crate::error::AmqpError;
use crate::performative::{Attach, DeliveryTag, Open};
use crate::sasl::Credentials;
use crate::state::DeliveryState;

/// A session of a connection. A later one on the same channel is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId {
    pub(crate) channel: u16,
    pub(crate) generation: u64,
}

/// A link of a connection. A later one on the same handle is another one, and is greater in the same session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId {
    pub(crate) session: SessionId,
    pub(crate) generation: u64,
}

/// A delivery that the client has sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReceivedId {
    pub(crate) session: SessionId,
    pub(crate) id: u32,
}

/// A delivery that the client was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SentId {
    pub(crate) session: SessionId,
    pub(crate) number: i64,
}

impl SentId {
    /// Its session.
    #[must_use]
    pub const fn session(self) -> SessionId {
        self.session
    }
}

impl LinkId {
    /// Its session.
    #[must_use]
    pub const fn session(self) -> SessionId {
        self.session
    }

    /// All links that a session may have.
    #[cfg(feature = "server")]
    pub(crate) const fn all_of(session: SessionId) -> std::ops::RangeInclusive<Self> {
        Self { session, generation: 0 }..=Self { session, generation: u64::MAX }
    }
}

/// What is behind a part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// More parts of it.
    More,
    /// Nothing: it is whole.
    Whole,
    /// Nothing that counts: it was aborted, or is too large. What came of it is void, what comes is passed over.
    Void,
    /// Nothing: it is too large, has so many bytes, and all have come. It is to be rejected (AMQP-43).
    TooLarge(u64),
}

/// A part of a message that a client sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The delivery.
    pub delivery: ReceivedId,
    /// Its tag.
    pub tag: DeliveryTag,
    /// How the message is to be read (AMQP-42).
    pub message_format: u32,
    /// Whether the client wants no answer; all parts are needed to know.
    pub settled: bool,
    /// The transaction, if this part names one.
    pub state: Option<DeliveryState>,
    /// The bytes, as they stand in what was received.
    pub payload: Bytes,
    /// What is behind them.
    pub fate: Fate,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A client says who it is. Nothing more is read before [`admit`](super::Connection::admit) or
    /// [`deny`](super::Connection::deny).
    Login(Credentials),
    /// The connection is open on both sides.
    Opened(Box<Open>),
    /// A session has begun on both sides.
    Begun(SessionId),
    /// A client attaches a link. It is to be accepted or refused; until then it may be detached, and
    /// nothing else comes of it.
    Attached {
        /// The link.
        link: LinkId,
        /// What it asks for.
        attach: Box<Attach>,
    },
    /// A receiver of the client may be sent so many more deliveries (AMQP-50).
    Credit {
        /// The link.
        link: LinkId,
        /// How many.
        credit: u32,
        /// Whether what is not used up at once is to be given back by
        /// [`drained`](super::Connection::drained) (AMQP-51).
        drain: bool,
    },
    /// A part of a message came.
    Received {
        /// The link.
        link: LinkId,
        /// The part.
        part: Part,
    },
    /// A client says what is to become of a delivery, or that it has forgotten it. If it has not, an
    /// answer is due (AMQP-60).
    Settled {
        /// The link it was sent on, which may be gone (AMQP-39).
        link: LinkId,
        /// The delivery.
        delivery: SentId,
        /// The tag that it was sent with.
        tag: DeliveryTag,
        /// What is to become of it.
        state: Option<DeliveryState>,
        /// Whether the client has forgotten it.
        settled: bool,
    },
    /// A client detaches a link, which is to be answered by [`detach`](super::Connection::detach).
    Detached {
        /// The link.
        link: LinkId,
        /// Why, if something is wrong.
        error: Option<AmqpError>,
    },
    /// A link was detached from here, because of what the client did on it.
    Failed {
        /// The link.
        link: LinkId,
        /// Why.
        error: AmqpError,
    },
    /// A session is over with all its links: the client has ended it, or it was ended from here because of
    /// what the client did in it.
    Ended {
        /// The session.
        session: SessionId,
        /// The tags of what it was sent in it and has not settled, which it can settle no more.
        unsettled: Vec<DeliveryTag>,
        /// Why, if something is wrong.
        error: Option<AmqpError>,
    },
    /// The connection is over with all its sessions. What is to be written may still be written.
    Closed {
        /// Why, if something is wrong.
        error: Option<AmqpError>,
        /// Whether its client has closed it, and not this end for what its client did.
        by_client: bool,
    },
}
