//! A queue or topic to which a client sends (AMQP-40 to AMQP-46).

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::admission::{Account, Permit};
use peeklock_core::command::{Command, InboundMessage};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::Ticket;
use peeklock_core::message::Content;
use peeklock_core::telemetry;
use peeklock_core::transaction::TransactionId;
use peeklock_link::pending::correlation;

use super::{Node, REQUEST_CREDIT};
use crate::connection::{Fate, LinkId, Part, ReceivedId};
use crate::error::{AmqpError, condition};
use crate::link::Assembly;
use crate::message::{BATCH_COUNT_MAX, BATCH_FORMAT, BatchError, unpack};
use crate::server::book::Book;
use crate::server::conversation::Conversation;
use crate::server::work::{Each, Expect, Inbound, Messages, PartKind, Work};
use crate::state::DeliveryState;

/// A link on which a client sends.
pub(in crate::server) struct Inlet {
    pub(in crate::server) number: u32,
    pub(in crate::server) assembly: Assembly,
    credit: Credit,
    /// The transaction that the delivery names of which not all frames came.
    transaction: Option<TransactionId>,
    /// Whether a message was lost that was sent settled.
    has_dropped: bool,
}

/// A delivery that has arrived whole.
struct Arrived {
    delivery: Option<ReceivedId>,
    transaction: Option<TransactionId>,
    messages: Read,
}

/// What a delivery has.
enum Read {
    One(Content),
    /// All or none.
    Batch(Vec<Content>),
}

impl Inlet {
    /// One that nothing was sent to, and the credit that it is to have.
    pub(in crate::server) fn new(
        number: u32,
        room_bytes: u64,
        message_bytes_max: u64,
    ) -> (Self, u32) {
        let (credit, first) = Credit::first(room_bytes, message_bytes_max);
        let (transaction, has_dropped) = (None, false);
        let assembly = Assembly::default();
        (Self { number, assembly, credit, transaction, has_dropped }, first)
    }

    /// Whether what comes of this part is one message, and of no transaction.
    pub(in crate::server) const fn takes_alone(&self, part: &Part) -> bool {
        part.message_format == 0 && part.state.is_none() && self.transaction.is_none()
    }
}

impl Conversation {
    /// A part of what a client sends came.
    pub(in crate::server) async fn received(&mut self, link: LinkId, part: Part) {
        let assembly = match self.nodes.get_mut(&link) {
            Some(Node::Inlet(inlet)) => &mut inlet.assembly,
            Some(Node::Requests(requests)) => &mut requests.assembly,
            Some(Node::Coordinator(assembly)) => assembly,
            Some(Node::Outlet(_) | Node::Browser(_) | Node::Replies(_)) | None => return,
        };
        let before = assembly.len() as u64;
        if matches!(part.fate, Fate::Void | Fate::TooLarge(_)) {
            *assembly = Assembly::default();
            self.inflow.assembled_bytes -= before;
            if let Some(id) = self.transaction_of(link, part.state, true) {
                self.doom(id);
            }
            if let Fate::TooLarge(bytes) = part.fate {
                self.came(link, bytes);
                let is_message = matches!(self.nodes.get(&link), Some(Node::Inlet(_)));
                let rejection = Rejection::message_size_exceeded(
                    if is_message { "message" } else { "request" },
                    bytes,
                    self.amqp.message_bytes_max(link),
                );
                let error = self.refuse(rejection, &self.path_of(link));
                self.reject_or_detach(link, (!part.settled).then_some(part.delivery), error);
            }
            return self.top_up(link);
        }
        let bytes = part.payload.len() as u64;
        assembly.push(part.payload);
        let is_whole = part.fate == Fate::Whole;
        let whole = is_whole.then(|| std::mem::take(assembly).join());
        let transaction = self.transaction_of(link, part.state, is_whole);
        let Some(whole) = whole else {
            self.inflow.assembled_bytes += bytes;
            return;
        };
        self.inflow.assembled_bytes -= before;
        self.came(link, before.saturating_add(bytes));
        let delivery = (!part.settled).then_some(part.delivery);
        match self.nodes.get_mut(&link) {
            Some(Node::Inlet(inlet)) => {
                let number = inlet.number;
                match self.read(link, part.message_format, whole) {
                    Ok(messages) => {
                        let arrived = Arrived { delivery, transaction, messages };
                        self.gather(link, number, arrived).await;
                    }
                    Err(error) => {
                        if let Some(id) = transaction {
                            self.doom(id);
                        }
                        self.reject(Some(link), delivery, error);
                    }
                }
            }
            Some(Node::Requests(_)) => self.requested(link, delivery, transaction, whole).await,
            Some(Node::Coordinator(_)) => {
                let body = Content::parse(whole)
                    .map(|content| content.as_bytes().slice_ref(content.sections().body));
                match body {
                    Ok(body) => self.coordinate(link, delivery, &body).await,
                    Err(error) => self.reject_or_detach(link, delivery, error.into()),
                }
            }
            _ => {}
        }
        self.top_up(link);
    }

