//! Sends messages, independently of each other or all or none, and cancels scheduled messages.
//! `operation.rs` calls it.

use peeklock_core::Broker;
use peeklock_core::command::{Command, InboundMessage, Outcome};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{SequenceNumber, Ticket};
use peeklock_core::message::Content;
use peeklock_link::PendingRequest;
use peeklock_link::pending::correlation;

use super::{Notice, PendingAnswer, unexpected};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::message::SentMessage;
use crate::frame::{Run, WireError, bodies, json};

bodies! {
    struct Send {
        link: u32,
        #[serde(deserialize_with = "json::bounded")]
        messages: Vec<SentMessage>,
    }

    struct Accepted {
        /// Sequence numbers of the messages in their order, as first number and count. With the
        /// first number 0, all numbers of the run are 0.
        sequence_numbers: Vec<Run>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedSend>,
    }

    struct FailedSend {
        /// Index in `messages`, from 0.
        index: u32,
        error: WireError,
    }
}

/// Results of the messages of a request.
pub(crate) struct SendResults {
    numbers: Vec<u64>,
    left: usize,
    failed: Vec<FailedSend>,
}

impl Conversation {
    pub(super) fn send(&mut self, admitted: AdmittedRequest, send: Send) -> Done {
        let number = send.link;
        let link = self.sender(number)?;
        let count = send.messages.len();
        let mut failed = Vec::new();
        let mut commands = Vec::with_capacity(count);
        for (index, message) in send.messages.into_iter().enumerate() {
            match inbound(&self.engine.broker, message) {
                Ok(message) => commands.push((index, link.send_command(message))),
                Err(rejection) => {
                    let error = self.wire_error(rejection, &link.path);
                    failed.push(FailedSend { index: wire_index(index), error });
                }
            }
        }
        if commands.is_empty() {
            let sequence_numbers = runs(vec![0; count]);
            self.push_item(admitted.id, Notice::Accepted(Accepted { sequence_numbers, failed }));
            return Ok(());
        }
        let sent = SendResults { numbers: vec![0; count], left: commands.len(), failed };
        let slot = self.await_answer(admitted, number, PendingAnswer::Sent(sent));
        let mut ticket = self.engine.links.tickets(commands.len() as u64);
        for (index, command) in commands {
            self.engine.links.submit_as(number, ticket, command, correlation(slot, index));
            ticket = Ticket(ticket.0 + 1);
        }
        Ok(())
    }

    /// Makes the command of a send in a transaction: several messages are a batch.
    pub(super) fn send_command(&self, send: Send) -> Result<Command, Rejection> {
        let link = self.sender(send.link)?;
        let mut messages = self.all_inbound(send.messages)?;
        Ok(match messages.pop() {
            Some(message) if messages.is_empty() => link.send_command(message),
            last => {
                messages.extend(last);
                link.batch_command(messages)
            }
        })
    }

    /// Takes the result of a message; answers after the last one.
    pub(super) fn sent(&mut self, slot: usize, index: usize, result: Result<Outcome, Rejection>) {
        let Some((_, path, PendingAnswer::Sent(sent))) = self.engine.links.request_mut(slot) else {
            return;
        };
        sent.left = sent.left.saturating_sub(1);
        match result {
            Ok(outcome) => {
                let number = match outcome {
                    Outcome::Accepted(number) => Some(number),
                    // Through another entity, each message is a separate batch.
                    Outcome::AcceptedBatch(numbers) => numbers.first().copied(),
                    _ => None,
                };
                if let (Some(place), Some(number)) = (sent.numbers.get_mut(index), number) {
                    *place = number.0;
                }
            }
            Err(rejection) => {
                let error = (&self.engine.broker.refuse(rejection, &path)).into();
                sent.failed.push(FailedSend { index: wire_index(index), error });
            }
        }
        if sent.left > 0 {
            return;
        }
        if let Some(PendingRequest { id, expect: PendingAnswer::Sent(sent), .. }) =
            self.engine.links.remove_request(slot)
        {
            let accepted = Accepted { sequence_numbers: runs(sent.numbers), failed: sent.failed };
            self.push_item(id, Notice::Accepted(accepted));
        }
    }

    pub(super) fn all_inbound(
        &self,
        messages: Vec<SentMessage>,
    ) -> Result<Vec<InboundMessage>, Rejection> {
        messages.into_iter().map(|message| inbound(&self.engine.broker, message)).collect()
    }
}

/// Prepares a message for the broker.
pub(super) fn inbound(broker: &Broker, message: SentMessage) -> Result<InboundMessage, Rejection> {
    match message {
        SentMessage::Content(bytes) => Ok(broker.inbound_content(Content::from_sender(bytes)?)),
        SentMessage::Typed(message) => Ok(broker.inbound(*message)),
    }
}

/// Returns the index of a message on the wire. A frame has far fewer messages than the largest
/// number.
fn wire_index(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

pub(super) fn runs(numbers: impl IntoIterator<Item = u64>) -> Vec<Run> {
    let mut runs = Vec::new();
    numbers.into_iter().for_each(|number| Run::push(&mut runs, number));
    runs
}

impl Conversation {
    pub(super) fn send_batch(&mut self, admitted: AdmittedRequest, send: Send) -> Done {
        let number = send.link;
        let messages = self.all_inbound(send.messages)?;
        let command = self.sender(number)?.batch_command(messages);
        self.command(admitted, number, command, PendingAnswer::One(Self::batch_sent))
    }

    fn batch_sent(&mut self, _: u32, outcome: Outcome, _: &str) -> Result<Notice, Rejection> {
        let Outcome::AcceptedBatch(numbers) = outcome else { return Err(unexpected()) };
        let sequence_numbers = runs(numbers.into_iter().map(|number| number.0));
        Ok(Notice::Accepted(Accepted { sequence_numbers, failed: Vec::new() }))
    }
}

bodies! {
    /// Messages given by their sequence numbers.
    struct Numbered {
        link: u32,
        #[serde(deserialize_with = "json::bounded")]
        sequence_numbers: Vec<u64>,
    }
}

impl Numbered {
    /// Returns the number of sequence numbers.
    pub(crate) const fn count(&self) -> usize {
        self.sequence_numbers.len()
    }
}

impl From<Numbered> for Vec<SequenceNumber> {
    fn from(numbered: Numbered) -> Self {
        numbered.sequence_numbers.into_iter().map(SequenceNumber).collect()
    }
}

impl Conversation {
    pub(super) fn cancel_scheduled(
        &mut self,
        admitted: AdmittedRequest,
        numbered: Numbered,
    ) -> Done {
        let number = numbered.link;
        self.sender(number)?;
        let command = Command::CancelScheduled { sequences: numbered.into() };
        self.command(admitted, number, command, PendingAnswer::DONE)
    }
}
