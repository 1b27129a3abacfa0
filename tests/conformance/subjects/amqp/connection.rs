//! A connection that any number of operations use concurrently. One task reads and writes, and
//! passes frames to their link or delivery.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use peeklock_amqp::codec::list::List;
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::frame::Protocol;
use peeklock_amqp::performative::{
    Attach, Detach, Disposition, Flow, Open, Performative, Role, Transfer,
};
use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_amqp_testing::client::{Frames, Outgoing, Session};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::message::gone;
use crate::subject::Answer;

/// The session of all links, except in transactions across entities, each of which has its own
/// session.
pub const SHARED: u16 = 0;
/// The session of the coordinator of single-entity transactions (AMQP-98).
pub const APART: u16 = 1;

/// A frame for a link.
pub enum Heard {
    Attached(Box<Attach>),
    Flow(Flow),
    Transfer(Transfer, Bytes),
    Detached(Option<AmqpError>),
}

/// A connection with both sessions. Dropping it closes the socket without a close frame.
pub struct Connection {
    shared: Rc<Shared>,
    task: AbortHandle,
}

#[derive(Default)]
struct Shared {
    state: RefCell<State>,
    /// There are bytes to write.
    said: Notify,
    /// The broker has changed a window.
    windows: Notify,
}

#[derive(Default)]
struct State {
    frames: Frames,
    opened: Option<Box<Open>>,
    sessions: Vec<Session>,
    handles: Handles,
    links: HashMap<Place, Listener>,
    /// Links that this client has detached and the broker has not yet.
    detaching: HashSet<Place>,
    /// A counter of links, which distinguishes links with the same handle.
    linked: u64,
    /// Waiters for the outcomes of sent messages and of settlements.
    sent: HashMap<Place, oneshot::Sender<DeliveryState>>,
    settled: HashMap<Place, oneshot::Sender<DeliveryState>>,
    is_over: bool,
}

/// Receiver of the frames of a link.
struct Listener {
    number: u64,
    heard: UnboundedSender<Heard>,
}

/// A link of a connection.
#[derive(Clone, Copy)]
pub struct LinkId {
    pub place: Place,
    number: u64,
}

/// A handle or a delivery: its channel and its number there.
pub type Place = (u16, u32);

/// Link handles. A handle is free again when the broker has detached its link too.
#[derive(Default)]
struct Handles {
    next: u32,
    free: Vec<u32>,
}

impl Connection {
    /// Connects without authentication (AMQP-04), and begins both sessions.
    pub async fn open(address: SocketAddr) -> Answer<Rc<Self>> {
        let stream = TcpStream::connect(address).await.map_err(|_| gone())?;
        stream.set_nodelay(true).unwrap();
        let shared = Rc::new(Shared::default());
        {
            let mut state = shared.state.borrow_mut();
            state.sessions = [SHARED, APART].map(Session::new).into();
            state.frames.say_header(Protocol::Amqp);
            state.frames.say(0, &Session::open("conformance"), &[]);
            for channel in [SHARED, APART] {
                state.frames.say(channel, &Session::begin(), &[]);
            }
        }
        let (began, begun) = oneshot::channel();
        let driving = Rc::clone(&shared);
        let task = tokio::task::spawn_local(async move { driving.drive(stream, began).await });
        let connection = Rc::new(Self { shared, task: task.abort_handle() });
        begun.await.map_err(|_| gone())?;
        Ok(connection)
    }

    /// Begins another session; returns its channel.
    pub fn begin(&self) -> u16 {
        let mut state = self.shared.state.borrow_mut();
        let channel = u16::try_from(state.sessions.len()).unwrap();
        state.sessions.push(Session::new(channel));
        drop(state);
        self.say(channel, &Session::begin());
        channel
    }

    pub fn say<L: List>(&self, channel: u16, body: &L) {
        self.shared.state.borrow_mut().frames.say(channel, body, &[]);
        self.shared.said.notify_one();
    }

