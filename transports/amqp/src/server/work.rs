//! The work of a connection: requests of its client on their way from an event to an answer.
//!
//! [`Work`] waits for a permit; [`Expect`] and [`Asked`] are remembered until an entity or a link answers.

use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::admission::Permit;
use peeklock_core::command::{ReceiveMode, Settlement};
use peeklock_core::ids::LockToken;
use peeklock_core::message::Content;
use peeklock_core::time::Timestamp;
use peeklock_core::transaction::{Issued, TransactionId};
use peeklock_link::Working;

use super::book::{Committing, Forgotten};
use super::node::{Answered, Managing, Plan};
use super::outcomes::OutcomeKind;
use super::session::Wanted;
use crate::codec::value::Raw;
use crate::connection::{LinkId, ReceivedId, SentId, SessionId};
use crate::link::Answer;
use crate::state::{DeliveryState, Outcome};

/// The link under whose name answers are brought that stand in no order with deliveries: these may have to wait
/// for room that the client makes when it is answered.
pub(super) const ANSWERS: u32 = u32::MAX - 1;

/// What is to be answered to each of several commands, by their places.
pub(super) struct Each<T> {
    places: Vec<Option<T>>,
    left: usize,
}

impl<T> Each<T> {
    pub(super) fn new(each: impl IntoIterator<Item = T>) -> Self {
        let places: Vec<Option<T>> = each.into_iter().map(Some).collect();
        Self { left: places.len(), places }
    }

    /// One of them is answered, once; and whether all are.
    pub(super) fn answered(&mut self, place: usize) -> Option<(T, bool)> {
        let answered = self.places.get_mut(place)?.take()?;
        self.left -= 1;
        Some((answered, self.left == 0))
    }
}

/// What takes a permit.
pub(super) enum Work {
    /// Deliveries of a client are handed to their entity.
    Send(Inbound),
    /// What becomes of deliveries of one link is told to their entity.
    Settle(Vec<Settling>),
    /// A link is opened at its entity.
    Attach(Box<Attaching>),
    /// A transaction is carried out.
    Commit(Committing),
    /// Something is asked by way of a management node.
    Ask(Box<Plan>),
    /// The same, of what is asked beside the connection.
    AskApart(Asker, Working<Answered>),
}

impl Work {
    /// How many commands it is, and of how many bytes.
    pub(super) fn cost(&self) -> (u64, u64) {
        match self {
            Self::Send(inbound) => inbound.cost(),
            Self::Settle(list) => (list.len() as u64, list.iter().map(Settling::bytes).sum()),
            Self::Attach(_) | Self::Commit(_) | Self::AskApart(..) => (1, 0),
            Self::Ask(plan) => plan.cost(),
        }
    }
}

/// What is remembered of what entities are asked.
pub(super) enum Expect {
    /// Deliveries of a client.
    Sent {
        /// The number of their link.
        number: u32,
        /// Each to be answered; none if it was settled.
        deliveries: Each<Option<ReceivedId>>,
        /// Whether no other that large may arrive meanwhile.
        is_large: bool,
    },
    /// What becomes of deliveries.
    Settled(Each<Ended>),
    /// What an entity takes, of which a sender is told before it is attached.
    Described(Box<Attaching>),
    /// What a request at a management node has asked.
    Managed(Box<Managing>),
    /// What is asked beside the connection for a request at a management node.
    Apart(Asker),
    /// Whether an operation would be carried out, for a transaction.
    Joined(Box<Joining>),
    /// What there is to see for a browser, by its number.
    Seen { number: u32 },
    /// That a transaction is carried out.
    Committed(Box<Committed>),
}

/// What is remembered of what links are asked, by its id.
pub(super) enum Asked {
    /// To be attached.
    Attach(LinkId),
    /// To give back credit.
    Drain(LinkId),
    /// To be detached.
    Detach(LinkId),
}

/// What is known of a link whose entity is asked before it is answered.
pub(super) struct Attaching {
    pub(super) link: LinkId,
    pub(super) entity: Entity,
    pub(super) answer: Answer,
    pub(super) kind: AttachKind,
}

/// The kind of node that a link is attached to, with the values that it needs.
pub(super) enum AttachKind {
    /// The client sends, perhaps by way of the entity to another (AMQP-96).
    Inlet { destination: Option<Arc<str>> },
    /// The client asks something of the entity, with contents as large as that takes (SCH-01, SES-26).
    Requests,
    /// The client receives.
    Outlet { name: Box<str>, mode: ReceiveMode },
    /// The client receives from a session.
    Session { name: Box<str>, mode: ReceiveMode, wanted: Wanted },
}

