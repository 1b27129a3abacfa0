//! What comes back: from answers and deliveries to frames.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::SinkExt;
use peeklock_core::error::Rejection;
use peeklock_core::permits::Room;
use peeklock_core::request::Released;
use peeklock_core::time::Timestamp;
use peeklock_link::{Event, Mail, Next};

use super::outgoing::Outgoing;
use super::{Conversation, Ended, Written};
use crate::frame::text::Instant;
use crate::frame::{Item, LIST_COUNT_MAX, ServerFrame};
use crate::operation::{Closing, Detached, Drained, Notice, SessionAccepted};
use crate::site::Socket;

/// A frame ends when it has about so many bytes.
const FRAME_BYTES: u64 = 256 << 10;

impl Conversation {
    /// Takes what came, and writes one frame of what is there.
    pub(super) async fn write(&mut self, socket: &mut Socket) -> Result<(), Ended> {
        self.collect();
        if self.unflushed || !self.may_write() {
            return Ok(());
        }
        let Some(frame) = self.next_frame() else { return Ok(()) };
        self.outgoing = Outgoing::new(frame, self.encoding);
        self.write_on(socket).await
    }

    /// Writes the next piece of a frame.
    pub(super) async fn write_on(&mut self, socket: &mut Socket) -> Result<(), Ended> {
        let Some(piece) = self.outgoing.next() else { return Ok(()) };
        self.written_since_tick = true;
        // Nothing else is buffered, so this does not wait.
        socket.feed(piece).await.map_err(|error| super::serve::lost(&error))?;
        self.unflushed = true;
        Ok(())
    }

    /// Takes what came until there is enough for a frame. What has to be read from the store is fetched
    /// beside the conversation; only its link waits for it.
    fn collect(&mut self) {
        let mut arrived = Vec::new();
        self.mailbox.take(&mut arrived);
        for mail in arrived {
            match mail {
                Mail::Released(released) => {
                    self.arrivals.push(self.links.link_of(&released), released);
                }
                Mail::Fetched(fetched) => self.arrivals.fetched(fetched),
                Mail::Own(own) => self.done_apart(own),
            }
        }
        self.wanted_bytes = None;
        let mut bytes = 0;
        while bytes < FRAME_BYTES && self.ready.len() < LIST_COUNT_MAX {
            match self.arrivals.next(&mut self.account) {
                Next::Ready(released, held_bytes) => {
                    bytes += super::ITEM_BYTES + held_bytes;
                    self.tell(released, held_bytes);
                }
                Next::NoRoom(wanted) => {
                    self.wanted_bytes = Some(wanted);
                    break;
                }
                Next::Nothing => break,
            }
        }
        if self.wanted_bytes.is_none() {
            self.account.want_nothing();
        }
        for fetch in self.arrivals.fetches() {
            let mailbox = Arc::clone(&self.mailbox);
            tokio::spawn(async move { mailbox.put(Mail::Fetched(fetch.run().await)) });
        }
        self.begin_apart();
    }

    /// Turns what came from an entity into what the client is told; it holds so much of the account.
    fn tell(&mut self, released: Released, held_bytes: u64) {
        let is_told = match self.links.take(released) {
            Event::Nothing => false,
            Event::Delivered { link, number, message } => self.deliver(link, number, *message),
            Event::Stopped { link, path, reason } => {
                let error = self.wire_error(reason, &path);
                self.say(0, Notice::Detached(Detached { link, error }));
                false
            }
            Event::Done { id, path, result } => {
                self.reply(id, &path, result.map(|()| Notice::Done(Default::default())));
                false
            }
            Event::Drained { id, path, result } => {
                let drained =
                    |unused| Drained { unused: u32::try_from(unused).unwrap_or(u32::MAX) };
                self.reply(id, &path, result.map(drained).map(Notice::Drained));
                false
            }
            Event::Messages { id, link, path, result, taken_count } => match result {
                Ok(messages) => self.received(id, link, messages, taken_count, &path),
                Err(rejection) => {
                    self.fail(id, rejection, &path);
                    false
                }
            },
            Event::Accepted { id, path, result } => {
                let accepted = |(session, until): (Arc<str>, Timestamp)| SessionAccepted {
                    session_id: session.to_string(),
                    locked_until_utc: Instant(until),
                };
                self.reply(id, &path, result.map(accepted).map(Notice::SessionAccepted));
                false
            }
            Event::Answer { slot, index, result } => {
                self.answer(slot, index, result);
                false
            }
        };
        if is_told {
            self.ready_bytes += held_bytes;
        } else {
            self.account.release(held_bytes);
        }
    }