    /// Reserves a handle for a link. Returns a receiver of its frames.
    pub fn link(&self, channel: u16) -> Answer<(LinkId, UnboundedReceiver<Heard>)> {
        let mut state = self.shared.state.borrow_mut();
        if state.is_over {
            return Err(gone());
        }
        state.linked += 1;
        let link = LinkId { place: (channel, state.handles.take()), number: state.linked };
        let (heard, receiver) = unbounded_channel();
        state.links.insert(link.place, Listener { number: link.number, heard });
        Ok((link, receiver))
    }

    /// Detaches a link, unless it is already detached.
    pub fn detach(&self, link: LinkId) {
        let (channel, handle) = link.place;
        let mut state = self.shared.state.borrow_mut();
        if state.has(link) && state.detaching.insert(link.place) {
            state.frames.say(channel, &Detach { handle, closed: true, error: None }, &[]);
            self.shared.said.notify_one();
        }
    }

    /// Grants credit for `credit` more messages on a link. Does nothing if it is detached.
    pub fn credit(&self, link: LinkId, delivery_count: u32, credit: u32, drain: bool) {
        let (channel, handle) = link.place;
        let is_attached = self.shared.state.borrow().has(link);
        if is_attached {
            let credit = |session: &Session| session.credit(handle, delivery_count, credit);
            self.say(channel, &Flow { drain, ..self.session(channel, credit) });
        }
    }

    /// Sends a message when the window has room for it, and waits for its outcome.
    pub async fn send(&self, channel: u16, outgoing: &Outgoing<'_>) -> Answer<DeliveryState> {
        loop {
            let more_room = self.shared.windows.notified();
            if self.session(channel, |session| session.has_room(outgoing.message.len())) {
                break;
            }
            more_room.await;
        }
        let outcome = {
            let mut state = self.shared.state.borrow_mut();
            if state.is_over {
                return Err(gone());
            }
            let State { frames, sessions, sent, .. } = &mut *state;
            let session = &mut sessions[usize::from(channel)];
            let (sender, outcome) = oneshot::channel();
            sent.insert((channel, session.transfer(frames, outgoing)), sender);
            outcome
        };
        self.shared.said.notify_one();
        outcome.await.map_err(|_| gone())
    }

    /// Settles a delivery, and waits for the answer.
    pub async fn settle(
        &self,
        (channel, id): Place,
        decision: DeliveryState,
    ) -> Answer<DeliveryState> {
        let outcome = {
            let mut state = self.shared.state.borrow_mut();
            if state.is_over {
                return Err(gone());
            }
            let (sender, outcome) = oneshot::channel();
            state.settled.insert((channel, id), sender);
            outcome
        };
        let role = Role::Receiver;
        let state = Some(decision);
        self.say(channel, &Disposition { role, first: id, state, ..Disposition::default() });
        outcome.await.map_err(|_| gone())
    }

