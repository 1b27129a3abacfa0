//! A client of tests: it sends scripted frames, and reads the frames of the broker.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpStream as StdStream};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::frame::Frame;
use peeklock_amqp::performative::{
    Attach, Begin, DeliveryTag, Detach, Disposition, Flow, Open, Performative, ReceiverSettleMode,
    Role, SenderSettleMode, Transfer,
};
use peeklock_amqp::state::DeliveryState;
use peeklock_amqp::terminus::{Source, Target};
use peeklock_core::message::{Content, Message};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::types;

const AMQP: &[u8] = b"AMQP\x00\x01\x00\x00";
const SASL: &[u8] = b"AMQP\x03\x01\x00\x00";

thread_local! {
    /// Sockets of the clients of a test.
    static SOCKETS: RefCell<Vec<Weak<StdStream>>> = RefCell::default();
}

/// Shuts down the sockets of all clients of this test. A listener that stops would wait for them,
/// and they answer no more.
pub fn hang_up() {
    for socket in SOCKETS.take().iter().filter_map(Weak::upgrade) {
        // Some are closed already.
        socket.shutdown(Shutdown::Both).ok();
    }
}

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub struct Client {
    stream: Box<dyn Stream>,
    /// Socket for [`hang_up`].
    _socket: Option<Arc<StdStream>>,
    heard: BytesMut,
    next_delivery: u32,
    /// Session in which it sends.
    channel: u16,
    /// Number of bytes of a message per frame.
    pub frame_bytes: usize,
    /// Whether flows are skipped while it waits for a message.
    pub passes_flows: bool,
    /// Frames that were read while it waited for another one.
    put_aside: VecDeque<(Performative, Bytes)>,
    /// Bytes that are written together with later ones.
    held_back: Option<Vec<u8>>,
}

/// A `sasl-init`.
fn init(mechanism: &str, response: &[u8]) -> Vec<u8> {
    let mut fields = vec![0xa3, u8::try_from(mechanism.len()).unwrap()];
    fields.extend(mechanism.as_bytes());
    fields.push(0xb0);
    fields.extend(u32::try_from(response.len()).unwrap().to_be_bytes());
    fields.extend(response);
    let mut body = vec![0x00, 0x53, 0x41, 0xd0];
    body.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
    body.extend([0, 0, 0, 2]);
    body.extend(fields);
    frame(1, 0, &body)
}

fn frame(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len() + 8).unwrap().to_be_bytes().to_vec();
    frame.extend([2, kind]);
    frame.extend(channel.to_be_bytes());
    frame.extend(body);
    frame
}

impl Client {
    /// Logs in; returns the client and the code of the outcome.
    pub async fn log_in(address: SocketAddr, mechanism: &str, response: &[u8]) -> (Self, u8) {
        let stream = TcpStream::connect(address).await.unwrap();
        // Frames are written one by one, and none may wait for the acknowledgement of its
        // predecessor.
        stream.set_nodelay(true).unwrap();
        let socket = Arc::new(StdStream::from(stream.as_fd().try_clone_to_owned().unwrap()));
        SOCKETS.with_borrow_mut(|sockets| sockets.push(Arc::downgrade(&socket)));
        let (client, code) = Self::log_in_over(Box::new(stream), mechanism, response).await;
        (Self { _socket: Some(socket), ..client }, code)
    }

    /// Logs in over another stream than a socket.
    pub async fn log_in_over(
        stream: Box<dyn Stream>,
        mechanism: &str,
        response: &[u8],
    ) -> (Self, u8) {
        let mut client = Self {
            stream,
            _socket: None,
            heard: BytesMut::new(),
            next_delivery: 0,
            channel: 0,
            frame_bytes: 60_000,
            passes_flows: false,
            put_aside: VecDeque::new(),
            held_back: None,
        };
        client.stream.write_all(SASL).await.unwrap();
        client.stream.write_all(&init(mechanism, response)).await.unwrap();
        assert_eq!(client.bytes(8).await, SASL);
        let offered = client.frame().await.unwrap();
        assert!(offered.windows(9).any(|part| part == b"ANONYMOUS"));
        assert!(offered.windows(7).any(|part| part == b"MSSBCBS"));
        let outcome = client.frame().await.unwrap();
        assert_eq!(outcome[..3], [0x00, 0x53, 0x44]);
        let code = *outcome.last().unwrap();
        (client, if outcome[outcome.len() - 2] == 0x50 { code } else { 255 })
    }

