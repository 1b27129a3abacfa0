//! A queue or topic to which a client sends (AMQP-40 to AMQP-46): parts of messages in, commands to
//! the entity out, and the credit of the sender.

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
use crate::connection::{Continuation, LinkId, MessagePart, ReceivedId};
use crate::error::{AmqpError, condition};
use crate::link::Assembly;
use crate::message::{BATCH_COUNT_MAX, BATCH_FORMAT, BatchError, unpack};
use crate::server::book::TransactionBook;
use crate::server::conversation::Conversation;
use crate::server::work::{AwaitedAnswers, Inbound, Messages, PartKind, PendingAnswer, UnpaidWork};
use crate::state::DeliveryState;

/// A link on which a client sends.
pub(in crate::server) struct SenderNode {
    pub(in crate::server) number: u32,
    pub(in crate::server) assembly: Assembly,
    credit: Credit,
    /// Transaction of the incomplete delivery.
    transaction: Option<TransactionId>,
    /// Whether a message that was sent settled was lost.
    has_dropped: bool,
}

/// A complete delivery.
struct CompleteDelivery {
    delivery: Option<ReceivedId>,
    transaction: Option<TransactionId>,
    messages: DeliveryContent,
}

/// Content of a delivery.
enum DeliveryContent {
    One(Content),
    /// All are stored, or none.
    Batch(Vec<Content>),
}

impl SenderNode {
    /// Makes an unused node, and returns the first credit of the client.
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

    /// Returns whether the message of this part is a single one outside a transaction.
    pub(in crate::server) const fn takes_alone(&self, part: &MessagePart) -> bool {
        part.message_format == 0 && part.state.is_none() && self.transaction.is_none()
    }
}