    /// Hands a message over with those that come behind it; what is all or none, and what is of a transaction, goes
    /// alone.
    async fn gather(&mut self, link: LinkId, number: u32, arrived: Arrived) {
        let Arrived { delivery, transaction, messages } = arrived;
        let is_alone = transaction.is_some() || matches!(messages, Read::Batch(_));
        let messages = match (&mut self.gathered, messages) {
            (Some(Work::Send(gathered)), Read::One(content)) => {
                return gathered.push(delivery, content);
            }
            (_, Read::One(content)) => Messages::Each(vec![content]),
            (_, Read::Batch(contents)) => Messages::Batch(contents),
        };
        let (Messages::Each(contents) | Messages::Batch(contents)) = &messages;
        let bytes = contents.iter().map(|content| content.as_bytes().len() as u64).sum();
        let deliveries = vec![delivery];
        let inbound = Inbound { link, number, transaction, deliveries, messages, bytes };
        match is_alone {
            true => self.when_room(Work::Send(inbound)).await,
            false => self.gathered = Some(Work::Send(inbound)),
        }
    }

    /// The transaction that a delivery names, by any of its frames; none of it is kept for the next one.
    fn transaction_of(
        &mut self,
        link: LinkId,
        state: Option<DeliveryState>,
        is_last: bool,
    ) -> Option<TransactionId> {
        let named = match state {
            Some(DeliveryState::Transactional(state)) => Some(Book::id(&state.txn_id)),
            _ => None,
        };
        let kept = match self.nodes.get_mut(&link) {
            Some(Node::Inlet(inlet)) => &mut inlet.transaction,
            Some(Node::Requests(requests)) => &mut requests.transaction,
            _ => return named,
        };
        let transaction = named.or(*kept);
        *kept = transaction.filter(|_| !is_last);
        transaction
    }

    /// Tells that a delivery is not taken; of one that was settled its sender is told nothing (SND-18).
    fn reject(&mut self, link: Option<LinkId>, delivery: Option<ReceivedId>, error: AmqpError) {
        if let Some(delivery) = delivery {
            return self.amqp.dispose(delivery, DeliveryState::rejected(error));
        }
        telemetry::count_dropped();
        let said = match link.and_then(|link| self.nodes.get_mut(&link)) {
            Some(Node::Inlet(inlet)) => std::mem::replace(&mut inlet.has_dropped, true),
            _ => false,
        };
        // An operator is told of the first of a link: who loses one may lose a million.
        match said {
            false => tracing::warn!(%error, "a message that was sent settled could not be stored"),
            true => tracing::debug!(%error, "a message that was sent settled could not be stored"),
        }
    }

    /// The same of what awaits an answer of another kind, which nobody would hear of who has sent it settled: its link
    /// ends (AMQP 2.7.3).
    fn reject_or_detach(&mut self, link: LinkId, delivery: Option<ReceivedId>, error: AmqpError) {
        let asks = matches!(self.nodes.get(&link), Some(Node::Requests(_) | Node::Coordinator(_)));
        if delivery.is_some() || !asks {
            return self.reject(Some(link), delivery, error);
        }
        self.amqp.detach(link, Some(error));
        self.detach(link);
    }

