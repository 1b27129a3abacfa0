//! An AMQP 1.0 server without a broker: it gives the upper bound for measurements of clients, and
//! is the smallest driver of the machines of this crate.
//!
//! Every login succeeds, every message is accepted and dropped, and receivers get copies of a
//! message of 1 KiB as fast as credit and windows allow. So no client can be faster with a broker
//! than with this server. It has no storage and no rights. A single thread serves all connections
//! of loopback, and they end with the process.
//!
//! ```console
//! cargo run --release -p peeklock-amqp --example nothing -- --port 5672
//! ```
//!
//! Without `--port` it listens on a free port. It prints its address. `benches/sdk/run` measures
//! with it.

#![allow(clippy::print_stdout, reason = "it prints its address")]

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Buf as _, Bytes, BytesMut};
use peeklock_amqp::connection::{Config, Connection, Continuation, Event, LinkId, MessagePart};
use peeklock_amqp::error::{AmqpError, condition};
use peeklock_amqp::link::Assembly;
use peeklock_amqp::link::{Answer, Delivery};
use peeklock_amqp::message::{Stamps, encode};
use peeklock_amqp::performative::{Attach, DeliveryTag, Role, SenderSettleMode};
use peeklock_amqp::state::{DeliveryState, Outcome, Rejected};
use peeklock_amqp::terminus::Target;
use peeklock_words::message::{Content, Message, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep_until;

/// Credit of a sending client before it is renewed (AMQP-40).
const SENDER_CREDIT: u32 = 1_000;
const BODY_BYTES: usize = 1 << 10;
const READ_BYTES: usize = 64 << 10;
/// Longer than any measurement.
const LOCK: Duration = Duration::from_hours(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => 0,
        (Some("--port"), Some(port)) => port.parse()?,
        _ => return Err("usage: nothing [--port PORT]".into()),
    };
    let message = message()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        println!("amqp://{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(stream, message.clone()));
        }
    })
}

/// Message for all receivers, with all data that a broker adds (AMQP-56).
fn message() -> Result<Bytes, std::time::SystemTimeError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let ms = |since: Duration| i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    // As long as the broker's own values (AMQP-44).
    let id = format!("{:032x}", 1);
    let content = Message::new(vec![b'x'; BODY_BYTES]).with_message_id(id).encode();
    let stamps = Stamps {
        sequence_number: 1,
        enqueued_sequence_number: Some(1),
        enqueued_at_ms: ms(now),
        locked_until_ms: Some(ms(now + LOCK)),
        lock_token: Some(1),
        ..Stamps::default()
    };
    Ok(encode(&content, &[], &stamps).concat().into())
}

/// Drives the machine of a connection: received bytes go in, its output is written.
async fn serve(mut stream: TcpStream, message: Bytes) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = stream.split();
    let began = Instant::now();
    let mut peer = Peer::new(message);
    let mut input = BytesMut::new();
    loop {
        let now = began.elapsed();
        while let Some(event) = peer.amqp.next_event(&mut input, now) {
            peer.happened(event);
        }
        peer.deliver();
        let may_read = !peer.amqp.is_full();
        let is_over = peer.amqp.is_over();
        // A connection that is neither open nor over has a deadline too.
        let due = began + peer.amqp.deadline().unwrap_or(now + LOCK);
        let output = peer.amqp.output(now);
        if is_over && !output.has_remaining() {
            return Ok(());
        }
        input.reserve(READ_BYTES);
        tokio::select! {
            biased;
            written = writer.write_buf(output), if output.has_remaining() => {
                written?;
            }
            read = reader.read_buf(&mut input), if may_read => {
                if read? == 0 {
                    return Ok(());
                }
            }
            () = sleep_until(due.into()) => peer.amqp.tick(began.elapsed()),
        }
    }
}

/// A connection and the state of its links.
struct Peer {
    amqp: Connection,
    links: BTreeMap<LinkId, Node>,
    message: Bytes,
    sent_count: u128,
}

/// Purpose of a link.
enum Node {
    /// The client sends messages, which are dropped.
    Inlet,
    /// The client receives; `settled` is whether deliveries are sent settled (AMQP-55).
    Outlet { settled: bool },
    /// The client puts tokens; the value is the part of a token that has arrived.
    Tokens(Assembly),
    /// The client receives the answers to its tokens.
    Answers,
}