/// Deliveries on one link that have arrived whole.
pub(super) struct Inbound {
    pub(super) link: LinkId,
    pub(super) number: u32,
    pub(super) transaction: Option<TransactionId>,
    /// Each to be answered; none if it was settled.
    pub(super) deliveries: Vec<Option<ReceivedId>>,
    pub(super) messages: Messages,
    pub(super) bytes: u64,
}

/// The messages of deliveries.
pub(super) enum Messages {
    /// One in each delivery.
    Each(Vec<Content>),
    /// Those of one delivery: all or none.
    Batch(Vec<Content>),
}

impl Inbound {
    /// How many messages they are, and of how many bytes.
    pub(super) fn cost(&self) -> (u64, u64) {
        let (Messages::Each(contents) | Messages::Batch(contents)) = &self.messages;
        ((contents.len() as u64).max(1), self.bytes)
    }

    /// Whether they came on this link.
    pub(super) fn is_of(&self, link: LinkId) -> bool {
        self.link == link
    }

    /// Adds one of the same link behind them.
    pub(super) fn push(&mut self, delivery: Option<ReceivedId>, content: Content) {
        self.bytes = self.bytes.saturating_add(content.as_bytes().len() as u64);
        self.deliveries.push(delivery);
        let (Messages::Each(contents) | Messages::Batch(contents)) = &mut self.messages;
        contents.push(content);
    }
}

/// A delivery that the client was sent under a lock and has not settled, whether its link is there or not
/// (AMQP-39).
pub(super) struct Sent {
    pub(super) id: SentId,
    /// The number of its link.
    pub(super) number: u32,
    pub(super) entity: Entity,
    /// Whether it is locked with its session.
    pub(super) of_session: bool,
    /// When its lock ends, unless it was renewed.
    pub(super) until: Timestamp,
    /// When the message expires.
    pub(super) expires_at: Option<Timestamp>,
}

/// What is to become of a delivery.
pub(super) struct Settling {
    pub(super) token: LockToken,
    pub(super) sent: Sent,
    /// In which it was sent.
    pub(super) session: SessionId,
    pub(super) settlement: Settlement,
    /// Of which it is to be a part.
    pub(super) transaction: Option<TransactionId>,
    /// What the client is answered, if it has not forgotten the delivery.
    pub(super) answer: Option<(SentId, Outcome)>,
}

impl Settling {
    /// Whether its delivery was sent on the link of this number.
    pub(super) const fn is_of(&self, number: u32) -> bool {
        self.sent.number == number
    }

    /// The bytes of the properties that it sets.
    pub(super) fn bytes(&self) -> u64 {
        self.settlement.bytes()
    }
}

/// A delivery that is being settled.
pub(super) struct Ended {
    pub(super) token: LockToken,
    pub(super) kind: OutcomeKind,
    /// What the client is answered, if it has not forgotten the delivery.
    pub(super) answer: Option<(SentId, DeliveryState)>,
    /// The delivery, unless its client has settled it for good: it stays if this is refused and its lock stays.
    pub(super) sent: Option<Sent>,
}

/// An operation that is to become part of a transaction.
pub(super) struct Joining {
    pub(super) id: TransactionId,
    pub(super) issued: Issued,
    pub(super) of: PartKind,
}

/// What it is.
pub(super) enum PartKind {
    /// Messages; their delivery is answered unless it was sent settled.
    Sent(Option<ReceivedId>),
    /// What becomes of a delivery, and the answer to that, unless it is forgotten.
    Settled { token: LockToken, sent: Sent, answer: Option<(SentId, Outcome)> },
}

/// A commit on its way.
pub(super) struct Committed {
    pub(super) delivery: ReceivedId,
    /// Locks that it settles or renews, by part.
    pub(super) locks: Vec<Option<LockToken>>,
    pub(super) forgotten: Vec<Forgotten>,
    pub(super) _room: Vec<Permit>,
}

/// Whom a request is answered, and under which name.
pub(super) struct Asker {
    pub(super) to: LinkId,
    pub(super) message_id: Option<Raw>,
    /// Until when it waits for the answer; as long as it takes, if it does not say.
    pub(super) until: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_answered_once_and_the_last_one_is_told() {
        let mut each = Each::new(["a", "b", "c"]);
        assert_eq!(each.answered(1), Some(("b", false)));
        assert_eq!(each.answered(1), None);
        assert_eq!(each.answered(3), None);
        assert_eq!(each.answered(2), Some(("c", false)));
        assert_eq!(each.answered(0), Some(("a", true)));
    }
}
