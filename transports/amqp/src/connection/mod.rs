//! A connection: what came is given to it, and it tells what happened and what is to be written.
//!
//! ```text
//!   header ─► SASL: init ─► judged ─► outcome ─► header ─► open ─► open on both sides ─► close
//!     └───────────── without SASL, where that is allowed ──►┘
//! ```
//!
//! [`next_event`](Connection::next_event) takes one frame after the other off the bytes that came, and
//! stops where something is to be told. So nothing queues up here: what is not taken stays in the socket,
//! and everything that was read is told before anything is delivered (AMQP-69).

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
pub use self::event::{Event, Fate, LinkId, Part, ReceivedId, SentId, SessionId};
use crate::codec::list::List;
use crate::error::{AmqpError, condition};
use crate::frame::{FRAME_BYTES_MIN, Frame, Kind, Output};
use crate::performative::{Disposition, Performative, Role};
use crate::session::{BegunDisposition, Session};
use crate::state::DeliveryState;

/// Frames that come before `open` have at most this size: enough for a token as a password, and little to
/// hold for somebody unknown.
const OPENING_FRAME_BYTES_MAX: u32 = 8 << 10;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The first header is awaited.
    Header,
    /// The client's choice of a mechanism is awaited.
    Mechanism,
    /// A user and a password are awaited.
    Password,
    /// Who it is is being judged.
    Judged,
    /// The header behind SASL is awaited.
    SecondHeader,
    /// `open` is awaited.
    Opening,
    /// It is open.
    Open,
    /// `close` was sent, with all that is due, and is awaited.
    Closing,
    /// Nothing more is read.
    Closed,
}

/// A connection of a client, without its socket. Instants are counted from when it was accepted.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Config,
    phase: Phase,
    pub(crate) wire: Wire,
    pub(crate) sessions: BTreeMap<u16, Session>,
    /// Numbers sessions and links, so that none is taken for another.
    pub(crate) generation: u64,
    pub(crate) link_count: usize,
    /// What all links have left behind of their `attach`.
    pub(crate) links_bytes: usize,
    pub(crate) events: VecDeque<Event>,
    /// A disposition of the client's that is being told, delivery by delivery.
    pub(crate) settling: Option<BegunDisposition>,
    /// Links with a message of which frames are still to be sent, in turn.
    pub(crate) under_way: VecDeque<LinkId>,
    peer_channel_max: u16,
    clock: idle::Clock,
}

/// Where an error leads.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection is over.
    Connection(AmqpError),
    /// The session is over.
    Session(AmqpError),
    /// The link is over.
    Link(LinkId, AmqpError),
}