impl Peer {
    fn new(message: Bytes) -> Self {
        let amqp = Connection::new(Config { container_id: "nothing".into(), ..Config::default() });
        Self { amqp, links: BTreeMap::new(), message, sent_count: 0 }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Login(_) => self.amqp.admit(),
            Event::Attached { link, attach } => self.attach(link, &attach),
            Event::Received { link, part } => self.received(link, part),
            Event::Disposition { delivery, state, settled: false, .. } => {
                self.amqp.dispose_sent(delivery, answer_to(state));
            }
            Event::Detached { link, .. } => {
                self.links.remove(&link);
                self.amqp.detach(link, None);
            }
            Event::Failed { link, .. } => {
                self.links.remove(&link);
            }
            Event::Ended { session, .. } => self.links.retain(|link, _| link.session() != session),
            // The machine counts credit, and a settled delivery needs no answer.
            Event::Opened(_)
            | Event::Begun(_)
            | Event::Credit { .. }
            | Event::Disposition { .. }
            | Event::Closed { .. } => {}
        }
    }

    /// Accepts any link of a queue and of `$cbs` (AMQP-20, AMQP-34).
    fn attach(&mut self, link: LinkId, attach: &Attach) {
        let address = match attach.role {
            Role::Sender => attach.target.as_ref().and_then(Target::address),
            Role::Receiver => attach.source.as_ref().and_then(|source| source.address()),
        };
        let last = address.and_then(|address| address.rsplit('/').next());
        let node = match (last, attach.role) {
            (None | Some("$management"), _) => {
                let error = AmqpError::new(condition::NOT_IMPLEMENTED, "nothing is behind this");
                return self.amqp.refuse(link, error);
            }
            (Some("$cbs"), Role::Sender) => Node::Tokens(Assembly::default()),
            (Some("$cbs"), Role::Receiver) => Node::Answers,
            (Some(_), Role::Sender) => Node::Inlet,
            (Some(_), Role::Receiver) => {
                Node::Outlet { settled: attach.snd_settle_mode == Some(SenderSettleMode::Settled) }
            }
        };
        if self.amqp.accept(link, Answer::echo(attach)) {
            self.links.insert(link, node);
            // Has no effect if the client receives.
            self.amqp.grant(link, SENDER_CREDIT);
        }
    }

    /// Accepts a complete message, and drops it (AMQP-41).
    fn received(&mut self, link: LinkId, part: MessagePart) {
        if let Some(Node::Tokens(request)) = self.links.get_mut(&link) {
            match part.continuation {
                Continuation::Void => *request = Assembly::default(),
                _ => request.push(part.payload),
            }
        }
        let state = match part.continuation {
            Continuation::More | Continuation::Void => return,
            Continuation::Whole => DeliveryState::accepted(),
            Continuation::TooLarge(bytes) => {
                let text = format!("message of {bytes} bytes is too large");
                DeliveryState::rejected(AmqpError::new(condition::MESSAGE_SIZE_EXCEEDED, text))
            }
        };
        if !part.settled {
            // The machine merges consecutive dispositions.
            self.amqp.dispose_received(part.delivery, state);
        }
        if self.amqp.credit(link) <= SENDER_CREDIT / 2 {
            self.amqp.grant(link, SENDER_CREDIT);
        }
        if let Some(Node::Tokens(request)) = self.links.get_mut(&link) {
            let request = std::mem::take(request).join();
            self.welcome(link, request);
        }
    }

    /// Answers any token as valid, on the answer link of the same session (AMQP-21, AMQP-22).
    /// Without credit on that link, the answer is dropped.
    fn welcome(&mut self, request_link: LinkId, request: Bytes) {
        let Ok(request) = Content::parse(request).and_then(|request| request.decode()) else {
            return;
        };
        let mut answer = Message::new("")
            .with_application_property("status-code", Value::I32(202))
            .with_application_property("status-description", "Accepted");
        answer.correlation_id = request.message_id;
        let to = self.links.iter().find(|(link, node)| {
            link.session() == request_link.session() && matches!(node, Node::Answers)
        });
        if let Some((&to, _)) = to {
            self.send(to, answer.encode().as_bytes().clone(), true);
        }
    }

    /// Sends messages while credit, windows and the output have room (AMQP-50).
    fn deliver(&mut self) {
        let outlets: Vec<(LinkId, bool)> = self
            .links
            .iter()
            .filter_map(|(link, node)| match node {
                Node::Outlet { settled } => Some((*link, *settled)),
                _ => None,
            })
            .collect();
        for (link, settled) in outlets {
            while self.send(link, self.message.clone(), settled) {}
            if self.amqp.credit(link) == 0 {
                // Only a drain needs an answer (AMQP-51).
                self.amqp.drained(link);
            }
        }
    }

    /// Sends a message if there is room; returns whether it was sent.
    fn send(&mut self, link: LinkId, payload: Bytes, settled: bool) -> bool {
        if !self.amqp.can_send(link) {
            return false;
        }
        self.sent_count += 1;
        // 16 bytes, the length of a lock token (AMQP-54).
        let Some(tag) = DeliveryTag::new(&self.sent_count.to_be_bytes()) else { return false };
        self.amqp.send(link, Delivery { tag, settled, payload: vec![payload] }).is_ok()
    }
}

/// Returns the outcome of the client without an error, which would mean that the settlement failed
/// (AMQP-60, AMQP-61).
fn answer_to(state: Option<DeliveryState>) -> DeliveryState {
    match state {
        Some(DeliveryState::Outcome(Outcome::Rejected(_))) => {
            DeliveryState::Outcome(Outcome::Rejected(Rejected::default()))
        }
        Some(state) => state,
        None => DeliveryState::accepted(),
    }
}
