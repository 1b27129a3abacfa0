//! A link: attach and detach, credit, transfers both ways (AMQP 2.6).
//!
//! ```text
//!   attach ─► asked ─► accepted: attached ─► detach of either side ─► of the other ─► gone
//!               └───► refused: attach without ends, detach (AMQP-36) ─────┘
//! ```

mod attach;
mod detach;
mod incoming;
mod outgoing;

pub use self::attach::Answer;
pub use self::incoming::Assembly;
use self::incoming::IncomingMessage;
pub use self::outgoing::Delivery;
use self::outgoing::UnderWay;
use crate::performative::{ReceiverSettleMode, Role, SenderSettleMode};

/// How far a link is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The client's `attach` is not answered.
    Asked,
    /// It is attached.
    Attached,
    /// The client's `detach` is not answered; its handle is free. Whether its `attach` was answered.
    Leaving { attached: bool },
    /// Our `detach` is not answered; our handle is free. What comes for it is not looked at.
    Left,
}

/// A link of a session.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stage: Stage,
    pub(crate) name: Box<str>,
    /// The handle of ours that stands for it until our `detach`.
    pub(crate) handle: u32,
    /// What of its `attach` is kept: all of it until it is answered, then its names.
    pub(crate) kept_bytes: usize,
    /// What its names take.
    pub(crate) names_bytes: usize,
    /// What the client is.
    pub(crate) role: Role,
    pub(crate) snd_settle_mode: Option<SenderSettleMode>,
    pub(crate) rcv_settle_mode: Option<ReceiverSettleMode>,
    /// How many deliveries its sending end has made.
    pub(crate) delivery_count: u32,
    /// How many more it may make.
    pub(crate) credit: u32,
    /// The client wants its credit used up.
    pub(crate) drain: bool,
    /// The largest message that the client may send, as it was told.
    pub(crate) message_bytes_max: u64,
    /// The largest that is taken of it.
    pub(crate) taken_bytes_max: u64,
    /// A message of which not all frames came.
    pub(crate) assembly: Option<IncomingMessage>,
    /// A message of which not all frames were sent.
    pub(crate) under_way: Option<UnderWay>,
}

impl Link {
    pub(crate) fn is_attached(&self) -> bool {
        self.stage == Stage::Attached
    }
}
