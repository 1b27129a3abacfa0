//! Pushed messages of a link and their settlements; the loop of a consumer uses them. Each port
//! implements them.

use std::sync::Arc;
use std::task::{Context, Poll};

use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;

use super::{BoxFuture, Link, Settlement};

/// Pushed deliveries of a link, with a maximum number of unsettled messages. Each settlement makes
/// room for another message; the port decides when to grant the broker that credit.
pub trait Deliveries: Send {
    /// Returns the link, which renews locks and settles messages by token.
    fn link(&self) -> &Arc<dyn Link>;

    /// Returns the next arrival; `None` when the link delivers nothing more.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Arrival>>;

    /// Settles messages in this order; each gets an answer as [`Arrival::Settled`].
    fn settle(&mut self, group: Vec<Verdict>);

    /// Grants no more credit. Messages in transit still arrive.
    fn stop(&mut self);

    /// Retires a link that the entity has closed and that another link replaces: nothing more is
    /// received over it. Its messages stay locked until [`finish`](Self::finish).
    fn retire(&mut self) {
        self.stop();
    }

    /// Ends the link in order. Messages that arrived and were not taken are released uncounted
    /// (RCV-14).
    fn finish(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// An event of the link.
pub enum Arrival {
    /// A message under lock.
    Delivered {
        /// Identifies the message on this link.
        tag: u64,
        /// The message.
        message: Box<ReceivedMessage>,
    },
    /// The answer to a verdict.
    Settled {
        /// Tag of the verdict.
        tag: u64,
        /// Result of the settlement.
        result: Result<(), BrokerError>,
    },
    /// The link was attached again: earlier messages have lost their locks and are delivered again.
    Reattached,
    /// The entity has ended the link. Earlier messages can still be settled (ENT-25).
    Detached(BrokerError),
}

/// Decision about a pushed message.
pub struct Verdict {
    /// Tag of the delivery.
    pub tag: u64,
    /// Its lock.
    pub token: LockToken,
    /// The decision.
    pub settlement: Settlement,
}