    /// Says something; what it holds is counted until its frame is.
    pub(crate) fn say(&mut self, id: u32, notice: Notice) {
        let bytes = super::ITEM_BYTES + notice.weight();
        self.account.hold(bytes);
        self.ready_bytes += bytes;
        self.ready.push(Item { id, notice });
    }

    /// The same for an answer that has its room.
    pub(super) fn say_paid(&mut self, id: u32, notice: Notice, bytes: u64, room: Room) {
        self.account.hold_paid(bytes, room);
        self.ready_bytes += bytes;
        self.ready.push(Item { id, notice });
    }

    /// Answers; that something is done is told only to who asked under an id.
    pub(crate) fn reply(&mut self, id: u32, path: &str, answer: Result<Notice, Rejection>) {
        match answer {
            Ok(Notice::Done(_)) if id == 0 => {}
            Ok(notice) => self.say(id, notice),
            Err(rejection) => self.fail(id, rejection, path),
        }
    }

    pub(crate) fn fail(&mut self, id: u32, rejection: Rejection, path: &str) {
        let error = self.wire_error(rejection, path);
        self.say(id, Notice::Error(error));
    }

    /// Encodes what is ready as one frame.
    fn next_frame(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            return None;
        }
        let frame = ServerFrame { seen: self.seen, items: std::mem::take(&mut self.ready) };
        let encoded = frame.encode(self.encoding);
        let mut items = frame.items;
        items.clear();
        self.ready = items;
        let ready_bytes = std::mem::take(&mut self.ready_bytes);
        self.unwritten_count = 0;
        let deliveries = std::mem::take(&mut self.delivered);
        let bytes: Bytes = match encoded {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                // What could fail was read before.
                tracing::error!(%error, "a frame cannot be encoded");
                self.account.release(ready_bytes);
                return None;
            }
        };
        self.sent += 1;
        let held_bytes = bytes.len() as u64;
        // First, so that the frame has the room that its parts had.
        self.account.hold(held_bytes);
        self.account.release(ready_bytes);
        self.kept_bytes += held_bytes;
        let kept = if self.grace.is_some() { bytes.clone() } else { Bytes::new() };
        self.unconfirmed_bytes += kept.len() as u64;
        self.unconfirmed.push_back(Written { bytes: kept, held_bytes, deliveries });
        Some(bytes)
    }

    /// What was written is with the system. If nothing can be resumed, that is all there is to know.
    pub(super) fn flushed(&mut self) {
        if self.grace.is_none() {
            self.confirm_first(self.unconfirmed.len());
        }
    }

    /// The client has taken so many frames in all.
    pub(super) fn confirm(&mut self, received: u64) {
        if self.grace.is_none() {
            return;
        }
        let before = self.sent - self.unconfirmed.len() as u64;
        let count = received.min(self.sent).saturating_sub(before);
        self.confirm_first(usize::try_from(count).unwrap_or(usize::MAX));
    }

    fn confirm_first(&mut self, count: usize) {
        let mut given: Vec<u32> = Vec::new();
        for _ in 0..count {
            let Some(sent) = self.unconfirmed.pop_front() else { break };
            self.unconfirmed_bytes -= sent.bytes.len() as u64;
            self.kept_bytes -= sent.held_bytes;
            self.confirmed_bytes += sent.held_bytes;
            self.account.release(sent.held_bytes);
            self.stalled = std::time::Duration::ZERO;
            for (number, bytes) in sent.deliveries {
                self.links.taken(number, bytes);
                if !given.contains(&number) {
                    given.push(number);
                }
            }
        }
        for number in given {
            self.links.limit(number);
        }
    }

    /// Says that the connection will be closed.
    pub(super) fn say_closing(&mut self, seconds: u32) {
        self.say(0, Notice::Closing(Closing { seconds }));
    }
}
