//! The machine of a connection: received bytes and calls go in, [`Event`]s and bytes to be written
//! come out. The server drives it.
//!
//! ```text
//!   header ─► SASL: init ─► judged ─► outcome ─► header ─► open ─► open on both sides ─► close
//!     └───────────── without SASL, if that is allowed ──────┘
//! ```
//!
//! [`next_event`](Connection::next_event) takes one frame at a time off the received bytes, and
//! returns at the first event. So no frames queue up here: unread bytes stay in the socket, and all
//! events of earlier frames are reported before anything is delivered (AMQP-69).

mod config;
mod event;
mod greeting;
mod idle;
#[cfg(feature = "testing")]
mod invariant;
mod open;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

pub use self::config::Config;
pub use self::event::{Continuation, Event, LinkId, MessagePart, ReceivedId, SentId, SessionId};
use crate::codec::list::List;
use crate::error::{AmqpError, condition};
use crate::frame::{FRAME_BYTES_MIN, Frame, FrameType, Output};
use crate::performative::{Disposition, Performative, Role};
use crate::session::{CurrentDisposition, Session};
use crate::state::DeliveryState;

/// Maximum size of frames before `open`: enough for a token as a password, and little memory for an
/// unauthenticated client.
const OPENING_FRAME_BYTES_MAX: u32 = 8 << 10;

/// Progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProtocolStage {
    /// Waits for the first header.
    Header,
    /// Waits for the client's choice of a mechanism.
    Mechanism,
    /// Waits for a user and a password.
    Password,
    /// Waits for the caller to judge the credentials.
    Judging,
    /// Waits for the header after SASL.
    SecondHeader,
    /// Waits for `open`.
    Opening,
    /// Open on both sides.
    Open,
    /// `close` was sent after all other frames; waits for the peer's `close`.
    Closing,
    /// No more bytes are read.
    Closed,
}

/// A connection of a client, without its socket. Instants are times since it was accepted.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Config,
    phase: ProtocolStage,
    pub(crate) wire: Wire,
    pub(crate) sessions: BTreeMap<u16, Session>,
    /// Number of the newest session or link, so that identifiers are never reused.
    pub(crate) generation: u64,
    pub(crate) link_count: usize,
    /// Bytes that all links keep of their `attach`.
    pub(crate) links_bytes: usize,
    pub(crate) events: VecDeque<Event>,
    /// Disposition of the client that is reported delivery by delivery.
    pub(crate) current_disposition: Option<CurrentDisposition>,
    /// Links with unsent frames of a message, in turn.
    pub(crate) unsent_links: VecDeque<LinkId>,
    peer_channel_max: u16,
    clock: idle::IdleClock,
}

/// Scope that an error ends.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Ends the connection.
    Connection(AmqpError),
    /// Ends the session.
    Session(AmqpError),
    /// Ends the link.
    Link(LinkId, AmqpError),
}

