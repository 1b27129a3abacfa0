//! A link: attach and detach, credit, transfers in both directions (AMQP 2.6). A session owns its
//! links; the connection calls them with the performatives of their handle.
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
use self::outgoing::UnsentMessage;
use crate::performative::{ReceiverSettleMode, Role, SenderSettleMode};

/// Progress of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkStage {
    /// The client's `attach` is not answered.
    Requested,
    /// Attached on both sides.
    Attached,
    /// The client's `detach` is not answered; its handle is free. `attached` is whether its
    /// `attach` was answered.
    DetachReceived { attached: bool },
    /// Our `detach` is not answered; our handle is free. Frames for the link are ignored.
    DetachSent,
}

/// A link of a session.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stage: LinkStage,
    pub(crate) name: Box<str>,
    /// Our handle of the link, until our `detach`.
    pub(crate) handle: u32,
    /// Bytes kept of its `attach`: everything until it is answered, then its names.
    pub(crate) kept_bytes: usize,
    /// Bytes of its names.
    pub(crate) names_bytes: usize,
    /// Role of the client.
    pub(crate) role: Role,
    pub(crate) snd_settle_mode: Option<SenderSettleMode>,
    pub(crate) rcv_settle_mode: Option<ReceiverSettleMode>,
    /// Number of deliveries made by the sending end.
    pub(crate) delivery_count: u32,
    /// Number of further deliveries that it may make.
    pub(crate) credit: u32,
    /// Whether the client requests that its credit is used up.
    pub(crate) drain: bool,
    /// Maximum message size that was announced to the client, in bytes.
    pub(crate) message_bytes_max: u64,
    /// Maximum message size that is accepted, in bytes: somewhat more than the announced one.
    pub(crate) accepted_bytes_max: u64,
    /// A message of which more frames will arrive.
    pub(crate) incoming: Option<IncomingMessage>,
    /// A message with unsent frames.
    pub(crate) unsent: Option<UnsentMessage>,
}

impl Link {
    pub(crate) fn is_attached(&self) -> bool {
        self.stage == LinkStage::Attached
    }
}
