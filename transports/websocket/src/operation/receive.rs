//! Receives messages, available or deferred, and peeks at them; makes the answer of all operations
//! that return messages.

use peeklock_core::command::{Command, ReceivedMessage, SessionCommand};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::telemetry::count_undelivered;
use peeklock_link::MessageSource;

use super::deliver::as_delivered;
use super::{Notice, Numbered};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::message::DeliveredMessage;
use crate::frame::{Item, LIST_COUNT_MAX, bodies};

bodies! {
    struct Receive {
        link: u32,
        max_count: u32,
        wait_seconds: f64,
    }

    struct Messages {
        messages: Vec<DeliveredMessage>,
    }
}

impl Conversation {
    pub(super) fn receive(&mut self, admitted: AdmittedRequest, receive: &Receive) -> Done {
        if admitted.id == 0 {
            return Err(Rejection::argument("receive needs an id for its answer").into());
        }
        let number = receive.link;
        self.receiver(number)?;
        let wait = self.bounded_wait(receive.wait_seconds)?;
        let count_max = receive.max_count;
        if count_max as usize > LIST_COUNT_MAX {
            let detail = format!("maxCount is {count_max}; it must be 1 to {LIST_COUNT_MAX}");
            return Err(Rejection::out_of_range(detail).into());
        }
        let AdmittedRequest { id, permit } = admitted;
        self.engine.links.receive(number, count_max, wait, self.room_bytes(), id, Some(permit));
        Ok(())
    }

    /// Answers with messages and accounts for their texts. If a message cannot be read, all
    /// messages are given back, unless the broker has already removed them: then the answer
    /// contains the readable ones, or an error if there are none. The task yields between messages.
    pub(crate) async fn received(
        &mut self,
        id: u32,
        number: u32,
        messages: Vec<ReceivedMessage>,
        taken_count: u64,
        path: &str,
    ) -> Option<u64> {
        let tokens: Vec<LockToken> =
            messages.iter().filter_map(|message| message.facts.lock).map(|it| it.token).collect();
        let encoding = self.encoding;
        let mut read = Vec::with_capacity(messages.len());
        let mut lost_count = 0;
        let mut lost = None;
        for message in messages {
            self.engine.steps.add(1);
            self.engine.steps.add_bytes(u64::from(message.facts.size));
            let sequence_number = message.facts.sequence.0;
            match as_delivered(encoding, &message) {
                Some(delivered) => read.push(delivered),
                None if taken_count > 0 => {
                    tracing::error!(path, sequence_number, "a received message is lost");
                    count_undelivered(1);
                    lost_count += 1;
                    lost = Some(message.undeliverable());
                }
                None => {
                    self.engine.links.release_messages(number, tokens);
                    self.fail(id, message.unreadable(), path);
                    return None;
                }
            }
            self.engine.steps.yield_if_due().await;
        }
        if let Some(reason) = lost.filter(|_| read.is_empty()) {
            self.fail(id, reason, path);
            return None;
        }
        let messages = read;
        let text_bytes = messages.iter().map(DeliveredMessage::text_bytes).sum();
        self.unwritten_count += taken_count.saturating_sub(lost_count);
        self.ready.push(Item { id, notice: Notice::Received(Messages { messages }) });
        Some(text_bytes)
    }
}

impl Conversation {
    pub(super) fn receive_deferred(
        &mut self,
        admitted: AdmittedRequest,
        numbered: Numbered,
    ) -> Done {
        if admitted.id == 0 {
            let detail = "receiveDeferred needs an id for its answer";
            return Err(Rejection::argument(detail).into());
        }
        let link = self.receiver(numbered.link)?;
        let number = numbered.link;
        let bytes = self.numbered_bytes(numbered.count());
        let sequences: Vec<SequenceNumber> = numbered.into();
        let command = match link.source {
            MessageSource::Session(_) => {
                link.in_session(SessionCommand::ReceiveDeferred { sequences })
            }
            MessageSource::Queue | MessageSource::NotAssigned => {
                Command::ReceiveDeferred { mode: link.mode, sequences, holder: Some(link.receiver) }
            }
        };
        let AdmittedRequest { id, permit } = admitted;
        self.engine.links.receive_numbered(number, command, bytes, id, Some(permit));
        Ok(())
    }
}

bodies! {
    struct Withdraw {
        /// Id of the receive.
        request: u32,
    }
}

impl Conversation {
    pub(super) fn withdraw(&mut self, admitted: &AdmittedRequest, withdraw: &Withdraw) -> Done {
        self.engine.links.cancel_wait(withdraw.request);
        self.done(admitted)
    }
}

bodies! {
    struct Peek {
        link: u32,
        from: u64,
        max_count: u32,
    }
}

impl Conversation {
    pub(super) fn peek(&mut self, admitted: AdmittedRequest, peek: &Peek) -> Done {
        let (from, count_max) = (SequenceNumber(peek.from), peek.max_count);
        let command = match self.receiver(peek.link)?.session() {
            Some(session) => Command::PeekSession { session: session.into(), from, count_max },
            None => Command::Peek { from, count_max },
        };
        self.send_peek(admitted, peek.link, command)
    }
}

bodies! {
    struct PeekSession {
        link: u32,
        session_id: String,
        from: u64,
        max_count: u32,
    }
}

impl Conversation {
    /// Peeks at the messages of any session, even if it is locked (PEK-07).
    pub(super) fn peek_session(&mut self, admitted: AdmittedRequest, peek: PeekSession) -> Done {
        self.receiver(peek.link)?;
        let command = Command::PeekSession {
            session: peek.session_id.into_boxed_str(),
            from: SequenceNumber(peek.from),
            count_max: peek.max_count,
        };
        self.send_peek(admitted, peek.link, command)
    }
}
