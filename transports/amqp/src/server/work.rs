//! The work of a connection: requests of the client on their way from an event to an answer.
//!
//! [`UnpaidWork`] waits for a permit. [`PendingAnswer`] and [`LinkRequest`] are kept until an
//! entity or a link answers.

use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::admission::Permit;
use peeklock_core::command::{ReceiveMode, Settlement};
use peeklock_core::ids::LockToken;
use peeklock_core::message::Content;
use peeklock_core::time::Timestamp;
use peeklock_core::transaction::{PendingPart, TransactionId};
use peeklock_link::RunningWork;

use super::book::{ClientSettled, CommitRequest};
use super::node::{CommandPlan, ManagementResult, PendingManagement};
use super::outcomes::OutcomeKind;
use super::queue_session::SessionRequest;
use crate::codec::value::Raw;
use crate::connection::{LinkId, ReceivedId, SentId, SessionId};
use crate::link::Answer;
use crate::state::{DeliveryState, Outcome};

/// Link number for answers that are independent of the order of deliveries. Deliveries may wait for
/// room that the client makes only after such an answer.
pub(super) const ANSWERS: u32 = u32::MAX - 1;

/// Data of a request for the answers to its commands, by the position of the command.
pub(super) struct AwaitedAnswers<T> {
    places: Vec<Option<T>>,
    left: usize,
}

impl<T> AwaitedAnswers<T> {
    pub(super) fn new(each: impl IntoIterator<Item = T>) -> Self {
        let places: Vec<Option<T>> = each.into_iter().map(Some).collect();
        Self { left: places.len(), places }
    }

    /// Takes the data for an answer, once, and returns whether it was the last.
    pub(super) fn answered(&mut self, place: usize) -> Option<(T, bool)> {
        let answered = self.places.get_mut(place)?.take()?;
        self.left -= 1;
        Some((answered, self.left == 0))
    }
}

/// Work that needs a permit.
pub(super) enum UnpaidWork {
    /// Hands deliveries of the client to their entity.
    Send(Inbound),
    /// Settles deliveries of a link at their entity.
    Settle(Vec<SettlementRequest>),
    /// Opens a link at its entity.
    Attach(Box<PendingAttach>),
    /// Commits a transaction.
    Commit(CommitRequest),
    /// Carries out a request to a management node.
    Request(Box<CommandPlan>),
    /// Carries out a request to a management node in the background.
    RequestInBackground(ReplyAddress, RunningWork<ManagementResult>),
}

impl UnpaidWork {
    /// Number of commands, and their bytes.
    pub(super) fn cost(&self) -> (u64, u64) {
        match self {
            Self::Send(inbound) => inbound.cost(),
            Self::Settle(list) => {
                (list.len() as u64, list.iter().map(SettlementRequest::bytes).sum())
            }
            Self::Attach(_) | Self::Commit(_) | Self::RequestInBackground(..) => (1, 0),
            Self::Request(plan) => plan.cost(),
        }
    }
}

/// Data that is kept until an entity answers.
pub(super) enum PendingAnswer {
    /// Deliveries of the client.
    Sent {
        /// Number of their link.
        number: u32,
        /// Deliveries to be answered; `None` for a delivery that was sent settled.
        deliveries: AwaitedAnswers<Option<ReceivedId>>,
        /// Whether it occupies the slot for large messages.
        is_large: bool,
    },
    /// Settlements.
    Settled(AwaitedAnswers<PendingSettlement>),
    /// The description of an entity, which a sender needs before it is attached.
    Described(Box<PendingAttach>),
    /// A request to a management node.
    Managed(Box<PendingManagement>),
    /// Background work for a request to a management node.
    InBackground(ReplyAddress),
    /// The check whether an entity would carry out an operation of a transaction.
    Joined(Box<TransactionPart>),
    /// A peek of a browser.
    Seen { number: u32 },
    /// The commit of a transaction.
    Committed(Box<TransactionCommit>),
}

/// Requests to links, by id.
pub(super) enum LinkRequest {
    /// Attaches the link.
    Attach(LinkId),
    /// Returns the credit of the link.
    Drain(LinkId),
    /// Detaches the link.
    Detach(LinkId),
}

/// A link whose entity must answer before the client gets an answer.
pub(super) struct PendingAttach {
    pub(super) link: LinkId,
    pub(super) entity: Entity,
    pub(super) answer: Answer,
    pub(super) kind: AttachKind,
}

/// Kind of node that a link is attached to, with the values that it needs.
pub(super) enum AttachKind {
    /// The client sends, either to the entity or through it to another (AMQP-96).
    Sender { destination: Option<Arc<str>> },
    /// The client sends requests about the entity, with contents up to the entity's size limit
    /// (SCH-01, SES-26).
    Requests,
    /// The client receives.
    Receiver { name: Box<str>, mode: ReceiveMode },
    /// The client receives from a session.
    Session { name: Box<str>, mode: ReceiveMode, wanted: SessionRequest },
}

