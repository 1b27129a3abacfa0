//! A conversation with one client, over one socket or, if it is resumed, over several in turn.
//! (Data path, step 1 and back.)
//!
//! One task reads, carries out, and writes. Commands of all frames at hand are grouped by link before
//! they go to the entities; what comes back is written once per wake-up. While the socket takes no
//! bytes, nothing is encoded; while there is no permit, nothing is read (DESIGN D6).

mod end;
mod flow;
mod inbound;
mod link;
mod manage;
mod open;
mod outbound;
mod pending;
mod send;
mod serve;
mod session;
mod settle;
mod topics;
mod transaction;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use peeklock_core::command::LinkEnd;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{ReceiverId, Ticket};
use peeklock_core::permits::{Budget, Permit};
use peeklock_core::request::{Outlet, Request as Mailed};
use peeklock_core::transaction::Transactions;
use peeklock_core::{Access, Broker};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

pub(crate) use self::open::converse;

use self::link::{Bounds, Link};
use self::pending::PendingTable;
use self::transaction::WaitingCommit;
use crate::error::{Close, code};
use crate::frame::{ClientFrame, Encoding, Item, WireError};
use crate::mailbox::{Mail, Mailbox};
use crate::site::{Call, Handover, Place, Site, Socket};

/// Frames that are read in one go before what they ask for is handed over.
const FRAMES_PER_TURN: usize = 16;
/// A link gets at least this share of its connection's window.
const LINK_BYTES_MIN: u64 = 64 << 10;
/// How long a close may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Calls that others may have put.
const CALLS_MAX: usize = 2;
/// The shortest heartbeat that a client may ask for.
const HEARTBEAT_SECONDS_MIN: u32 = 1;

/// Why a socket is served no more.
enum Ended {
    /// The client closed it in order.
    Orderly,
    /// It broke, with a close to be tried all the same.
    Lost(Option<Close>),
    /// The client did what it may not do.
    Refused(Close),
    /// The client is back on another socket.
    Replaced(Box<Handover>),
    /// Its place is needed.
    Leave,
    /// The listener is being stopped.
    Stopped,
}

/// What happens next.
enum Turn {
    Frame(Option<Result<SocketMessage, SocketError>>),
    Room(Permit),
    Mail,
    Flushed,
    Call(Call),
    Tick,
    Stop(Duration),
    Deadline,
}

/// A frame that waits for room.
enum Held {
    /// Not yet decoded.
    Raw(Bytes),
    /// Decoded, and found to need more room.
    Decoded(ClientFrame),
}

/// A frame that was written and that the client may still ask for.
struct Sent {
    /// Empty if it cannot be resumed.
    bytes: Bytes,
    /// Links and the bytes of their deliveries in it.
    deliveries: Vec<(u32, u64)>,
}

type Acquiring = Pin<Box<dyn Future<Output = Permit> + Send>>;
type Stopping = Pin<Box<dyn Future<Output = Duration> + Send>>;

/// The state of a conversation, which outlives its sockets.
pub(crate) struct Conversation {
    site: Arc<Site>,
    broker: Broker,
    place: Place,
    encoding: Encoding,
    /// What its client may do.
    access: Access,
    calls: mpsc::Receiver<Call>,
    stop: Option<Stopping>,
    resume_token: u128,
    /// How long it may be resumed; none if the client did not ask for it.
    grace: Option<Duration>,
    heartbeat: Duration,

    budget: Budget,
    held: Option<Held>,
    acquiring: Option<Acquiring>,
    /// Frames of the client that were taken.
    seen: u64,
    links: BTreeMap<u32, Link>,
    receivers: HashMap<ReceiverId, u32>,
    pending: PendingTable,
    /// Receives that wait, by the id that the client gave them.
    waits: HashMap<u32, (Ticket, u32)>,
    /// Commands to be handed over, by link.
    groups: Vec<(u32, Vec<Mailed>)>,
    transactions: Transactions,
    /// Commits that wait for the answers to what was asked before them.
    commits: Vec<WaitingCommit>,