impl Connection {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            clock: idle::Clock::new(config.opening_max),
            config,
            phase: Phase::Header,
            wire: Wire::new(),
            sessions: BTreeMap::new(),
            generation: 0,
            link_count: 0,
            links_bytes: 0,
            events: VecDeque::new(),
            settling: None,
            under_way: VecDeque::new(),
            peer_channel_max: u16::MAX,
        }
    }

    /// What happened next, as far as `input` tells; what was understood is taken off it. None means that
    /// more bytes are needed, or that something must be done first: a client judged, or output written.
    pub fn next_event(&mut self, input: &mut BytesMut, now: Duration) -> Option<Event> {
        self.clock.heard(input.len(), now);
        let event = self.step(input, now);
        self.clock.left(input.len());
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
            if self.settling.is_some() {
                continue;
            }
            if self.is_full() || self.phase == Phase::Judged {
                return None;
            }
            match self.phase {
                Phase::Closed => {
                    input.clear();
                    return None;
                }
                Phase::Header | Phase::SecondHeader => self.take_header(input)?,
                _ => self.take_frame(input, now)?,
            }
        }
    }

    /// What is to be written. As much as may be sent is added first.
    pub fn output(&mut self, now: Duration) -> &mut Output {
        self.pump();
        if self.wire.has_written() {
            self.clock.spoke(now);
        }
        self.wire.output()
    }

    /// Whether so much waits to be written that nothing is read and nothing may be delivered.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.wire.waiting_bytes() >= self.config.output_bytes_max
    }

    /// How many bytes wait to be written, of those that are in the output already.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.wire.waiting_bytes()
    }

    /// Whether the connection is over: when what is to be written is written, the socket can be closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Sets how many links and sessions there may be; those beyond that are there stay.
    pub const fn allow(&mut self, link_count_max: usize, session_count_max: usize) {
        self.config.link_count_max = link_count_max;
        self.config.session_count_max = session_count_max;
    }

    /// How many links there are, with those that were refused and are not detached.
    #[must_use]
    pub const fn link_count(&self) -> usize {
        self.link_count
    }

    /// How many sessions there are, with those that were ended and are awaited.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Whether frames may be written.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    fn take_frame(&mut self, input: &mut BytesMut, now: Duration) -> Option<()> {
        let bytes_max = match self.phase {
            Phase::Open | Phase::Closing => self.config.frame_bytes_max.max(FRAME_BYTES_MIN),
            _ => OPENING_FRAME_BYTES_MAX.min(self.config.frame_bytes_max),
        };
        match Frame::split(input, bytes_max) {
            Ok(None) => return None,
            Ok(Some(frame)) => self.take(&frame, now),
            // Where one frame ends nobody knows where the next begins.
            Err(error) => self.break_off(error),
        }
        Some(())
    }

    fn take(&mut self, frame: &Frame, now: Duration) {
        let (expected, sasl) = match self.phase {
            Phase::Mechanism | Phase::Password => (Kind::Sasl, true),
            _ => (Kind::Amqp, false),
        };
        if frame.kind != expected {
            return self.break_off(AmqpError::framing("frame has an unexpected type"));
        }
        if sasl {
            return self.take_sasl(&frame.body);
        }
        if frame.body.is_empty() {
            return;
        }
        let read = match Performative::read(&frame.body) {
            // Until it is answered it is kept, and nothing with it of what was read beside it.
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

    /// Takes what a frame of so many bytes says.
    fn take_performative(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
        bytes: usize,
    ) -> Result<(), Fault> {
        match (self.phase, performative) {
            (Phase::Opening, Performative::Open(_)) if channel != 0 => Err(Fault::Connection(
                AmqpError::framing(format!("open must be on channel 0, not on channel {channel}")),
            )),
            (Phase::Opening, Performative::Open(open)) => self.take_open(open),
            (Phase::Open | Phase::Closing, Performative::Close(close)) => {
                self.take_close(close.error);
                Ok(())
            }
            (Phase::Closing, _) => Ok(()),
            (Phase::Open, performative) => match performative {
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

    /// Carries out what an error leads to.
    pub(crate) fn fail(&mut self, channel: u16, fault: Fault, now: Duration) {
        match fault {
            Fault::Connection(error) => self.close_because(error, now),
            Fault::Session(error) => self.end_because(channel, error),
            Fault::Link(link, error) => self.detach_because(link, error),
        }
    }

    /// A peer that takes no frames large enough for what it asks cannot be served.
    fn check_overflow(&mut self, now: Duration) {
        if self.wire.has_overflowed() {
            let text =
                format!("the response does not fit into {} bytes", self.wire.frame_bytes_max);
            let error = AmqpError::new(condition::FRAME_SIZE_TOO_SMALL, text);
            self.close_because(error, now);
        }
    }

    /// A number for a session or link.
    pub(crate) const fn next_generation(&mut self) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }
}

/// The way out.
#[derive(Debug)]
pub(crate) struct Wire {
    output: Output,
    /// Not written yet, since the next one may go on where it ends.
    pending: Option<Pending>,
    /// The largest frame that may be sent.
    pub(crate) frame_bytes_max: u32,
    /// Something was written since this was last looked at.
    wrote: bool,
    /// A frame was not written, because the peer does not take any so large.
    overflowed: bool,
}

/// A range of deliveries that share what became of them.
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

    /// How many bytes wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.remaining()
    }

    /// What is to be written.
    pub(crate) fn output(&mut self) -> &mut Output {
        self.flush();
        &mut self.output
    }

    /// Whether something was written since this was last asked.
    pub(crate) fn has_written(&mut self) -> bool {
        std::mem::take(&mut self.wrote)
    }

    /// Whether a frame could not be written since this was last asked.
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
        self.wrote |= self.output.frame(Kind::Sasl, 0, body, usize::MAX).is_ok();
    }

    pub(crate) fn frame<L: List>(&mut self, channel: u16, body: &L) {
        self.flush();
        self.put(channel, body);
    }

    fn put<L: List>(&mut self, channel: u16, body: &L) {
        let bytes_max = self.frame_bytes();
        let mut write = |body: &L| self.output.frame(Kind::Amqp, channel, body, bytes_max);
        let written = write(body).or_else(|beyond| {
            // What is said to people is cut, rather than not said at all (AMQP-90).
            body.shortened(beyond).map_or(Err(beyond), |shorter| write(&shorter))
        });
        match written {
            Ok(()) => self.wrote = true,
            Err(_) => self.overflowed = true,
        }
    }

    /// A frame of which the caller has cut the payload to size.
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

    /// The largest frame that may be sent.
    pub(crate) fn frame_bytes(&self) -> usize {
        usize::try_from(self.frame_bytes_max).unwrap_or(usize::MAX)
    }

    /// Settles a delivery with this state.
    pub(crate) fn dispose(&mut self, channel: u16, role: Role, id: u32, state: DeliveryState) {
        self.dispose_range(channel, role, (id, id), state);
    }

    /// Settles a range of deliveries with this state.
    pub(crate) fn dispose_range(
        &mut self,
        channel: u16,
        role: Role,
        (first, last): (u32, u32),
        state: DeliveryState,
    ) {
        self.hold_back(Pending { channel, role, first, last, settled: true, state });
    }

    /// Reports the state of a delivery that is not settled with it (AMQ-15, AMQP-66).
    pub(crate) fn dispose_open(&mut self, channel: u16, role: Role, id: u32, state: DeliveryState) {
        self.hold_back(Pending { channel, role, first: id, last: id, settled: false, state });
    }

    /// Merges a disposition with the previous one if both form one range.
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

    /// Writes what was held back.
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
