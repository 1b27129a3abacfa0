//! Turns answers and deliveries into frames. The turns in `serve.rs` call it. The bytes of queued
//! frames stay counted in the account of the connection until they are written.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::SinkExt;
use peeklock_core::admission::Room;
use peeklock_core::error::Rejection;
use peeklock_core::telemetry::count_undelivered;
use peeklock_core::time::Timestamp;
use peeklock_link::{Engine, Event, FinishedWork, Protocol, WORKING_MAX};

use super::inbound::FrameCost;
use super::inbound::Requests;
use super::{Conversation, SocketEnd, Written};
use crate::frame::text::Instant;
use crate::frame::{Encoding, Item, LIST_COUNT_MAX, ServerFrame};
use crate::operation::{Closing, Detached, Drained, Notice, PendingAnswer, SessionAccepted};
use crate::site::Socket;
use crate::unwritten::FramePieces;

/// Approximate size in bytes after which a frame ends.
const FRAME_BYTES: u64 = 256 << 10;

impl Protocol for Conversation {
    type PendingAnswer = PendingAnswer;
    /// An undecoded frame, with its costs as far as they are known.
    type Unpaid = (Bytes, FrameCost);
    type Paid = Requests;
    type Close = Infallible;
    type Outcome = Box<Notice>;

    const BACKGROUND_MAX: usize = WORKING_MAX;

    fn engine(&mut self) -> &mut Engine<Self> {
        &mut self.engine
    }

    fn mark_idle(&mut self) -> bool {
        if !self.engine.links.is_empty() {
            self.engine.place.has_link();
        }
        if !self.has_valid_token {
            // A request may have shown that the token is valid.
            self.update_shows_key();
        }
        let is_idle = self.engine.links.is_empty()
            && !(self.has_valid_token && self.engine.place.awaits_link())
            && self.engine.links.pending_count() == 0
            && self.engine.is_open()
            && self.ready.is_empty()
            && !self.unflushed
            && !self.engine.background.is_busy()
            && !self.engine.transactions.has_operations();
        self.engine.place.mark_idle(is_idle, &self.site.places)
    }

    fn may_emit(&self) -> bool {
        self.collected_bytes < FRAME_BYTES && self.ready.len() < LIST_COUNT_MAX
    }

    fn may_start_background(&self) -> bool {
        self.may_answer()
    }

    fn measure(&self) -> impl Fn(&Box<Notice>) -> u64 + Send + 'static {
        let encoding = self.encoding;
        move |notice| notice.weight(encoding)
    }

    async fn emit(&mut self, event: Event, held_bytes: u64) {
        let before = self.ready_bytes;
        let text_bytes = match event {
            Event::Nothing => None,
            Event::Delivered { link, number, message } => {
                self.engine.steps.add_bytes(u64::from(message.facts.size));
                self.deliver(link, number, *message)
            }
            Event::Stopped { link, path, reason } => {
                let error = self.wire_error(reason, &path);
                self.push_item(0, Notice::Detached(Detached { link, error }));
                None
            }
            Event::Done { id, path, result } => {
                self.reply(id, &path, result.map(|()| Notice::Done(Default::default())));
                None
            }
            Event::Drained { id, path, result } => {
                let drained =
                    |unused| Drained { unused: u32::try_from(unused).unwrap_or(u32::MAX) };
                self.reply(id, &path, result.map(drained).map(Notice::Drained));
                None
            }
            Event::Messages { id, link, path, result, taken_count } => match result {
                Ok(messages) => self.received(id, link, messages, taken_count, &path).await,
                Err(rejection) => {
                    self.fail(id, rejection, &path);
                    None
                }
            },
            Event::Accepted { id, path, result } => {
                let accepted = |(session, until): (Arc<str>, Timestamp)| SessionAccepted {
                    session_id: session.to_string(),
                    locked_until_utc: Instant(until),
                };
                self.reply(id, &path, result.map(accepted).map(Notice::SessionAccepted));
                None
            }
            Event::Answer { slot, index, result } => {
                self.answer(slot, index, result);
                None
            }
        };
        let charged_bytes = match (text_bytes, self.encoding) {
            (None, _) => 0,
            (Some(_), Encoding::Binary) => held_bytes,
            // A JSON message has reserved room for its longest possible text.
            (Some(text_bytes), Encoding::Json) => text_bytes,
        };
        self.ready_bytes += charged_bytes;
        if charged_bytes != held_bytes {
            self.engine.account.hold(charged_bytes);
            self.engine.account.release(held_bytes);
        }
        self.collected_bytes += self.ready_bytes.saturating_sub(before).max(super::ITEM_BYTES);
    }

    fn emit_finished(&mut self, finished: FinishedWork<Box<Notice>>) {
        self.answer_background(finished);
    }
}

impl Conversation {
    /// Collects arrivals, and writes one frame of the available items.
    pub(super) async fn write(&mut self, socket: &mut Socket) -> Result<(), SocketEnd> {
        self.collected_bytes = 0;
        self.collect().await;
        if self.unflushed || !self.may_write() {
            return Ok(());
        }
        let Some(frame) = self.next_frame() else { return Ok(()) };
        self.outgoing = FramePieces::new(frame, self.encoding);
        self.write_on(socket).await
    }