/// Complete deliveries on one link.
pub(super) struct Inbound {
    pub(super) link: LinkId,
    pub(super) number: u32,
    pub(super) transaction: Option<TransactionId>,
    /// Deliveries to be answered; `None` for a delivery that was sent settled.
    pub(super) deliveries: Vec<Option<ReceivedId>>,
    pub(super) messages: Messages,
    pub(super) bytes: u64,
}

/// Messages of deliveries.
pub(super) enum Messages {
    /// One message in each delivery.
    Each(Vec<Content>),
    /// The messages of a single delivery: all are stored, or none.
    Batch(Vec<Content>),
}

impl Inbound {
    /// Number of messages, and their bytes.
    pub(super) fn cost(&self) -> (u64, u64) {
        let (Messages::Each(contents) | Messages::Batch(contents)) = &self.messages;
        ((contents.len() as u64).max(1), self.bytes)
    }

    /// Returns whether they arrived on this link.
    pub(super) fn is_of(&self, link: LinkId) -> bool {
        self.link == link
    }

    /// Adds another delivery of the same link.
    pub(super) fn push(&mut self, delivery: Option<ReceivedId>, content: Content) {
        self.bytes = self.bytes.saturating_add(content.as_bytes().len() as u64);
        self.deliveries.push(delivery);
        let (Messages::Each(contents) | Messages::Batch(contents)) = &mut self.messages;
        contents.push(content);
    }
}

/// A locked delivery to the client that is not settled, even if its link is detached (AMQP-39).
pub(super) struct LockedDelivery {
    pub(super) id: SentId,
    /// Number of its link.
    pub(super) number: u32,
    pub(super) entity: Entity,
    /// Whether it is locked with its session.
    pub(super) of_session: bool,
    /// End of its lock, unless the lock was renewed.
    pub(super) until: Timestamp,
    /// Expiry of the message.
    pub(super) expires_at: Option<Timestamp>,
}

/// A settlement of a delivery by the client.
pub(super) struct SettlementRequest {
    pub(super) token: LockToken,
    pub(super) sent: LockedDelivery,
    /// Session in which it was sent.
    pub(super) session: SessionId,
    pub(super) settlement: Settlement,
    /// Transaction of the settlement.
    pub(super) transaction: Option<TransactionId>,
    /// Answer to the client, unless it has settled the delivery.
    pub(super) answer: Option<(SentId, Outcome)>,
}

impl SettlementRequest {
    /// Whether its delivery was sent on the link of this number.
    pub(super) const fn is_of(&self, number: u32) -> bool {
        self.sent.number == number
    }

    /// Bytes of the properties that the settlement sets.
    pub(super) fn bytes(&self) -> u64 {
        self.settlement.bytes()
    }
}

/// A settlement in progress.
pub(super) struct PendingSettlement {
    pub(super) token: LockToken,
    pub(super) kind: OutcomeKind,
    /// Answer to the client, unless it has settled the delivery.
    pub(super) answer: Option<(SentId, DeliveryState)>,
    /// The delivery, unless the client has settled it. It stays if the settlement is refused and
    /// the lock remains.
    pub(super) sent: Option<LockedDelivery>,
}

/// An operation that is about to join a transaction.
pub(super) struct TransactionPart {
    pub(super) id: TransactionId,
    pub(super) issued: PendingPart,
    pub(super) of: PartKind,
}

/// Kind of the operation.
pub(super) enum PartKind {
    /// A send; its delivery is answered unless it was sent settled.
    Sent(Option<ReceivedId>),
    /// A settlement, with its answer unless the client has settled the delivery.
    Settled { token: LockToken, sent: LockedDelivery, answer: Option<(SentId, Outcome)> },
}

/// A commit in progress.
pub(super) struct TransactionCommit {
    pub(super) delivery: ReceivedId,
    /// Locks that it settles or renews, by part.
    pub(super) locks: Vec<Option<LockToken>>,
    pub(super) client_settled: Vec<ClientSettled>,
    pub(super) _room: Vec<Permit>,
}

/// The link and the message id to which a request is answered.
pub(super) struct ReplyAddress {
    pub(super) to: LinkId,
    pub(super) message_id: Option<Raw>,
    /// End of the client's wait for the answer; `None` without a limit.
    pub(super) until: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_counts_once_and_the_last_is_marked() {
        let mut each = AwaitedAnswers::new(["a", "b", "c"]);
        assert_eq!(each.answered(1), Some(("b", false)));
        assert_eq!(each.answered(1), None);
        assert_eq!(each.answered(3), None);
        assert_eq!(each.answered(2), Some(("c", false)));
        assert_eq!(each.answered(0), Some(("a", true)));
    }
}