    /// The path of the entity of a link; empty for one of none.
    fn path_of(&self, link: LinkId) -> Box<str> {
        let at = match self.nodes.get(&link) {
            Some(Node::Inlet(inlet)) => self.engine.links.get(inlet.number),
            Some(Node::Requests(requests)) => {
                return requests
                    .manager()
                    .map(|manager| (*manager.path).into())
                    .unwrap_or_default();
            }
            _ => None,
        };
        at.map(|at| at.entity.path().into()).unwrap_or_default()
    }

    /// So large was what came on a link: its credit goes by that.
    fn came(&mut self, link: LinkId, bytes: u64) {
        if let Some(Node::Inlet(inlet)) = self.nodes.get_mut(&link) {
            inlet.credit.came(bytes);
        }
    }

    /// Grants credit anew when half of it is used up (AMQP-40).
    fn top_up(&mut self, link: LinkId) {
        let left = self.amqp.credit(link);
        let anew = match self.nodes.get_mut(&link) {
            Some(Node::Inlet(inlet)) => {
                let room_bytes = self.engine.broker.settings().limits.connection_inbound_bytes_max;
                inlet.credit.anew(left, room_bytes)
            }
            Some(Node::Requests(_) | Node::Coordinator(_)) => {
                (left <= REQUEST_CREDIT / 2).then_some(REQUEST_CREDIT)
            }
            _ => return,
        };
        if let Some(credit) = anew {
            self.amqp.grant(link, credit);
        }
    }

    fn read(&self, link: LinkId, message_format: u32, whole: Bytes) -> Result<Read, AmqpError> {
        let refused =
            |condition, text: String| Err(self.refuse_as(condition, text, &self.path_of(link)));
        match message_format {
            0 => match Content::from_sender(whole) {
                Ok(content) => Ok(Read::One(content)),
                Err(error) => refused(condition::DECODE_ERROR, error.to_string()),
            },
            BATCH_FORMAT => unpack(whole, BATCH_COUNT_MAX).map(Read::Batch).or_else(|error| {
                let condition = match error {
                    BatchError::TooMany(_) => condition::MESSAGE_SIZE_EXCEEDED,
                    BatchError::Envelope(_) | BatchError::Message(..) => condition::DECODE_ERROR,
                };
                refused(condition, error.to_string())
            }),
            other => {
                let text = format!("message-format 0x{other:x} is not supported");
                refused(condition::NOT_IMPLEMENTED, text)
            }
        }
    }

    /// Hands deliveries to their entity; each is answered when it is stored.
    pub(in crate::server) async fn send(&mut self, inbound: Inbound, permit: Permit) {
        let is_large = inbound.bytes > Account::LARGE_BYTES;
        let Inbound { link, number, transaction, deliveries, messages, .. } = inbound;
        let Some(at) = self.engine.links.get(number).filter(|_| self.nodes.contains_key(&link))
        else {
            // Its link is gone, and nobody was promised anything.
            if let Some(id) = transaction {
                self.doom(id);
            }
            for delivery in deliveries {
                let error =
                    AmqpError::new(condition::DETACH_FORCED, "the link has ended meanwhile");
                self.reject(Some(link), delivery, error);
            }
            return;
        };
        let take = |content| -> InboundMessage { self.engine.broker.inbound_content(content) };
        let mut commands: Vec<Command> = match messages {
            Messages::Each(contents) => {
                contents.into_iter().map(|content| at.send(take(content))).collect()
            }
            Messages::Batch(contents) => {
                vec![at.send_batch(contents.into_iter().map(take).collect())]
            }
        };
        if let Some(id) = transaction {
            // It goes alone.
            let (entity, session) = (at.entity.clone(), link.session());
            let of = PartKind::Sent(deliveries.into_iter().next().flatten());
            let Some(command) = commands.pop() else { return };
            return self.join(id, session, &entity, command, of, permit).await;
        }
        self.inflow.large_count += usize::from(is_large);
        let expect = Expect::Sent { number, deliveries: Each::new(deliveries), is_large };
        let slot = self.engine.links.ask(number, 0, Some(Arc::new(permit)), expect);
        let mut ticket = self.engine.links.tickets(commands.len() as u64);
        for (index, command) in commands.into_iter().enumerate() {
            self.engine.links.submit_as(number, ticket, command, correlation(slot, index));
            ticket = Ticket(ticket.0 + 1);
        }
    }

