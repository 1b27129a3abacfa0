//! A conversation with one client, over one socket or, if it is resumed, over several in turn.
//! (Data path, step 1 and back.)
//!
//! One task reads, carries out, and writes. It groups the commands of all available frames by link
//! before they go to the entities, and writes the results once per wake-up. While the socket
//! accepts no bytes, nothing is encoded; while there is no permit, nothing is read (DESIGN D6).
//!
//! `open` begins and resumes, `serve` has the turns of the loop in `peeklock_link::engine`, `inbound` pays for a frame and carries out
//! its requests, `background` runs long ones in the background, `outbound` writes, `stall` detects a
//! client that does not read, and `place` gets a slot.

mod background;
mod inbound;
mod open;
mod outbound;
mod place;
mod serve;
mod stall;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use peeklock_core::admission::{ClientPace, Permit};
use peeklock_core::command::LinkEnd;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::transaction::TransactionId;
use peeklock_link::{ConnectionLoop as _, Engine};
use peeklock_listen::websocket::Pongs;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::Message as SocketMessage;

pub(crate) use self::open::converse;

use self::stall::Stall;
use crate::error::{Close, code};
use crate::frame::{Encoding, Item, WireError};
use crate::site::{Call, ConversationPlace, Handover, Site, Socket};
use crate::unwritten::FramePieces;

/// Memory of an item (an answer or a push) without the messages in it, in bytes.
const ITEM_BYTES: u64 = 64;
/// Memory of a written frame without its bytes: its place among the kept frames (whose buffer may
/// have twice as many places), the blocks of the allocator, and the state that it shares with a
/// socket.
const WRITTEN_BYTES: u64 = 256;
/// Places for kept frames that may stay allocated while no frame is kept.
const WRITTEN_PLACES_IDLE: usize = 16;
/// Maximum of frames kept until the client confirms them, in windows of deliveries.
const FRAMES_KEPT: u64 = 2;
/// Maximum duration of a close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of calls from other tasks that wait for the conversation.
const CALLS_MAX: usize = 2;
/// Shortest heartbeat that a client may request.
const HEARTBEAT_SECONDS_MIN: u32 = 1;

/// Reason why the conversation no longer serves a socket.
pub(crate) enum SocketEnd {
    /// The client closed the socket in order.
    Orderly,
    /// The socket broke. The close is sent if that is still possible.
    Lost(Option<Close>),
    /// The server ends the connection; the close has the reason.
    Refused(Close),
    /// The client accepted no bytes while others waited for the room. It gets no close either,
    /// since it would not read it.
    Yielded,
    /// The client is back on another socket.
    Replaced(Box<Handover>),
    /// Another connection needs the slot of this one.
    Leave,
    /// The listener is being stopped.
    Stopped,
}

impl From<Call> for SocketEnd {
    fn from(call: Call) -> Self {
        match call {
            Call::Resume(handover) => Self::Replaced(handover),
            Call::Leave => Self::Leave,
        }
    }
}

/// A request under way: its id, and the permit that it holds.
pub(crate) struct AdmittedRequest {
    pub(crate) id: u32,
    pub(crate) permit: Arc<Permit>,
}

/// Reason why a request is not carried out.
pub(crate) enum Refusal {
    Broker(BrokerError),
    Own(Rejection),
}

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::Own(rejection)
    }
}

pub(crate) type Done = Result<(), Refusal>;

/// A commit that waits until earlier operations are answered.
pub(crate) struct WaitingCommit {
    pub(crate) admitted: AdmittedRequest,
    pub(crate) id: TransactionId,
    pub(crate) operations: Option<u32>,
}

impl WaitingCommit {
    /// Whether the answer to the commit will have this id.
    pub(crate) const fn has_request_id(&self, id: u32) -> bool {
        id != 0 && self.admitted.id == id
    }
}

