//! A client of tests: it sends scripted frames, and reads the frames of the broker.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use peeklock_amqp::connection::{Config, Connection, Event, LinkId, SessionId};
use peeklock_amqp::frame::Frame;
use peeklock_amqp::link::Answer;
use peeklock_amqp::performative::{
    Attach, Begin, DeliveryTag, Flow, Open, Performative, ReceiverSettleMode, Role,
    SenderSettleMode, Transfer,
};
use peeklock_amqp::terminus::{Source, Target};

pub const AMQP: &[u8] = b"AMQP\x00\x01\x00\x00";
pub const SASL: &[u8] = b"AMQP\x03\x01\x00\x00";

/// A frame from the broker.
pub type Heard = (u16, Performative, Bytes);

pub struct Client {
    pub connection: Connection,
    pub input: BytesMut,
    pub now: Duration,
    /// Bytes from the broker that the test has not read yet.
    heard: BytesMut,
}

impl Client {
    pub fn new(config: Config) -> Self {
        Self {
            connection: Connection::new(config),
            input: BytesMut::new(),
            now: Duration::ZERO,
            heard: BytesMut::new(),
        }
    }

    /// A client with an open connection, without SASL.
    pub fn open(config: Config) -> Self {
        Self::open_with(config, Open { container_id: "client".into(), ..Open::default() })
    }

    pub fn open_with(config: Config, open: Open) -> Self {
        let mut client = Self::new(Config { sasl_required: false, ..config });
        client.say_bytes(AMQP);
        client.send(0, &Performative::Open(Box::new(open.clone())));
        assert_eq!(client.event(), Some(Event::Opened(Box::new(open))));
        assert_eq!(client.hear_bytes(8), AMQP);
        assert!(matches!(client.receive()[..], [(0, Performative::Open(_), _)]));
        client
    }

    /// A client with an open connection and a session on channel 0.
    pub fn in_session(config: Config) -> (Self, SessionId) {
        let mut client = Self::open(config);
        let session = client.begin(0, 100);
        (client, session)
    }

    pub fn begin(&mut self, channel: u16, incoming_window: u32) -> SessionId {
        self.send(channel, &begin(incoming_window));
        let Some(Event::Begun(session)) = self.event() else {
            panic!("no session has begun");
        };
        assert!(
            matches!(self.receive()[..], [(heard, Performative::Begin(_), _)] if heard == channel)
        );
        session
    }

    /// Attaches a link, which the broker accepts.
    pub fn attach(&mut self, attach: Attach) -> LinkId {
        self.send(0, &Performative::Attach(Box::new(attach.clone())));
        let link = self.asked();
        assert!(self.connection.accept(link, Answer::echo(&attach)));
        assert!(matches!(self.receive()[..], [(0, Performative::Attach(_), _)]));
        link
    }

    pub fn asked(&mut self) -> LinkId {
        match self.event() {
            Some(Event::Attached { link, .. }) => link,
            other => panic!("{other:?} instead of an attach"),
        }
    }

    pub fn say_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    pub fn send(&mut self, channel: u16, performative: &Performative) {
        self.say_with(channel, performative, &[]);
    }

    pub fn say_with(&mut self, channel: u16, performative: &Performative, payload: &[u8]) {
        self.input.extend_from_slice(&frame(0, channel, performative, payload));
    }

    pub fn event(&mut self) -> Option<Event> {
        self.connection.next_event(&mut self.input, self.now)
    }

