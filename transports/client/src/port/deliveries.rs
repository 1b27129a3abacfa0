//! Messages that are pushed.

use std::sync::Arc;
use std::task::{Context, Poll};

use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;

use super::{Link, Settlement, Waiting};

/// What is pushed over one link. It has room for so many unsettled messages; where one was settled there is
/// room for another, which the port tells the broker as it sees fit.
pub trait Deliveries: Send {
    /// The link, over which locks are renewed and messages settled by token.
    fn link(&self) -> &Arc<dyn Link>;

    /// What has come; none when nothing comes any more.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Arrival>>;

    /// Settles messages that came, in this order; each is answered by an [`Arrival::Settled`].
    fn settle(&mut self, group: Vec<Verdict>);

    /// Makes no more room. What is on its way still comes.
    fn stop(&mut self);

    /// Another link takes its place: nothing is taken of this one any more, which the entity has closed. What came over it is
    /// in hand until it is ended.
    fn retire(&mut self) {
        self.stop();
    }

    /// Ends the link in order. What came since and was not taken goes back uncounted (RCV-14).
    fn finish(self: Box<Self>) -> Waiting<'static, ()>;
}

/// Something that came.
pub enum Arrival {
    /// A message under lock.
    Delivered {
        /// Names it on this link.
        tag: u64,
        /// The message.
        message: Box<ReceivedMessage>,
    },
    /// The answer to a verdict.
    Settled {
        /// Of the verdict.
        tag: u64,
        /// What became of it.
        result: Result<(), BrokerError>,
    },
    /// The link was made anew: what came before has lost its lock, and comes again.
    Anew,
    /// The entity delivers no more. What came before can still be settled (ENT-25).
    Detached(BrokerError),
}

/// What becomes of a message that was pushed.
pub struct Verdict {
    /// Of the delivery.
    pub tag: u64,
    /// Its lock.
    pub token: LockToken,
    /// The decision.
    pub settlement: Settlement,
}