    /// A client with a session on channel 0.
    pub async fn open(address: SocketAddr) -> Self {
        let (mut client, code) = Self::log_in(address, "ANONYMOUS", b"").await;
        assert_eq!(code, 0);
        client.begin().await;
        client
    }

    /// A client with this maximum frame size and incoming window.
    pub async fn open_with(address: SocketAddr, open: Open, incoming_window: u32) -> Self {
        let (mut client, code) = Self::log_in(address, "ANONYMOUS", b"").await;
        assert_eq!(code, 0);
        client.begin_with(open, incoming_window).await;
        client
    }

    pub async fn begin(&mut self) {
        self.begin_with(Open::default(), 1_000).await;
    }

    async fn begin_with(&mut self, open: Open, incoming_window: u32) {
        self.stream.write_all(AMQP).await.unwrap();
        let open = Open { container_id: "client".into(), ..open };
        self.send_frame(&Performative::Open(Box::new(open))).await;
        let begin = Begin { incoming_window, outgoing_window: 1_000, ..Begin::default() };
        self.send_frame(&Performative::Begin(Box::new(begin))).await;
        assert_eq!(self.bytes(8).await, AMQP);
        assert!(matches!(self.next_frame().await, (Performative::Open(_), _)));
        assert!(matches!(self.next_frame().await, (Performative::Begin(_), _)));
    }

    /// Begins another session and sends in it from now on.
    pub async fn begin_on(&mut self, channel: u16) {
        self.channel = channel;
        let begin = Begin { incoming_window: 1_000, outgoing_window: 1_000, ..Begin::default() };
        self.send_frame(&Performative::Begin(Box::new(begin))).await;
        assert!(matches!(self.next_frame().await, (Performative::Begin(_), _)));
    }

    /// Restarts the delivery ids at 0, as in a new session.
    pub const fn restart_deliveries(&mut self) {
        self.next_delivery = 0;
    }

    /// Sends in a session that was begun.
    pub const fn on(&mut self, channel: u16) {
        self.channel = channel;
    }

