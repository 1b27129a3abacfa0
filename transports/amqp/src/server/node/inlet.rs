//! A queue or topic to which a client sends (AMQP-40 to AMQP-46).

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::command::{Command, InboundMessage};
use peeklock_core::error::Rejection;
use peeklock_core::message::Content;
use peeklock_core::permits::Permit;
use peeklock_link::pending::correlation;

use super::Node;
use crate::connection::{Fate, LinkId, Part, ReceivedId};
use crate::error::{AmqpError, condition};
use crate::message::{Assembly, BATCH_FORMAT, BatchError, unpack};
use crate::server::attach::SENDER_CREDIT;
use crate::server::conversation::{Conversation, Expect};
use crate::state::DeliveryState;

/// A link on which a client sends.
pub(in crate::server) struct Inlet {
    pub(in crate::server) number: u32,
    pub(in crate::server) assembly: Assembly,
}

/// A delivery that has arrived whole.
pub(in crate::server) struct Inbound {
    link: LinkId,
    number: u32,
    /// To be answered; none if it was settled.
    delivery: Option<ReceivedId>,
    messages: Messages,
}

enum Messages {
    One(Content),
    /// All or none.
    Batch(Vec<Content>),
}

impl Inlet {
    pub(in crate::server) fn new(number: u32) -> Self {
        Self { number, assembly: Assembly::default() }
    }
}

impl Conversation {
    /// A part of what a client sends came.
    pub(in crate::server) async fn received(&mut self, link: LinkId, part: Part) {
        let assembly = match self.nodes.get_mut(&link) {
            Some(Node::Inlet(inlet)) => &mut inlet.assembly,
            Some(Node::Requests(requests)) => &mut requests.assembly,
            Some(Node::Outlet(_) | Node::Replies(_)) | None => return,
        };
        let before = assembly.len() as u64;
        if part.fate == Fate::Void {
            *assembly = Assembly::default();
            self.assembled_bytes -= before;
            return self.top_up(link);
        }
        let bytes = part.payload.len() as u64;
        assembly.push(part.payload);
        if part.fate == Fate::More {
            self.assembled_bytes += bytes;
            return;
        }
        self.assembled_bytes -= before;
        let whole = std::mem::take(assembly).join();
        let delivery = (!part.settled).then_some(part.delivery);
        if part.state.is_some() {
            let text = "there is no such transaction: transactions are not offered over AMQP yet";
            self.reject(delivery, AmqpError::new("amqp:transaction:unknown-id", text));
            return self.top_up(link);
        }
        match self.nodes.get(&link) {
            Some(Node::Inlet(inlet)) => {
                let number = inlet.number;
                match self.read(part.message_format, whole) {
                    Ok(messages) => self.send_soon(Inbound { link, number, delivery, messages }),
                    Err(error) => self.reject(delivery, error),
                }
            }
            Some(Node::Requests(_)) => {
                // What is asked is confirmed before anything else on the session (AMQP-32).
                if let Some(delivery) = delivery {
                    self.amqp.dispose(delivery, DeliveryState::accepted());
                }
                self.requested(link, whole).await;
            }
            _ => {}
        }
        self.top_up(link);
    }

    fn reject(&mut self, delivery: Option<ReceivedId>, error: AmqpError) {
        match delivery {
            Some(delivery) => self.amqp.dispose(delivery, DeliveryState::rejected(error)),
            None => tracing::debug!(%error, "a message that was sent settled is lost"),
        }
    }

    /// Grants credit anew when half of it is used up (AMQP-40).
    fn top_up(&mut self, link: LinkId) {
        let most = match self.nodes.get(&link) {
            Some(Node::Inlet(_)) => SENDER_CREDIT,
            Some(Node::Requests(_)) => crate::server::attach::REQUEST_CREDIT,
            _ => return,
        };
        if self.amqp.credit(link) <= most / 2 {
            self.amqp.grant(link, most);
        }
    }

    fn read(&self, message_format: u32, whole: Bytes) -> Result<Messages, AmqpError> {
        match message_format {
            0 => Content::parse(whole).map(Messages::One).map_err(AmqpError::from),
            BATCH_FORMAT => {
                let count_max = self.broker.settings().limits.connection_inbound_count_max;
                let read = unpack(whole, count_max).map(Messages::Batch);
                read.map_err(|error| match error {
                    BatchError::TooMany(_) => {
                        AmqpError::new(condition::MESSAGE_SIZE_EXCEEDED, error.to_string())
                    }
                    other => AmqpError::new(condition::DECODE_ERROR, other.to_string()),
                })
            }
            other => {
                let text = format!("message-format 0x{other:x} is not offered");
                Err(AmqpError::new(condition::NOT_IMPLEMENTED, text))
            }
        }
    }

    /// Sends what came when there is room; until then nothing more is carried out.
    fn send_soon(&mut self, inbound: Inbound) {
        let (count, bytes) = match &inbound.messages {
            Messages::One(content) => (1, content.as_bytes().len()),
            Messages::Batch(contents) => {
                (contents.len(), contents.iter().map(|content| content.as_bytes().len()).sum())
            }
        };
        let (count, bytes) = ((count as u64).max(1), bytes as u64);
        if let Some(permit) = self.budget.try_acquire_list(count, bytes) {
            return self.send(inbound, permit);
        }
        let budget = self.budget.clone();
        self.held = Some(inbound);
        self.acquiring = Some(Box::pin(async move { budget.acquire_list(count, bytes).await }));
    }

    /// Hands a delivery to its entity; it is answered when it is stored.
    pub(in crate::server) fn send(&mut self, inbound: Inbound, permit: Permit) {
        let Inbound { link, number, delivery, messages } = inbound;
        if !self.nodes.contains_key(&link) || self.links.get(number).is_none() {
            // Its link is gone, and nobody was promised anything.
            return;
        }
        let take = |content| -> InboundMessage { self.broker.inbound_content(content) };
        let command = match messages {
            Messages::One(content) => Command::Send { message: take(content) },
            Messages::Batch(contents) if contents.is_empty() => {
                // Empty batches are accepted and store nothing (AMQP-42).
                if let Some(delivery) = delivery {
                    self.amqp.dispose(delivery, DeliveryState::accepted());
                }
                return;
            }
            Messages::Batch(contents) => {
                Command::SendBatch { messages: contents.into_iter().map(take).collect() }
            }
        };
        let slot = self.links.ask(number, 0, Some(Arc::new(permit)), Expect::Sent(delivery));
        self.links.submit(number, command, correlation(slot, 0));
    }

    /// What was sent is stored, durably, or refused (AMQP-41).
    pub(in crate::server) fn stored(
        &mut self,
        number: u32,
        delivery: Option<ReceivedId>,
        path: &str,
        result: Result<(), Rejection>,
    ) {
        let _ = number;
        match (delivery, result) {
            (Some(delivery), Ok(())) => self.amqp.dispose(delivery, DeliveryState::accepted()),
            (delivery, Err(rejection)) => {
                let error = self.refuse(rejection, path);
                self.reject(delivery, error);
            }
            (None, Ok(())) => {}
        }
    }
}