    mailbox: Arc<Mailbox>,
    outlet: Arc<dyn Outlet>,
    mail: VecDeque<Mail>,
    /// What is to be written.
    ready: Vec<Item>,
    /// Links and the bytes of the deliveries in `ready`.
    delivered: Vec<(u32, u64)>,
    /// Frames written that the client has not confirmed, or that are not flushed; the last one has
    /// the number `sent`.
    unconfirmed: VecDeque<Sent>,
    unconfirmed_bytes: u64,
    sent: u64,
    /// Frames written again after a resumption, counted from the front of `unconfirmed`.
    unflushed: bool,
    /// When the listener ends it.
    deadline: Option<Pin<Box<Sleep>>>,
    /// No deliveries for now: the socket is lost, or the listener is being stopped.
    paused: bool,
    read_since_tick: bool,
    written_since_tick: bool,
    silent_ticks: u32,
    unfinished_ticks: u32,
}

/// Closes a socket and gives its peer a moment to answer.
async fn close(socket: &mut Socket, close: &Close) {
    tracing::debug!(code = close.code, reason = close.reason, "closing a connection");
    let closing = async {
        socket.send(SocketMessage::Close(Some(close.frame()))).await.ok();
        while let Some(Ok(_)) = socket.next().await {
            socket.get_mut().frame_taken();
        }
    };
    // A peer that does not answer is left.
    tokio::time::timeout(CLOSE_TIMEOUT, closing).await.ok();
}

impl Conversation {
    async fn run(mut self, handover: Box<Handover>) {
        let mut handover = handover;
        let mut resumed = false;
        let end = loop {
            let ended = match self.adopt(&mut handover, resumed).await {
                Ok(()) => self.serve(&mut handover.socket).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::Orderly => break LinkEnd::Orderly,
                Ended::Refused(refusal) => {
                    close(&mut handover.socket, &refusal).await;
                    break LinkEnd::Broken;
                }
                Ended::Leave => {
                    let leave = Close::new(code::TRY_LATER, "the place is needed");
                    close(&mut handover.socket, &leave).await;
                    break LinkEnd::Broken;
                }
                Ended::Stopped => {
                    self.stop_flows();
                    let going = Close::new(code::GOING_AWAY, "the broker is being stopped");
                    close(&mut handover.socket, &going).await;
                    break LinkEnd::ByBroker;
                }
                Ended::Replaced(other) => {
                    let elsewhere = "the connection was resumed on another socket";
                    let mut old = std::mem::replace(&mut handover, other);
                    let reason = Close::new(code::RESUMED_ELSEWHERE, elsewhere);
                    // Perhaps half open: nobody waits for it.
                    tokio::spawn(async move { close(&mut old.socket, &reason).await });
                    resumed = true;
                }
                Ended::Lost(reason) => {
                    if let Some(reason) = reason {
                        close(&mut handover.socket, &reason).await;
                    }
                    drop(handover);
                    match self.wait_for_client().await {
                        Ok(back) => handover = back,
                        Err(end) => break end,
                    }
                    resumed = true;
                }
            }
        };
        self.end(end).await;
    }

    /// Puts what was collected into the inlets of the entities.
    fn hand_over(&mut self) {
        for (link, group) in self.groups.drain(..) {
            if let Some(link) = self.links.get(&link) {
                link.entity.submit(group);
            }
        }
    }

    fn bounds(&self) -> Bounds {
        let receivers = self.receivers.len().max(1) as u64;
        Bounds {
            window_bytes: (self.site.config.outbound_bytes_max / receivers).max(LINK_BYTES_MIN),
            unsettled_max: self.site.config.unsettled_count_max,
            paused: self.paused,
        }
    }

    fn wire_error(&self, rejection: Rejection, path: &str) -> WireError {
        WireError::from(&self.broker.refuse(rejection, path))
    }

    fn message(&self, bytes: Bytes) -> SocketMessage {
        match self.encoding {
            Encoding::Binary => SocketMessage::Binary(bytes),
            // What was encoded as JSON is text.
            Encoding::Json => SocketMessage::Text(bytes.try_into().unwrap_or_default()),
        }
    }
}