    fn session<T>(&self, channel: u16, ask: impl FnOnce(&Session) -> T) -> T {
        ask(&self.shared.state.borrow().sessions[usize::from(channel)])
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Reads and writes until the connection ends.
    async fn drive(&self, stream: TcpStream, began: oneshot::Sender<()>) {
        let mut began = Some(began);
        let mut has_header = false;
        while self.turn(&stream, &mut has_header, &mut began).is_some() {
            let interest = match self.state.borrow().frames.output.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            tokio::select! {
                ready = stream.ready(interest) => drop(ready),
                () = self.said.notified() => {}
            }
        }
        let mut state = self.state.borrow_mut();
        state.is_over = true;
        state.links.clear();
        state.sent.clear();
        state.settled.clear();
        drop(state);
        self.windows.notify_waiters();
    }

    /// Writes and reads as much as possible, and dispatches the received frames. Returns `None`
    /// when the connection has ended.
    fn turn(
        &self,
        stream: &TcpStream,
        has_header: &mut bool,
        began: &mut Option<oneshot::Sender<()>>,
    ) -> Option<()> {
        let mut state = self.state.borrow_mut();
        while !state.frames.output.is_empty() {
            match stream.try_write(&state.frames.output) {
                Ok(written) => drop(state.frames.output.split_to(written)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        let mut is_closed = false;
        loop {
            state.frames.input.reserve(64 << 10);
            match stream.try_read_buf(&mut state.frames.input) {
                Ok(0) => is_closed = true,
                Ok(_) => continue,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => is_closed = true,
            }
            break;
        }
        if !*has_header {
            match state.frames.hear_header() {
                Some(header) => assert_eq!(Protocol::read(header), Some(Protocol::Amqp)),
                None => return (!is_closed).then_some(()),
            }
            *has_header = true;
        }
        while let Some((channel, performative, payload)) = state.frames.hear().unwrap() {
            if matches!(performative, Performative::Flow(_)) {
                self.windows.notify_waiters();
            }
            is_closed |= matches!(performative, Performative::Close(_) | Performative::End(_));
            state.hear(channel, performative, payload, began);
        }
        (!is_closed).then_some(())
    }
}

impl State {
    /// Dispatches a frame of the broker.
    fn hear(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
        began: &mut Option<oneshot::Sender<()>>,
    ) {
        if let Some(session) = self.sessions.get_mut(usize::from(channel)) {
            session.heard(&performative);
        }
        match performative {
            Performative::Open(open) => self.opened = Some(open),
            Performative::Begin(begin) => {
                assert_eq!(begin.remote_channel, Some(channel), "sessions have the same channels");
                let open = self.opened.as_ref().expect("open comes first");
                self.sessions[usize::from(channel)].begun(open, &begin);
                if channel == APART {
                    // The waiter may have been dropped.
                    began.take().map(|began| began.send(()).ok());
                }
            }
            // The broker uses the same link handles as this client.
            Performative::Attach(attach) => {
                self.tell((channel, attach.handle), Heard::Attached(attach));
            }
            Performative::Flow(flow) => {
                if let Some(handle) = flow.handle {
                    self.tell((channel, handle), Heard::Flow(flow));
                }
            }
            Performative::Transfer(transfer) => {
                self.tell((channel, transfer.handle), Heard::Transfer(transfer, payload));
            }
            Performative::Detach(detach) => {
                let link = (channel, detach.handle);
                self.tell(link, Heard::Detached(detach.error));
                self.links.remove(&link);
                if !self.detaching.remove(&link) {
                    let detach = Detach { handle: detach.handle, closed: true, error: None };
                    self.frames.say(channel, &detach, &[]);
                }
                self.handles.free.push(detach.handle);
            }
            Performative::Disposition(disposition) => self.dispose(channel, &disposition),
            Performative::End(_) | Performative::Close(_) => {}
        }
    }

    /// Passes a frame to its link. A frame for an unknown link is dropped.
    fn tell(&self, link: Place, heard: Heard) {
        self.links.get(&link).map(|listener| listener.heard.send(heard).ok());
    }

    /// Whether a link is attached or being attached.
    fn has(&self, link: LinkId) -> bool {
        self.links.get(&link.place).is_some_and(|listener| listener.number == link.number)
    }

    fn dispose(&mut self, channel: u16, disposition: &Disposition) {
        let Disposition { role, first, last, settled, state, .. } = disposition;
        // A delivery that is settled in a transaction stays open on its link (AMQP-66).
        let stays_open = *role == Role::Sender
            && matches!(
                state,
                Some(
                    DeliveryState::Transactional(_) | DeliveryState::Outcome(Outcome::Rejected(_))
                )
            );
        assert!(*settled || stays_open, "the broker settles what it answers: {disposition:?}");
        let waiting = match role {
            Role::Receiver => &mut self.sent,
            Role::Sender => &mut self.settled,
        };
        for id in *first..=last.unwrap_or(*first) {
            let waiting = waiting.remove(&(channel, id));
            if let (Some(waiting), Some(state)) = (waiting, state) {
                waiting.send(state.clone()).ok();
            }
        }
    }
}

impl Handles {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}