    /// Returns all events of the frames that were sent.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.event()).collect()
    }

    fn listen(&mut self) {
        let output = self.connection.output(self.now);
        self.heard.extend_from_slice(&output.copy_to_bytes(output.remaining()));
    }

    pub fn hear_bytes(&mut self, count: usize) -> Vec<u8> {
        self.listen();
        self.heard.split_to(count).to_vec()
    }

    /// Returns all further frames of the broker, without empty frames.
    pub fn receive(&mut self) -> Vec<Heard> {
        self.listen();
        let mut heard = Vec::new();
        while let Some(frame) = Frame::split(&mut self.heard, u32::MAX).unwrap() {
            if !frame.body.is_empty() {
                let (performative, payload) = Performative::read(&frame.body).unwrap();
                heard.push((frame.channel, performative, payload));
            }
        }
        assert!(self.heard.is_empty(), "half a frame");
        heard
    }

    /// Returns the error with which the connection ends.
    pub fn closed(&mut self) -> String {
        let events = self.events();
        let Some(Event::Closed { error: Some(error), by_client: false }) = events.last() else {
            panic!("{events:?} instead of the end");
        };
        let error = error.clone();
        match self.receive().pop() {
            Some((0, Performative::Close(close), _)) => {
                assert_eq!(close.error, Some(error.clone().with_transience()))
            }
            other => panic!("{other:?} instead of close"),
        }
        error.condition().to_owned()
    }

    /// Returns the error with which the session on channel 0 ends.
    pub fn ended(&mut self) -> String {
        let events = self.events();
        let Some(Event::Ended { error: Some(error), .. }) = events.last() else {
            panic!("{events:?} instead of the end");
        };
        let error = error.clone();
        match self.receive().pop() {
            Some((0, Performative::End(end), _)) => {
                assert_eq!(end.error, Some(error.clone().with_transience()))
            }
            other => panic!("{other:?} instead of end"),
        }
        error.condition().to_owned()
    }

    /// Returns the error with which a link is detached.
    pub fn failed(&mut self) -> String {
        let events = self.events();
        let Some(Event::Failed { error, .. }) = events.last() else {
            panic!("{events:?} instead of the end");
        };
        let error = error.clone();
        match self.receive().pop() {
            Some((0, Performative::Detach(detach), _)) => {
                assert_eq!(
                    (detach.closed, detach.error),
                    (true, Some(error.clone().with_transience()))
                );
            }
            other => panic!("{other:?} instead of detach"),
        }
        error.condition().to_owned()
    }
}

pub fn frame(kind: u8, channel: u16, performative: &Performative, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    performative.write(&mut body);
    body.extend_from_slice(payload);
    raw_frame(kind, channel, &body)
}

pub fn raw_frame(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len() + 8).unwrap().to_be_bytes().to_vec();
    frame.extend([2, kind]);
    frame.extend(channel.to_be_bytes());
    frame.extend(body);
    frame
}

pub fn begin(incoming_window: u32) -> Performative {
    Performative::Begin(Box::new(Begin {
        next_outgoing_id: 0,
        incoming_window,
        outgoing_window: 100,
        ..Begin::default()
    }))
}

/// A link on which the client sends.
pub fn sender(handle: u32) -> Attach {
    Attach {
        name: format!("sender-{handle}").into(),
        handle,
        role: Role::Sender,
        source: Some(Source::at("client")),
        target: Some(Target::at("orders")),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }
}

/// A link on which the client receives with locks.
pub fn receiver(handle: u32) -> Attach {
    Attach {
        name: format!("receiver-{handle}").into(),
        handle,
        role: Role::Receiver,
        snd_settle_mode: Some(SenderSettleMode::Unsettled),
        rcv_settle_mode: Some(ReceiverSettleMode::Second),
        source: Some(Source::at("orders")),
        target: Some(Target::at("client")),
        ..Attach::default()
    }
}

/// A flow of a session.
pub fn session_flow(next_incoming_id: u32, incoming_window: u32) -> Flow {
    Flow {
        next_incoming_id: Some(next_incoming_id),
        incoming_window,
        next_outgoing_id: 0,
        outgoing_window: 100,
        ..Flow::default()
    }
}

/// A flow that grants credit to a link.
pub fn credit(handle: u32, delivery_count: u32, link_credit: u32) -> Flow {
    Flow {
        handle: Some(handle),
        delivery_count: Some(delivery_count),
        link_credit: Some(link_credit),
        ..session_flow(0, 1_000)
    }
}

pub fn tag(tag: &[u8]) -> DeliveryTag {
    DeliveryTag::new(tag).unwrap()
}

/// The first frame of a message.
pub fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(tag(&id.to_be_bytes())),
        message_format: Some(0),
        ..Transfer::default()
    }
}