impl Conversation {
    /// Handles a part of a message or request.
    pub(in crate::server) async fn received(&mut self, link: LinkId, part: MessagePart) {
        let assembly = match self.nodes.get_mut(&link) {
            Some(Node::Sender(sender)) => &mut sender.assembly,
            Some(Node::Requests(requests)) => &mut requests.assembly,
            Some(Node::Coordinator(assembly)) => assembly,
            Some(Node::Receiver(_) | Node::Browser(_) | Node::Replies(_)) | None => return,
        };
        let before = assembly.len() as u64;
        if matches!(part.continuation, Continuation::Void | Continuation::TooLarge(_)) {
            *assembly = Assembly::default();
            self.inflow.assembled_bytes -= before;
            if let Some(id) = self.transaction_of(link, part.state, true) {
                self.mark_for_rollback(id);
            }
            if let Continuation::TooLarge(bytes) = part.continuation {
                self.record_received(link, bytes);
                let is_message = matches!(self.nodes.get(&link), Some(Node::Sender(_)));
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
        let is_whole = part.continuation == Continuation::Whole;
        let whole = is_whole.then(|| std::mem::take(assembly).join());
        let transaction = self.transaction_of(link, part.state, is_whole);
        let Some(whole) = whole else {
            self.inflow.assembled_bytes += bytes;
            return;
        };
        self.inflow.assembled_bytes -= before;
        self.record_received(link, before.saturating_add(bytes));
        let delivery = (!part.settled).then_some(part.delivery);
        match self.nodes.get_mut(&link) {
            Some(Node::Sender(sender)) => {
                let number = sender.number;
                match self.parse_delivery(link, part.message_format, whole) {
                    Ok(messages) => {
                        let arrived = CompleteDelivery { delivery, transaction, messages };
                        self.gather(link, number, arrived).await;
                    }
                    Err(error) => {
                        if let Some(id) = transaction {
                            self.mark_for_rollback(id);
                        }
                        self.reject(Some(link), delivery, error);
                    }
                }
            }
            Some(Node::Requests(_)) => {
                self.handle_request(link, delivery, transaction, whole).await
            }
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

    /// Hands a message over, grouped with the following ones. A batch and a message in a
    /// transaction go alone.
    async fn gather(&mut self, link: LinkId, number: u32, arrived: CompleteDelivery) {
        let CompleteDelivery { delivery, transaction, messages } = arrived;
        let is_alone = transaction.is_some() || matches!(messages, DeliveryContent::Batch(_));
        let messages = match (&mut self.grouped_work, messages) {
            (Some(UnpaidWork::Send(gathered)), DeliveryContent::One(content)) => {
                return gathered.push(delivery, content);
            }
            (_, DeliveryContent::One(content)) => Messages::Each(vec![content]),
            (_, DeliveryContent::Batch(contents)) => Messages::Batch(contents),
        };
        let (Messages::Each(contents) | Messages::Batch(contents)) = &messages;
        let bytes = contents.iter().map(|content| content.as_bytes().len() as u64).sum();
        let deliveries = vec![delivery];
        let inbound = Inbound { link, number, transaction, deliveries, messages, bytes };
        match is_alone {
            true => self.when_permitted(UnpaidWork::Send(inbound)).await,
            false => self.grouped_work = Some(UnpaidWork::Send(inbound)),
        }
    }

    /// Returns the transaction of a delivery, which any of its frames may name. The last frame
    /// clears it for the next delivery.
    fn transaction_of(
        &mut self,
        link: LinkId,
        state: Option<DeliveryState>,
        is_last: bool,
    ) -> Option<TransactionId> {
        let named = match state {
            Some(DeliveryState::Transactional(state)) => Some(TransactionBook::id(&state.txn_id)),
            _ => None,
        };
        let kept = match self.nodes.get_mut(&link) {
            Some(Node::Sender(sender)) => &mut sender.transaction,
            Some(Node::Requests(requests)) => &mut requests.transaction,
            _ => return named,
        };
        let transaction = named.or(*kept);
        *kept = transaction.filter(|_| !is_last);
        transaction
    }

    /// Rejects a delivery. The sender of a settled delivery gets no answer (SND-18).
    fn reject(&mut self, link: Option<LinkId>, delivery: Option<ReceivedId>, error: AmqpError) {
        if let Some(delivery) = delivery {
            return self.amqp.dispose_received(delivery, DeliveryState::rejected(error));
        }
        telemetry::count_dropped();
        let said = match link.and_then(|link| self.nodes.get_mut(&link)) {
            Some(Node::Sender(sender)) => std::mem::replace(&mut sender.has_dropped, true),
            _ => false,
        };
        // A warning for the first lost message of a link only, since a million may follow.
        match said {
            false => tracing::warn!(%error, "a message that was sent settled could not be stored"),
            true => tracing::debug!(%error, "a message that was sent settled could not be stored"),
        }
    }

    /// Rejects a message. A request that was sent settled cannot be rejected, so its link is
    /// detached (AMQP 2.7.3).
    fn reject_or_detach(&mut self, link: LinkId, delivery: Option<ReceivedId>, error: AmqpError) {
        let asks = matches!(self.nodes.get(&link), Some(Node::Requests(_) | Node::Coordinator(_)));
        if delivery.is_some() || !asks {
            return self.reject(Some(link), delivery, error);
        }
        self.amqp.detach(link, Some(error));
        self.detach(link);
    }

    /// Returns the path of a link's entity; empty if the link has none.
    fn path_of(&self, link: LinkId) -> Box<str> {
        let at = match self.nodes.get(&link) {
            Some(Node::Sender(sender)) => self.engine.links.get(sender.number),
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

    /// Records the size of a received message, which determines the credit.
    fn record_received(&mut self, link: LinkId, bytes: u64) {
        if let Some(Node::Sender(sender)) = self.nodes.get_mut(&link) {
            sender.credit.record_received(bytes);
        }
    }

    /// Grants new credit when half of the last grant is used up (AMQP-40).
    fn top_up(&mut self, link: LinkId) {
        let left = self.amqp.credit(link);
        let grant = match self.nodes.get_mut(&link) {
            Some(Node::Sender(sender)) => {
                let room_bytes = self.engine.broker.settings().limits.connection_inbound_bytes_max;
                sender.credit.next_grant(left, room_bytes)
            }
            Some(Node::Requests(_) | Node::Coordinator(_)) => {
                (left <= REQUEST_CREDIT / 2).then_some(REQUEST_CREDIT)
            }
            _ => return,
        };
        if let Some(credit) = grant {
            self.amqp.grant(link, credit);
        }
    }

    fn parse_delivery(
        &self,
        link: LinkId,
        message_format: u32,
        whole: Bytes,
    ) -> Result<DeliveryContent, AmqpError> {
        let refused =
            |condition, text: String| Err(self.refuse_as(condition, text, &self.path_of(link)));
        match message_format {
            0 => match Content::from_sender(whole) {
                Ok(content) => Ok(DeliveryContent::One(content)),
                Err(error) => refused(condition::DECODE_ERROR, error.to_string()),
            },
            BATCH_FORMAT => {
                unpack(whole, BATCH_COUNT_MAX).map(DeliveryContent::Batch).or_else(|error| {
                    let condition = match error {
                        BatchError::TooMany(_) => condition::MESSAGE_SIZE_EXCEEDED,
                        BatchError::Envelope(_) | BatchError::Message(..) => {
                            condition::DECODE_ERROR
                        }
                    };
                    refused(condition, error.to_string())
                })
            }
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
            // The link is detached, and the client got no acceptance.
            if let Some(id) = transaction {
                self.mark_for_rollback(id);
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
                contents.into_iter().map(|content| at.send_command(take(content))).collect()
            }
            Messages::Batch(contents) => {
                vec![at.batch_command(contents.into_iter().map(take).collect())]
            }
        };
        if let Some(id) = transaction {
            // A message in a transaction is never grouped.
            let (entity, session) = (at.entity.clone(), link.session());
            let of = PartKind::Sent(deliveries.into_iter().next().flatten());
            let Some(command) = commands.pop() else { return };
            return self.join(id, session, &entity, command, of, permit).await;
        }
        self.inflow.large_count += usize::from(is_large);
        let expect =
            PendingAnswer::Sent { number, deliveries: AwaitedAnswers::new(deliveries), is_large };
        let slot = self.engine.links.add_request(number, 0, Some(Arc::new(permit)), expect);
        let mut ticket = self.engine.links.tickets(commands.len() as u64);
        for (index, command) in commands.into_iter().enumerate() {
            self.engine.links.submit_as(number, ticket, command, correlation(slot, index));
            ticket = Ticket(ticket.0 + 1);
        }
    }

    /// Answers a delivery that is durably stored or was refused (AMQP-41). If the entity was
    /// deleted, the link is detached too: clients attach it again, possibly to a new entity of the
    /// same name (AMQP-79).
    pub(in crate::server) fn answer_delivery(
        &mut self,
        number: u32,
        delivery: Option<ReceivedId>,
        path: &str,
        result: Result<(), Rejection>,
    ) {
        match (delivery, result) {
            (Some(delivery), Ok(())) => {
                self.amqp.dispose_received(delivery, DeliveryState::accepted())
            }
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

/// Maximum credit of a sender.
const CREDIT_MAX: u32 = 1_000;

/// The credit of a sender (AMQP-40): the number of messages for which the connection has room,
/// assuming that the next messages are as large as the last ones. Credit is never reduced: some
/// clients subtract without a sign and would have about four billion instead. A client that sends
/// more is held up by its socket.
struct Credit {
    granted: u32,
    /// Size of the largest message since the last grant, and between the last two grants. So a
    /// single large message is soon forgotten.
    largest_bytes: u64,
    before_bytes: u64,
}

impl Credit {
    /// Makes the first grant, which assumes messages of the maximum size of the link.
    fn first(room_bytes: u64, message_bytes_max: u64) -> (Self, u32) {
        let granted = credit(room_bytes, message_bytes_max);
        (Self { granted, largest_bytes: 0, before_bytes: 0 }, granted)
    }

    /// Records the size of a received message.
    fn record_received(&mut self, bytes: u64) {
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    /// Returns the next grant when half of the last one is used up.
    fn next_grant(&mut self, left: u32, room_bytes: u64) -> Option<u32> {
        if left > self.granted / 2 {
            return None;
        }
        let largest_bytes = self.largest_bytes.max(self.before_bytes);
        self.before_bytes = std::mem::take(&mut self.largest_bytes);
        self.granted = credit(room_bytes, largest_bytes).max(left);
        Some(self.granted)
    }
}

/// Returns at least 1, for messages of any size.
fn credit(room_bytes: u64, message_bytes: u64) -> u32 {
    let count = room_bytes / message_bytes.max(1);
    u32::try_from(count).unwrap_or(CREDIT_MAX).clamp(1, CREDIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 16 << 20;

    /// AMQP-40: the grant is the number of messages for which there is room. Small messages get the
    /// maximum, and a large message counts until the grant after the next.
    #[test]
    fn credit_follows_room_and_message_size() {
        let (mut credit, first) = Credit::first(ROOM, 256 << 10);
        assert_eq!(first, 64);
        credit.record_received(100);
        assert_eq!(credit.next_grant(33, ROOM), None);
        assert_eq!(credit.next_grant(32, ROOM), Some(CREDIT_MAX));
        credit.record_received(1 << 20);
        credit.record_received(100);
        assert_eq!(credit.next_grant(500, ROOM), Some(500), "what was granted is not taken back");
        assert_eq!(credit.next_grant(10, ROOM), Some(16));
        assert_eq!(credit.next_grant(8, ROOM), Some(CREDIT_MAX));
        credit.record_received(ROOM + 1);
        assert_eq!(credit.next_grant(0, ROOM), Some(1));
        assert_eq!(credit.next_grant(1, ROOM), None);
    }

    /// AMQP-40: every sender has credit for at least one message.
    #[test]
    fn there_is_always_credit_for_one() {
        assert_eq!(Credit::first(1, u64::MAX).1, 1);
        assert_eq!(Credit::first(0, 0).1, 1);
    }
}