    async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.heard.len() < count {
            assert_ne!(self.stream.read_buf(&mut self.heard).await.unwrap(), 0, "closed");
        }
        self.heard.split_to(count).to_vec()
    }

    async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = Frame::split(&mut self.heard, u32::MAX).unwrap() {
                return Some(frame.body);
            }
            if self.stream.read_buf(&mut self.heard).await.unwrap() == 0 {
                return None;
            }
        }
    }

    /// Returns whether the broker has closed the socket.
    pub async fn is_closed(&mut self) -> bool {
        self.frame().await.is_none()
    }

    /// Ends its sending direction, and can still read.
    pub async fn leave(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    pub async fn send_frame(&mut self, performative: &Performative) {
        self.say_with(performative, &[]).await;
    }

    pub async fn say_with(&mut self, performative: &Performative, payload: &[u8]) {
        let mut body = Vec::new();
        performative.write(&mut body);
        body.extend_from_slice(payload);
        let frame = frame(0, self.channel, &body);
        match &mut self.held_back {
            Some(held_back) => held_back.extend(frame),
            None => self.stream.write_all(&frame).await.unwrap(),
        }
    }

    /// Collects frames from now on, so that the broker reads them together.
    pub fn hold_back(&mut self) {
        self.held_back = Some(Vec::new());
    }

    /// Writes the collected frames.
    pub async fn let_go(&mut self) {
        let held_back = self.held_back.take().unwrap();
        self.stream.write_all(&held_back).await.unwrap();
    }

    /// Returns the next frame of the broker that is not empty.
    pub async fn next_frame(&mut self) -> (Performative, Bytes) {
        if let Some(heard) = self.put_aside.pop_front() {
            return heard;
        }
        self.listen().await
    }

    /// Returns the body of the next frame, which may be empty; `None` if the connection is closed.
    pub async fn any_frame(&mut self) -> Option<Bytes> {
        self.frame().await
    }

    async fn listen(&mut self) -> (Performative, Bytes) {
        loop {
            let body = self.frame().await.expect("the connection is closed");
            if !body.is_empty() {
                types::check_first(&body);
                return Performative::read(&body).unwrap();
            }
        }
    }

    /// Attaches a sender and takes its credit; returns the condition of a refusal.
    pub async fn sender(&mut self, handle: u32, address: &str) -> Result<(), String> {
        self.attach_sender(Self::sender_of(handle, address)).await.map(drop)
    }

    /// Attaches a sender and takes its credit; returns the answer, or the condition of a refusal.
    pub async fn attach_sender(&mut self, attach: Attach) -> Result<Box<Attach>, String> {
        self.send_frame(&Performative::Attach(Box::new(attach))).await;
        let (Performative::Attach(answer), _) = self.next_frame().await else { panic!() };
        if answer.target.is_none() {
            return Err(self.detached().await);
        }
        let (Performative::Flow(flow), _) = self.next_frame().await else { panic!() };
        assert!(flow.link_credit > Some(0));
        Ok(answer)
    }

    /// Attaches a receiver without credit; returns the condition of a refusal.
    pub async fn receiver(
        &mut self,
        handle: u32,
        address: &str,
        mode: SenderSettleMode,
    ) -> Result<(), String> {
        self.attach_receiver(Self::receiver_of(handle, address, mode)).await.map(drop)
    }

    /// The `attach` of a receiver.
    pub fn receiver_of(handle: u32, address: &str, mode: SenderSettleMode) -> Attach {
        Attach {
            name: format!("r{handle}").into(),
            handle,
            role: Role::Receiver,
            snd_settle_mode: Some(mode),
            rcv_settle_mode: Some(ReceiverSettleMode::Second),
            source: Some(Source::at(address)),
            target: Some(Target::at("client")),
            ..Attach::default()
        }
    }

    /// The `attach` of a sender.
    pub fn sender_of(handle: u32, address: &str) -> Attach {
        Attach {
            name: format!("s{handle}").into(),
            handle,
            role: Role::Sender,
            source: Some(Source::at("client")),
            target: Some(Target::at(address)),
            initial_delivery_count: Some(0),
            ..Attach::default()
        }
    }

    /// Attaches a receiver; returns the answer, or the condition of a refusal.
    pub async fn attach_receiver(&mut self, attach: Attach) -> Result<Box<Attach>, String> {
        self.send_frame(&Performative::Attach(Box::new(attach))).await;
        let (Performative::Attach(answer), _) = self.next_frame().await else { panic!() };
        if answer.source.is_none() {
            return Err(self.detached().await);
        }
        Ok(answer)
    }

    /// Attaches a receiver that must be refused; returns the error.
    pub async fn refused_receiver(&mut self, attach: Attach) -> AmqpError {
        self.send_frame(&Performative::Attach(Box::new(attach))).await;
        let (Performative::Attach(answer), _) = self.next_frame().await else { panic!() };
        assert!(answer.source.is_none() && answer.target.is_none());
        self.detached_for().await.expect("an error")
    }

    /// Returns the condition with which a link is detached.
    pub async fn detached(&mut self) -> String {
        let error = self.detached_for().await;
        error.map(|error| error.condition().to_owned()).unwrap_or_default()
    }

    /// Returns the error with which a link is detached, if there is one.
    async fn detached_for(&mut self) -> Option<AmqpError> {
        let (Performative::Detach(detach), _) = self.next_frame().await else { panic!() };
        assert!(detach.closed);
        detach.error
    }

    /// Detaches a link and waits for the answer.
    pub async fn detach(&mut self, handle: u32) {
        let detach = Detach { handle, closed: true, error: None };
        self.send_frame(&Performative::Detach(detach)).await;
        assert_eq!(self.detached().await, "");
    }

    /// Announces a window of this many frames after the ones it has got.
    pub async fn window(&mut self, next_incoming_id: u32, incoming_window: u32) {
        let flow = Flow {
            next_incoming_id: Some(next_incoming_id),
            incoming_window,
            next_outgoing_id: 0,
            outgoing_window: 1_000,
            ..Flow::default()
        };
        self.send_frame(&Performative::Flow(flow)).await;
    }

    pub async fn credit(&mut self, handle: u32, delivery_count: u32, credit: u32, drain: bool) {
        self.credit_within(handle, delivery_count, credit, drain, 1_000).await;
    }

    /// Grants credit, with a window of this many frames counted from the first.
    pub async fn credit_within(
        &mut self,
        handle: u32,
        delivery_count: u32,
        credit: u32,
        drain: bool,
        incoming_window: u32,
    ) {
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window,
            next_outgoing_id: 0,
            outgoing_window: 1_000,
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(credit),
            drain,
            ..Flow::default()
        };
        self.send_frame(&Performative::Flow(flow)).await;
    }

    /// Sends bytes as a single delivery.
    pub async fn send(&mut self, handle: u32, format: u32, settled: bool, bytes: &[u8]) {
        self.send_in(handle, format, settled, None, bytes).await;
    }

    /// Sends bytes as a single delivery in a transaction.
    pub async fn send_in(
        &mut self,
        handle: u32,
        format: u32,
        settled: bool,
        state: Option<DeliveryState>,
        bytes: &[u8],
    ) {
        let id = self.next_delivery;
        self.next_delivery += 1;
        let mut parts = bytes.chunks(self.frame_bytes).peekable();
        let mut first = true;
        while let Some(part) = parts.next() {
            let transfer = Transfer {
                handle,
                delivery_id: first.then_some(id),
                delivery_tag: first.then(|| DeliveryTag::new(&id.to_be_bytes()).unwrap()),
                message_format: first.then_some(format),
                settled: Some(settled),
                state: state.clone().filter(|_| first),
                more: parts.peek().is_some(),
                ..Transfer::default()
            };
            self.say_with(&Performative::Transfer(transfer), part).await;
            first = false;
        }
    }

    /// Begins a delivery and aborts it.
    pub async fn abort(&mut self, handle: u32, state: Option<DeliveryState>) {
        let id = self.next_delivery;
        self.next_delivery += 1;
        let begun = Transfer {
            handle,
            delivery_id: Some(id),
            delivery_tag: DeliveryTag::new(&id.to_be_bytes()),
            state,
            more: true,
            ..Transfer::default()
        };
        self.say_with(&Performative::Transfer(begun), b"x").await;
        let aborted = Transfer { handle, aborted: true, ..Transfer::default() };
        self.send_frame(&Performative::Transfer(aborted)).await;
    }

    /// Returns the final state of a delivery that it has sent.
    pub async fn disposed(&mut self) -> (u32, DeliveryState) {
        let disposition = self.disposition().await;
        assert!(disposition.settled);
        (disposition.first, disposition.state.unwrap())
    }

    async fn disposition(&mut self) -> Disposition {
        loop {
            match self.next_frame().await {
                (Performative::Disposition(disposition), _) => return disposition,
                (Performative::Flow(_), _) if self.passes_flows => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the next message of the broker, with its first transfer.
    pub async fn message(&mut self) -> (Transfer, Content) {
        let mut whole = BytesMut::new();
        let mut first = None;
        loop {
            let (transfer, payload) = match self.next_frame().await {
                (Performative::Transfer(transfer), payload) => (transfer, payload),
                (Performative::Flow(_), _) if self.passes_flows => continue,
                other => panic!("{other:?}"),
            };
            whole.extend_from_slice(&payload);
            let more = transfer.more;
            let first = first.get_or_insert(transfer).clone();
            if !more {
                let content = Content::parse(whole.freeze()).unwrap();
                types::check(content.sections().header);
                types::check(content.sections().message_annotations);
                return (first, content);
            }
        }
    }

    /// Sends an outcome for a delivery and waits for the answer.
    pub async fn settle(&mut self, id: u32, state: DeliveryState) -> DeliveryState {
        let disposition = Disposition {
            role: Role::Receiver,
            first: id,
            last: None,
            settled: false,
            state: Some(state),
            batchable: false,
        };
        self.send_frame(&Performative::Disposition(disposition)).await;
        self.outcome_of(id).await
    }

    /// Settles a delivery in a transaction; the answer leaves it unsettled (AMQP-66).
    pub async fn settle_within(&mut self, id: u32, state: DeliveryState) -> DeliveryState {
        self.say_of(id, state, false).await;
        let disposition = self.disposition().await;
        assert_eq!((disposition.role, disposition.first), (Role::Sender, id));
        assert!(!disposition.settled, "the delivery stays open on its link");
        disposition.state.unwrap()
    }

    /// Sends a settled outcome for a delivery, which gets no answer.
    pub async fn settle_for_good(&mut self, id: u32, state: DeliveryState) {
        self.say_of(id, state, true).await;
    }

    /// Sends a state for a delivery.
    pub async fn say_of(&mut self, id: u32, state: DeliveryState, settled: bool) {
        let disposition = Disposition {
            role: Role::Receiver,
            first: id,
            last: None,
            settled,
            state: Some(state),
            batchable: false,
        };
        self.send_frame(&Performative::Disposition(disposition)).await;
    }

    async fn outcome_of(&mut self, id: u32) -> DeliveryState {
        let (answered, state) = self.disposed().await;
        assert_eq!(answered, id);
        state
    }
}

/// An encoded message with this text.
pub fn text(text: &str) -> Bytes {
    Message::new(text.to_owned()).encode().as_bytes().clone()
}