impl Connection {
    /// Makes the machine of a connection that was just accepted.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            clock: idle::IdleClock::new(config.opening_max),
            config,
            phase: ProtocolStage::Header,
            wire: Wire::new(),
            sessions: BTreeMap::new(),
            generation: 0,
            link_count: 0,
            links_bytes: 0,
            events: VecDeque::new(),
            current_disposition: None,
            unsent_links: VecDeque::new(),
            peer_channel_max: u16::MAX,
        }
    }

    /// Reads frames from `input` and returns the next event. `None` means that more bytes are
    /// needed, or that the caller must act first: judge a client, or write the output.
    pub fn next_event(&mut self, input: &mut BytesMut, now: Duration) -> Option<Event> {
        self.clock.record_input(input.len(), now);
        let event = self.step(input, now);
        self.clock.record_unread(input.len());
        event
    }

    fn step(&mut self, input: &mut BytesMut, now: Duration) -> Option<Event> {
        loop {
            self.check_overflow(now);
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if let Some(event) = self.next_settled() {
                return Some(event);
            }
            if self.current_disposition.is_some() {
                continue;
            }
            if self.is_full() || self.phase == ProtocolStage::Judging {
                return None;
            }
            match self.phase {
                ProtocolStage::Closed => {
                    input.clear();
                    return None;
                }
                ProtocolStage::Header | ProtocolStage::SecondHeader => self.take_header(input)?,
                _ => self.take_frame(input, now)?,
            }
        }
    }

    /// Returns the bytes to be written, after adding as many frames of waiting messages as
    /// possible.
    pub fn output(&mut self, now: Duration) -> &mut Output {
        self.add_frames();
        if self.wire.has_written() {
            self.clock.record_output(now);
        }
        self.wire.output()
    }

    /// Returns whether too many bytes wait to be written. Nothing is read or delivered then.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.wire.waiting_bytes() >= self.config.output_bytes_max
    }

    /// Number of bytes that wait to be written and are already in the output.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.wire.waiting_bytes()
    }

    /// Returns whether the connection is over: after the output is written, the socket can be
    /// closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == ProtocolStage::Closed
    }

    /// Sets the maximum number of links and sessions. Existing ones above it stay.
    pub const fn allow(&mut self, link_count_max: usize, session_count_max: usize) {
        self.config.link_count_max = link_count_max;
        self.config.session_count_max = session_count_max;
    }

    /// Number of links, including refused ones that are not detached yet.
    #[must_use]
    pub const fn link_count(&self) -> usize {
        self.link_count
    }

    /// Number of sessions, including those whose end the client has not answered.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether frames may be written.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == ProtocolStage::Open
    }

    fn take_frame(&mut self, input: &mut BytesMut, now: Duration) -> Option<()> {
        let bytes_max = match self.phase {
            ProtocolStage::Open | ProtocolStage::Closing => {
                self.config.frame_bytes_max.max(FRAME_BYTES_MIN)
            }
            _ => OPENING_FRAME_BYTES_MAX.min(self.config.frame_bytes_max),
        };
        match Frame::split(input, bytes_max) {
            Ok(None) => return None,
            Ok(Some(frame)) => self.take(&frame, now),
            // The start of the next frame is unknown.
            Err(error) => self.close_without_waiting(error),
        }
        Some(())
    }

    fn take(&mut self, frame: &Frame, now: Duration) {
        let (expected, sasl) = match self.phase {
            ProtocolStage::Mechanism | ProtocolStage::Password => (FrameType::Sasl, true),
            _ => (FrameType::Amqp, false),
        };
        if frame.kind != expected {
            return self.close_without_waiting(AmqpError::framing("frame has an unexpected type"));
        }
        if sasl {
            return self.take_sasl(&frame.body);
        }
        if frame.body.is_empty() {
            return;
        }
        let read = match Performative::read(&frame.body) {
            // The attach is kept until it is answered. The copy avoids keeping all bytes that were
            // read together with it.
            Ok((Performative::Attach(_), _)) => {
                Performative::read(&Bytes::copy_from_slice(&frame.body))
            }
            read => read,
        };
        let bytes = frame.body.len();
        let taken = match read {
            Ok((performative, payload)) => {
                self.take_performative(frame.channel, performative, payload, bytes)
            }
            Err(error) => Err(Fault::Connection(error)),
        };
        if let Err(fault) = taken {
            self.fail(frame.channel, fault, now);
        }
    }

    /// Handles a performative of a frame with `bytes` bytes.
    fn take_performative(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
        bytes: usize,
    ) -> Result<(), Fault> {
        match (self.phase, performative) {
            (ProtocolStage::Opening, Performative::Open(_)) if channel != 0 => {
                Err(Fault::Connection(AmqpError::framing(format!(
                    "open must be on channel 0, not on channel {channel}"
                ))))
            }
            (ProtocolStage::Opening, Performative::Open(open)) => self.take_open(open),
            (ProtocolStage::Open | ProtocolStage::Closing, Performative::Close(close)) => {
                self.take_close(close.error);
                Ok(())
            }
            (ProtocolStage::Closing, _) => Ok(()),
            (ProtocolStage::Open, performative) => match performative {
                Performative::Begin(begin) => self.take_begin(channel, &begin),
                Performative::Attach(attach) => self.take_attach(channel, attach, bytes),
                Performative::Flow(flow) => self.take_flow(channel, &flow),
                Performative::Transfer(transfer) => self.take_transfer(channel, transfer, payload),
                Performative::Disposition(disposition) => {
                    self.take_disposition(channel, disposition)
                }
                Performative::Detach(detach) => self.take_detach(channel, detach),
                Performative::End(end) => self.take_end(channel, end.error),
                Performative::Open(_) | Performative::Close(_) => {
                    Err(Fault::Connection(AmqpError::illegal_state("connection is already open")))
                }
            },
            _ => Err(Fault::Connection(AmqpError::illegal_state("the first frame must be open"))),
        }
    }

    /// Ends the scope of an error.
    pub(crate) fn fail(&mut self, channel: u16, fault: Fault, now: Duration) {
        match fault {
            Fault::Connection(error) => self.close_because(error, now),
            Fault::Session(error) => self.end_because(channel, error),
            Fault::Link(link, error) => self.detach_because(link, error),
        }
    }

    /// Closes the connection if the peer's maximum frame size is too small for an answer.
    fn check_overflow(&mut self, now: Duration) {
        if self.wire.has_overflowed() {
            let text =
                format!("the response does not fit into {} bytes", self.wire.frame_bytes_max);
            let error = AmqpError::new(condition::FRAME_SIZE_TOO_SMALL, text);
            self.close_because(error, now);
        }
    }

    /// Returns a new number for a session or link.
    pub(crate) const fn next_generation(&mut self) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }
}

