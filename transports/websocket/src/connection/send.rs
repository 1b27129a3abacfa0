//! Messages of a client on their way in.

use std::sync::Arc;

use peeklock_core::command::{Command, InboundMessage, PeerArrival};
use peeklock_core::entity::peers::PeerSource;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, SequenceNumber, Ticket};
use peeklock_core::message::Content;
use peeklock_core::path::SubQueue;
use peeklock_link::pending::correlation;

use super::Conversation;
use super::inbound::{Asked, Done, place};
use super::pending::{Expect, Sent};
use crate::frame::message::Outgoing;
use crate::frame::{Accepted, FailedSend, Forward, Forwarding, Notice, Send};

impl Conversation {
    pub(super) fn send(&mut self, asked: Asked, send: Send) -> Done {
        let number = send.link;
        self.sender(number)?;
        let count = send.messages.len();
        let mut failed = Vec::new();
        let mut inbound = Vec::with_capacity(count);
        let path = Arc::clone(&self.link(number)?.path);
        for (index, message) in (0..).zip(send.messages) {
            match self.inbound(message) {
                Ok(message) => inbound.push((index, message)),
                Err(rejection) => {
                    let error = self.wire_error(rejection, &path);
                    failed.push(FailedSend { index, error });
                }
            }
        }
        if inbound.is_empty() {
            let mut sequence_numbers = Vec::new();
            for _ in 0..count {
                crate::frame::Run::push(&mut sequence_numbers, 0);
            }
            let notice = Notice::Accepted(Accepted { sequence_numbers, failed });
            self.say(asked.id, notice);
            return Ok(());
        }
        let sent = Sent { numbers: vec![0; count], left: inbound.len(), failed };
        let slot = self.await_answer(asked, number, Expect::Sent(sent));
        let mut ticket = self.links.tickets(inbound.len() as u64);
        for (index, message) in inbound {
            let command = Command::Send { message };
            self.links.submit_as(number, ticket, command, correlation(slot, place(index)));
            ticket = Ticket(ticket.0 + 1);
        }
        Ok(())
    }

    pub(super) fn send_batch(&mut self, asked: Asked, send: Send) -> Done {
        self.sender(send.link)?;
        let messages = send.messages.into_iter().map(|message| self.inbound(message));
        let messages = messages.collect::<Result<Vec<InboundMessage>, Rejection>>()?;
        self.command(asked, send.link, Command::SendBatch { messages }, Expect::Batch)
    }

    /// Takes messages over from another broker. Who says how many hops they made must have the Manage
    /// right (FWD-13).
    pub(super) fn forward(&mut self, asked: Asked, forward: Forward) -> Done {
        self.sender(forward.link)?;
        let source = PeerSource {
            broker: forward.source.broker.0,
            entity: EntityId(forward.source.entity),
            sub_queue: match forward.source.forwarding {
                Forwarding::Messages => SubQueue::Main,
                Forwarding::DeadLetters => SubQueue::DeadLetter,
            },
        };
        let arrivals = forward.messages.into_iter().map(|one| {
            if one.hops == 0 {
                return Err(Rejection::out_of_range("a forwarded message has made a hop at least"));
            }
            let mut message = self.inbound(one.message)?;
            if one.never_duplicate {
                message.envelope.let_never_be_duplicate();
            }
            Ok(PeerArrival {
                message,
                sequence: SequenceNumber(one.sequence_number),
                enqueued_at: one.enqueued_time_utc.0,
                enqueued_sequence: SequenceNumber(one.enqueued_sequence_number),
                hops: one.hops,
                copies_spent: 0,
                dead_letter_source: one.dead_letter_source.map(Arc::from),
            })
        });
        let messages = arrivals.collect::<Result<Vec<PeerArrival>, Rejection>>()?;
        let command = Command::TransferFromPeer { source, messages };
        self.command(asked, forward.link, command, Expect::Forwarded)
    }

    pub(super) fn inbound(&self, message: Outgoing) -> Result<InboundMessage, Rejection> {
        match message {
            Outgoing::Content(bytes) => Ok(self.broker.inbound_content(Content::parse(bytes)?)),
            Outgoing::Typed(message) => Ok(self.broker.inbound(*message)),
        }
    }
}