    /// Writes the next piece of a frame.
    pub(super) async fn write_on(&mut self, socket: &mut Socket) -> Result<(), SocketEnd> {
        let Some(piece) = self.outgoing.next() else { return Ok(()) };
        self.pulse.written_since_tick = true;
        // Nothing else is buffered, so this does not wait.
        socket.feed(piece).await.map_err(|error| super::serve::lost(&error))?;
        self.unflushed = true;
        Ok(())
    }

    /// Adds an item to the next frame and counts its bytes until the frame is made.
    pub(crate) fn push_item(&mut self, id: u32, notice: Notice) {
        let bytes = super::ITEM_BYTES + notice.weight(self.encoding);
        self.engine.account.hold(bytes);
        self.ready_bytes += bytes;
        self.ready.push(Item { id, notice });
    }

    /// Adds an answer whose room is already reserved.
    pub(super) fn push_paid_item(&mut self, id: u32, notice: Notice, bytes: u64, room: Room) {
        self.engine.account.hold_paid(bytes, room);
        self.ready_bytes += bytes;
        self.ready.push(Item { id, notice });
    }

    /// Answers a request. `Done` is sent only if the request has an id.
    pub(crate) fn reply(&mut self, id: u32, path: &str, answer: Result<Notice, Rejection>) {
        match answer {
            Ok(Notice::Done(_)) if id == 0 => {}
            Ok(notice) => self.push_item(id, notice),
            Err(rejection) => self.fail(id, rejection, path),
        }
    }

    pub(crate) fn fail(&mut self, id: u32, rejection: Rejection, path: &str) {
        let error = self.wire_error(rejection, path);
        self.push_item(id, Notice::Error(error));
    }

    /// Encodes the ready items as one frame.
    fn next_frame(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            return None;
        }
        let frame = ServerFrame { seen: self.seen, items: std::mem::take(&mut self.ready) };
        let ready_bytes = std::mem::take(&mut self.ready_bytes);
        let encoded = frame.encode(self.encoding, usize::try_from(ready_bytes).unwrap_or(0));
        let mut items = frame.items;
        items.clear();
        self.ready = items;
        let removed_count = std::mem::take(&mut self.unwritten_count);
        let deliveries = by_link(std::mem::take(&mut self.delivered));
        let bytes: Bytes = match encoded {
            Ok(mut bytes) => {
                if self.grace.is_some() {
                    // The frame may be kept for long, and is usually far smaller than its reserved
                    // room.
                    bytes.shrink_to_fit();
                }
                bytes.into()
            }
            Err(error) => {
                // Everything that can fail to encode was read before.
                tracing::error!(%error, "a frame cannot be encoded");
                self.engine.account.release(ready_bytes);
                count_undelivered(removed_count);
                return None;
            }
        };
        self.frames.sent += 1;
        let held_bytes =
            bytes.len() as u64 + size_of_val(&*deliveries) as u64 + super::WRITTEN_BYTES;
        // Held before the release, so that the frame reuses the room of its parts.
        self.engine.account.hold(held_bytes);
        self.engine.account.release(ready_bytes);
        self.frames.kept_bytes += held_bytes;
        let kept = if self.grace.is_some() { bytes.clone() } else { Bytes::new() };
        self.frames.unconfirmed.push_back(Written {
            bytes: kept,
            held_bytes,
            deliveries,
            removed_count,
        });
        Some(bytes)
    }

    /// Notes that the system has accepted all written bytes. If the conversation cannot be resumed,
    /// this confirms them.
    pub(super) fn flushed(&mut self) {
        self.frames.flushed = self.frames.sent;
        if self.grace.is_none() {
            self.confirm_first(self.frames.unconfirmed.len());
        }
    }

    /// Notes that the client has taken `received` frames in total.
    pub(super) fn confirm(&mut self, received: u64) {
        if self.grace.is_none() {
            return;
        }
        let before = self.frames.sent - self.frames.unconfirmed.len() as u64;
        let count = received.min(self.frames.sent).saturating_sub(before);
        self.confirm_first(usize::try_from(count).unwrap_or(usize::MAX));
    }

    fn confirm_first(&mut self, count: usize) {
        let mut given: Vec<u32> = Vec::new();
        for _ in 0..count {
            let Some(sent) = self.frames.unconfirmed.pop_front() else { break };
            self.frames.kept_bytes -= sent.held_bytes;
            self.frames.confirmed_bytes += sent.held_bytes;
            self.engine.account.release(sent.held_bytes);
            self.stall.reset();
            for (number, bytes) in sent.deliveries {
                self.engine.links.record_received_bytes(number, bytes);
                if !given.contains(&number) {
                    given.push(number);
                }
            }
        }
        if self.frames.unconfirmed.is_empty() {
            self.frames.unconfirmed.shrink_to(super::WRITTEN_PLACES_IDLE);
        }
        for number in given {
            self.engine.links.update_limits(number);
        }
    }

    /// Announces that the connection will be closed.
    pub(super) fn push_closing(&mut self, seconds: u32) {
        self.push_item(0, Notice::Closing(Closing { seconds }));
    }
}

/// Merges neighbouring deliveries of the same link into one entry.
fn by_link(mut delivered: Vec<(u32, u64)>) -> Box<[(u32, u64)]> {
    delivered.dedup_by(|(number, bytes), (before, sum)| {
        let is_same = number == before;
        if is_same {
            *sum += *bytes;
        }
        is_same
    });
    delivered.into_boxed_slice()
}