/// Writes frames, and merges dispositions that form a range.
#[derive(Debug)]
pub(crate) struct Wire {
    output: Output,
    /// Held back, since the next disposition may extend its range.
    pending: Option<Pending>,
    /// Maximum size of a sent frame in bytes.
    pub(crate) frame_bytes_max: u32,
    /// Whether a frame was written since the last call of `has_written`.
    wrote: bool,
    /// Whether a frame was not written because it exceeds the peer's maximum frame size.
    overflowed: bool,
}

/// A range of deliveries with the same state.
#[derive(Debug)]
struct Pending {
    channel: u16,
    role: Role,
    first: u32,
    last: u32,
    settled: bool,
    state: DeliveryState,
}

impl Wire {
    pub(crate) fn new() -> Self {
        Self {
            output: Output::default(),
            pending: None,
            frame_bytes_max: FRAME_BYTES_MIN,
            wrote: false,
            overflowed: false,
        }
    }

    /// Number of bytes that wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.remaining()
    }

    /// Returns the bytes to be written.
    pub(crate) fn output(&mut self) -> &mut Output {
        self.flush();
        &mut self.output
    }

    /// Returns whether a frame was written since the last call.
    pub(crate) fn has_written(&mut self) -> bool {
        std::mem::take(&mut self.wrote)
    }

    /// Returns whether a frame could not be written since the last call.
    pub(crate) fn has_overflowed(&mut self) -> bool {
        std::mem::take(&mut self.overflowed)
    }

    pub(crate) fn header(&mut self, header: [u8; 8]) {
        self.output.raw(&header);
        self.wrote = true;
    }

    pub(crate) fn empty_frame(&mut self) {
        self.flush();
        self.output.empty_frame();
        self.wrote = true;
    }

    pub(crate) fn sasl<L: List>(&mut self, body: &L) {
        self.wrote |= self.output.frame(FrameType::Sasl, 0, body, usize::MAX).is_ok();
    }

    pub(crate) fn frame<L: List>(&mut self, channel: u16, body: &L) {
        self.flush();
        self.put(channel, body);
    }

    fn put<L: List>(&mut self, channel: u16, body: &L) {
        let bytes_max = self.frame_bytes();
        let mut write = |body: &L| self.output.frame(FrameType::Amqp, channel, body, bytes_max);
        let written = write(body).or_else(|beyond| {
            // Better a description that is cut than no frame at all (AMQP-90).
            body.shortened(beyond).map_or(Err(beyond), |shorter| write(&shorter))
        });
        match written {
            Ok(()) => self.wrote = true,
            Err(_) => self.overflowed = true,
        }
    }

    /// Writes a frame whose payload fits the maximum frame size.
    pub(crate) fn frame_with<L: List>(
        &mut self,
        channel: u16,
        body: &L,
        payload: impl IntoIterator<Item = Bytes>,
        payload_bytes: usize,
    ) {
        self.flush();
        self.output.frame_with(channel, body, payload, payload_bytes);
        self.wrote = true;
    }

    /// Maximum size of a sent frame in bytes.
    pub(crate) fn frame_bytes(&self) -> usize {
        usize::try_from(self.frame_bytes_max).unwrap_or(usize::MAX)
    }

    /// Sends a settled disposition with this state for a delivery.
    pub(crate) fn dispose(&mut self, channel: u16, role: Role, id: u32, state: DeliveryState) {
        self.dispose_range(channel, role, (id, id), state);
    }

    /// Sends a settled disposition with this state for a range of deliveries.
    pub(crate) fn dispose_range(
        &mut self,
        channel: u16,
        role: Role,
        (first, last): (u32, u32),
        state: DeliveryState,
    ) {
        self.hold_back(Pending { channel, role, first, last, settled: true, state });
    }

    /// Sends an unsettled disposition with this state for a delivery (AMQ-15, AMQP-66).
    pub(crate) fn dispose_unsettled(
        &mut self,
        channel: u16,
        role: Role,
        id: u32,
        state: DeliveryState,
    ) {
        self.hold_back(Pending { channel, role, first: id, last: id, settled: false, state });
    }

    /// Holds a disposition back, and merges it with the previous held-back disposition if both form
    /// one range. Otherwise the previous disposition is written first.
    fn hold_back(&mut self, next: Pending) {
        if let Some(pending) = &mut self.pending
            && (pending.channel, pending.role, pending.last.wrapping_add(1))
                == (next.channel, next.role, next.first)
            && (pending.settled, &pending.state) == (next.settled, &next.state)
        {
            pending.last = next.last;
            return;
        }
        self.flush();
        self.pending = Some(next);
    }

    /// Writes the disposition that was held back.
    fn flush(&mut self) {
        let Some(Pending { channel, role, first, last, settled, state }) = self.pending.take()
        else {
            return;
        };
        let last = (last != first).then_some(last);
        let state = Some(state);
        let disposition = Disposition { role, first, last, settled, state, batchable: false };
        self.put(channel, &disposition);
    }
}