/// A written frame that the client may ask for again.
struct Written {
    /// Empty if the conversation cannot be resumed.
    bytes: Bytes,
    /// Bytes that it counts for in the account of the conversation.
    held_bytes: u64,
    /// Numbers of links, with the bytes of their deliveries in the frame.
    deliveries: Box<[(u32, u64)]>,
    /// Number of messages in the frame that the broker has removed from its store.
    removed_count: u64,
}

/// Written frames that the client has not confirmed, or that are not flushed.
#[derive(Default)]
struct WrittenFrames {
    /// The last frame in it has the number `sent`.
    unconfirmed: VecDeque<Written>,
    sent: u64,
    /// Bytes that these frames count for, whether or not they are flushed.
    kept_bytes: u64,
    /// Sum of the bytes that all confirmed frames counted for.
    confirmed_bytes: u64,
    /// Number of the last frame that the system has accepted whole; 0 again after the socket is
    /// lost.
    flushed: u64,
}

/// The signs of life on a socket.
struct Pulse {
    /// Ticks at least twice in each heartbeat and twice in the frame timeout.
    ticks: Interval,
    read_since_tick: bool,
    written_since_tick: bool,
    silent_ticks: u32,
}

impl Pulse {
    fn new(heartbeat: Duration, frame_timeout: Duration) -> Self {
        let beat = heartbeat.min(frame_timeout) / 2;
        let mut ticks = tokio::time::interval(beat.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        Self { ticks, read_since_tick: true, written_since_tick: true, silent_ticks: 0 }
    }
}

/// State of a conversation, which outlives its sockets.
pub(crate) struct Conversation {
    pub(crate) site: Arc<Site>,
    /// Its account covers everything that is held for the client: contents, answers, unconfirmed
    /// frames.
    pub(crate) engine: Engine<Self>,
    place: ConversationPlace,
    /// Whether the client had shown a valid token at the last check.
    has_valid_token: bool,
    pub(crate) encoding: Encoding,
    calls: mpsc::Receiver<Call>,
    resume_token: u128,
    /// How long the conversation may be resumed; none if the client did not ask for it.
    grace: Option<Duration>,
    heartbeat: Duration,

    /// Number of frames of the client that were taken.
    seen: u64,
    /// Commits that wait for the answers to earlier requests.
    pub(crate) commits: Vec<WaitingCommit>,

