//! Runs a connection with an arbitrary broker on arbitrary input, and checks that the connection
//! ends, stays within its memory limits, and writes readable frames.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use peeklock_amqp::connection::{
    Config, Connection, Continuation, Event, LinkId, ReceivedId, SessionId,
};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::frame::Frame;
use peeklock_amqp::link::{Answer, Delivery};
use peeklock_amqp::performative::{DeliveryTag, Performative, Role};
use peeklock_amqp::state::DeliveryState;

/// Low limits for [`connection`], so that runs reach them.
#[must_use]
pub fn config() -> Config {
    Config {
        sasl_required: false,
        frame_bytes_max: 4 << 10,
        channel_max: 3,
        handle_max: 7,
        link_count_max: 6,
        incoming_window: 8,
        unanswered_max: 6,
        unsettled_max: 5,
        output_bytes_max: 4 << 10,
        ..Config::default()
    }
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Number of events.
    pub event_count: usize,
    /// Number of frames that the connection wrote.
    pub frame_count: usize,
    /// Whether the connection has ended.
    pub over: bool,
}

/// The state of the arbitrary broker.
#[derive(Default)]
struct Broker {
    links: Vec<LinkId>,
    sessions: Vec<SessionId>,
    awaiting: Vec<ReceivedId>,
    turn: u64,
}

/// Passes `script` to a new connection without SASL, in pieces of `piece_bytes`.
///
/// # Panics
/// If a check fails.
#[must_use]
pub fn connection(script: &[u8], piece_bytes: usize) -> Run {
    run(&config(), script, piece_bytes)
}

/// Passes `script` to a new connection that requires SASL, in pieces of `piece_bytes`.
///
/// # Panics
/// If a check fails.
#[must_use]
pub fn login(script: &[u8], piece_bytes: usize) -> Run {
    run(&Config { sasl_required: true, ..config() }, script, piece_bytes)
}

fn run(config: &Config, script: &[u8], piece_bytes: usize) -> Run {
    let mut connection = Connection::new(config.clone());
    let mut broker = Broker::default();
    let mut run = Run::default();
    let mut input = BytesMut::new();
    let mut heard = BytesMut::new();
    let mut header_bytes = 0;
    for (index, piece) in script.chunks(piece_bytes.max(1)).enumerate() {
        let now = Duration::from_millis(index as u64);
        input.extend_from_slice(piece);
        // Each byte can cause a few events at most, and each disposition at most one event per
        // unsettled delivery.
        let turns_max = 64 + input.len() * 4;
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < turns_max, "it does not come to an end");
            let event = connection.next_event(&mut input, now);
            let idle = event.is_none() && !connection.is_full();
            run.event_count += usize::from(event.is_some());
            if let Some(event) = event {
                broker.react(&mut connection, event, now);
            }
            check(&mut connection, config, &broker);
            if connection.is_full() || idle {
                let output = connection.output(now);
                while output.has_remaining() {
                    // As a socket takes it, regardless of the borders of pieces.
                    let count = piece_bytes.max(1).min(output.remaining());
                    heard.extend_from_slice(&output.copy_to_bytes(count));
                }
            }
            if idle {
                break;
            }
        }
        let left_max = usize::try_from(config.frame_bytes_max).unwrap_or(0).max(8 << 10);
        assert!(input.len() < left_max, "{} bytes are not understood", input.len());
        connection.tick(now);
        // The output begins with at most one header.
        if header_bytes == 0 && heard.len() >= 8 {
            header_bytes = 8;
            heard.advance(8);
        }
        while let Ok(Some(frame)) = Frame::split(&mut heard, u32::MAX) {
            run.frame_count += 1;
            let readable = frame.body.is_empty() || Performative::read(&frame.body).is_ok();
            let sasl = frame.kind == peeklock_amqp::frame::FrameType::Sasl;
            assert!(readable || sasl, "an answer cannot be read: {frame:?}");
        }
    }
    run.over = connection.is_over();
    run
}

/// Checks the invariants, which hold at any time.
fn check(connection: &mut Connection, config: &Config, broker: &Broker) {
    for session in &broker.sessions {
        assert!(connection.unsettled_count(*session) <= config.unsettled_max);
    }
    connection.check_invariants();
}

impl Broker {
    fn react(&mut self, connection: &mut Connection, event: Event, now: Duration) {
        self.turn += 1;
        match event {
            Event::Login(_) => connection.admit(),
            Event::Begun(session) => self.sessions.push(session),
            Event::Attached { link, attach } => {
                if self.turn.is_multiple_of(5) {
                    connection.refuse(link, AmqpError::new("amqp:not-found", "no"));
                } else if connection.accept(link, Answer::echo(&attach)) {
                    self.links.push(link);
                    if attach.role == Role::Sender {
                        connection.grant(link, 10);
                    }
                }
            }
            Event::Credit { link, drain, .. } => {
                self.send(connection, link);
                if drain {
                    connection.drained(link);
                }
            }
            Event::Received { part, .. } => {
                if part.continuation == Continuation::Whole && !part.settled {
                    self.awaiting.push(part.delivery);
                }
                if self.turn.is_multiple_of(3) {
                    for delivery in self.awaiting.drain(..) {
                        connection.dispose_received(delivery, DeliveryState::accepted());
                    }
                }
            }
            Event::Disposition { delivery, state, settled, .. } => {
                if !settled {
                    connection.dispose_sent(delivery, state.unwrap_or(DeliveryState::accepted()));
                }
            }
            Event::Detached { link, .. } => connection.detach(link, None),
            Event::Ended { session, .. } => self.sessions.retain(|other| *other != session),
            Event::Opened(_) | Event::Failed { .. } | Event::Closed { .. } => {}
        }
        // The broker ends a link from time to time.
        if self.turn.is_multiple_of(97)
            && let Some(link) = self.links.pop()
        {
            connection.abort(link);
            connection.detach(link, None);
        }
        if self.turn.is_multiple_of(991) {
            connection.close(None, now);
        }
    }

    fn send(&self, connection: &mut Connection, link: LinkId) {
        let settled = self.turn.is_multiple_of(2);
        while connection.can_send(link) {
            let Some(tag) = DeliveryTag::new(&self.turn.to_be_bytes()) else {
                return;
            };
            let payload = vec![Bytes::from_static(&[7; 3_000]), Bytes::from_static(&[8; 10])];
            if connection.send(link, Delivery { tag, settled, payload }).is_err() {
                return;
            }
        }
    }
}