    /// What was sent is stored, durably, or refused (AMQP-41).
    /// Where the entity is gone the link ends too: clients attach it anew, to one that may have its name since (AMQP-79).
    pub(in crate::server) fn stored(
        &mut self,
        number: u32,
        delivery: Option<ReceivedId>,
        path: &str,
        result: Result<(), Rejection>,
    ) {
        match (delivery, result) {
            (Some(delivery), Ok(())) => self.amqp.dispose(delivery, DeliveryState::accepted()),
            (delivery, Err(rejection)) => {
                let error = self.refuse(rejection.clone(), path);
                self.reject(self.numbering.numbers.get(&number).copied(), delivery, error);
                if rejection.condition() == Condition::EntityNotFound {
                    self.stopped(number, path, rejection);
                }
            }
            (None, Ok(())) => {}
        }
    }
}

/// No sender has more.
const CREDIT_MAX: u32 = 1_000;

/// The credit of a sender (AMQP-40): as many messages as there is room for on its connection, if the next are as large
/// as the last were. It is never taken back: some clients subtract without a sign and would have four thousand million
/// instead. A client that sends more all the same is held up by its socket.
struct Credit {
    granted: u32,
    /// The largest message since the last grant, and of those between it and the one before: so one large message is
    /// not remembered for good.
    largest_bytes: u64,
    before_bytes: u64,
}

impl Credit {
    /// Of who has sent nothing: what comes may be as large as its link allows. The first grant comes with it.
    fn first(room_bytes: u64, message_bytes_max: u64) -> (Self, u32) {
        let granted = credit(room_bytes, message_bytes_max);
        (Self { granted, largest_bytes: 0, before_bytes: 0 }, granted)
    }

    /// A message of this size came.
    fn came(&mut self, bytes: u64) {
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    /// What is to be granted, when half of the last grant is used up.
    fn anew(&mut self, left: u32, room_bytes: u64) -> Option<u32> {
        if left > self.granted / 2 {
            return None;
        }
        let largest_bytes = self.largest_bytes.max(self.before_bytes);
        self.before_bytes = std::mem::take(&mut self.largest_bytes);
        self.granted = credit(room_bytes, largest_bytes).max(left);
        Some(self.granted)
    }
}

/// At least one, however large it is.
fn credit(room_bytes: u64, message_bytes: u64) -> u32 {
    let count = room_bytes / message_bytes.max(1);
    u32::try_from(count).unwrap_or(CREDIT_MAX).clamp(1, CREDIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 16 << 20;

    /// AMQP-40: what is granted is what there is room for; small messages have the most, and a large one is remembered
    /// until the grant after the next.
    #[test]
    fn credit_is_what_there_is_room_for() {
        let (mut credit, first) = Credit::first(ROOM, 256 << 10);
        assert_eq!(first, 64);
        credit.came(100);
        assert_eq!(credit.anew(33, ROOM), None);
        assert_eq!(credit.anew(32, ROOM), Some(CREDIT_MAX));
        credit.came(1 << 20);
        credit.came(100);
        assert_eq!(credit.anew(500, ROOM), Some(500), "what was granted is not taken back");
        assert_eq!(credit.anew(10, ROOM), Some(16));
        assert_eq!(credit.anew(8, ROOM), Some(CREDIT_MAX));
        credit.came(ROOM + 1);
        assert_eq!(credit.anew(0, ROOM), Some(1));
        assert_eq!(credit.anew(1, ROOM), None);
    }

    /// AMQP-40: whoever may send at all has credit for one.
    #[test]
    fn there_is_always_credit_for_one() {
        assert_eq!(Credit::first(1, u64::MAX).1, 1);
        assert_eq!(Credit::first(0, 0).1, 1);
    }
}