    /// Bytes collected for the next frame.
    collected_bytes: u64,
    /// Slot of a request whose commands are not all with its entity yet. No later request starts
    /// until they are.
    pub(crate) handing_over: Option<usize>,
    /// Total bytes of started requests; of a request that is handed over in parts, its parts. They
    /// measure progress: a client whose requests hold room without progress may have to yield.
    pub(crate) started_bytes: u64,
    start_stall: ClientPace,
    /// Items to write, and the bytes that they count for.
    pub(crate) ready: Vec<Item>,
    ready_bytes: u64,
    /// Number of messages in `ready` that the broker has removed from its store.
    pub(crate) unwritten_count: u64,
    /// Numbers of links, with the bytes of their deliveries in `ready`.
    pub(crate) delivered: Vec<(u32, u64)>,
    frames: WrittenFrames,
    /// Whether the socket still has bytes that it has not written.
    unflushed: bool,
    /// The pieces of a frame that were not handed to the socket yet.
    outgoing: FramePieces,
    /// The pongs among the unwritten bytes.
    pongs: Pongs,
    pulse: Pulse,
    /// How long the client has not read the written bytes.
    stall: Stall,
}

/// Closes a socket and gives its peer up to `CLOSE_TIMEOUT` to answer.
async fn close(socket: &mut Socket, close: &Close) {
    tracing::debug!(code = close.code, reason = close.reason, "closing a connection");
    // Discards the bytes of a partial frame.
    socket.get_mut().frame_taken();
    let closing = async {
        socket.send(SocketMessage::Close(Some(close.frame()))).await.ok();
        while let Some(Ok(_)) = socket.next().await {
            socket.get_mut().frame_taken();
        }
    };
    // A peer that does not answer in time is abandoned.
    tokio::time::timeout(CLOSE_TIMEOUT, closing).await.ok();
}

impl Conversation {
    async fn run(mut self: Box<Self>, mut handover: Box<Handover>) {
        let mut resumed = false;
        let end = loop {
            let ended = match self.adopt(&mut handover, resumed).await {
                Ok(()) => self.serve(&mut handover.socket).await,
                Err(ended) => ended,
            };
            if matches!(ended, SocketEnd::Lost(_) | SocketEnd::Replaced(_) | SocketEnd::Yielded) {
                // Bytes that the system accepted may not have reached the client. From here on,
                // only frames that the client confirms count as delivered.
                self.frames.flushed = 0;
            }
            match ended {
                SocketEnd::Orderly => break LinkEnd::Orderly,
                SocketEnd::Refused(refusal) => {
                    close(&mut handover.socket, &refusal).await;
                    break LinkEnd::Broken;
                }
                SocketEnd::Leave => {
                    let leave = Close::new(
                        code::TRY_LATER,
                        "the connection is closed to make room for another client",
                    );
                    close(&mut handover.socket, &leave).await;
                    break LinkEnd::Broken;
                }
                SocketEnd::Yielded => {
                    tracing::debug!("a client does not read while other clients wait");
                    // Discards the bytes that the client has not read.
                    drop(handover);
                    break LinkEnd::Broken;
                }
                SocketEnd::Stopped => {
                    self.engine.stop_flows();
                    let going = Close::new(code::GOING_AWAY, self.engine.stop_reason());
                    close(&mut handover.socket, &going).await;
                    break LinkEnd::ByBroker;
                }
                SocketEnd::Replaced(other) => {
                    let elsewhere = "the connection was resumed on another socket";
                    let mut old = std::mem::replace(&mut handover, other);
                    let reason = Close::new(code::RESUMED_ELSEWHERE, elsewhere);
                    // The old socket may be half open, so nothing waits for its close.
                    tokio::spawn(async move { close(&mut old.socket, &reason).await });
                    resumed = true;
                }
                SocketEnd::Lost(reason) => {
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

    /// Whether a conversation that is to end has nothing left to wait for.
    fn may_end(&self) -> bool {
        let Some(deadline) = self.engine.stop_deadline() else { return false };
        if Instant::now() >= deadline {
            return true;
        }
        self.engine.links.pending_count() == 0
            && !self.unflushed
            && self.ready.is_empty()
            && self.engine.arrivals.is_empty()
            && self.engine.links.unsettled.is_empty()
    }

    /// Ends everything that the conversation holds (SET-21, RCV-14). It asks the links to stop
    /// delivering; after their answers, all earlier results have arrived. Unwritten deliveries go
    /// back without a delivery count.
    async fn end(mut self: Box<Self>, end: LinkEnd) {
        self.calls.close();
        // Commands that wait for room are not carried out; no answer has promised anything.
        self.engine.cancel();
        let mut lost_count = self.lost_count();
        // Releases the room before the links answer.
        self.ready = Vec::new();
        self.frames.unconfirmed = VecDeque::new();
        lost_count += self.engine.end_deliveries().await;
        self.engine.links.finish_end(end, lost_count);
        tracing::debug!(?end, "connection ended");
    }

    /// Number of messages that the broker has removed and the client may not have (RCV-02): those
    /// in unwritten items and in frames that the system has not accepted whole. After a lost
    /// socket, those in unconfirmed frames count too.
    fn lost_count(&self) -> u64 {
        let before = self.frames.sent - self.frames.unconfirmed.len() as u64;
        let flushed = self.frames.flushed.saturating_sub(before);
        let flushed = usize::try_from(flushed).unwrap_or(usize::MAX);
        let lost =
            self.frames.unconfirmed.iter().skip(flushed).map(|written| written.removed_count);
        self.unwritten_count + lost.sum::<u64>()
    }

    pub(crate) fn wire_error(&self, rejection: Rejection, path: &str) -> WireError {
        WireError::from(&self.engine.broker.refuse(rejection, path))
    }
}
