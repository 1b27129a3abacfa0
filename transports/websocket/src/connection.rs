//! A conversation with one client, over one socket or, if it is resumed, over several in turn.
//! (Data path, step 1 and back.)
//!
//! One task reads, carries out, and writes. Commands of all frames at hand are grouped by link before
//! they go to the entities; what comes back is written once per wake-up. While the socket takes no
//! bytes, nothing is encoded; while there is no permit, nothing is read (DESIGN D6).

mod apart;
mod inbound;
mod open;
mod outbound;
mod place;
mod price;
mod serve;
mod stall;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use peeklock_core::command::LinkEnd;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::permits::Permit;
use peeklock_core::transaction::TransactionId;
use peeklock_link::{Engine, Serve as _, Taking};
use peeklock_listen::websocket::Pongs;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::Message as SocketMessage;

pub(crate) use self::open::converse;

use self::stall::Stall;
use crate::error::{Close, code};
use crate::frame::{Encoding, Item, WireError};
use crate::site::{Call, ConversationPlace, Handover, Site, Socket};
use crate::unwritten::Unwritten;

/// What something said takes besides what it says of messages.
const ITEM_BYTES: u64 = 64;
/// What a frame that was written takes besides its bytes: its place among those kept, of which there are up to twice as
/// many, the blocks of the allocator, and what shares it with a socket.
const WRITTEN_BYTES: u64 = 256;
/// Places for frames that are kept without there being any.
const WRITTEN_PLACES_IDLE: usize = 16;
/// What may be kept for a client that has not confirmed it, in windows of deliveries.
const FRAMES_KEPT: u64 = 2;
/// How long a close may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Calls that others may have put.
const CALLS_MAX: usize = 2;
/// The shortest heartbeat that a client may ask for.
const HEARTBEAT_SECONDS_MIN: u32 = 1;

/// Why a socket is served no more.
pub(crate) enum Ended {
    /// The client closed it in order.
    Orderly,
    /// It broke, with a close to be tried all the same.
    Lost(Option<Close>),
    /// The client did what it may not do.
    Refused(Close),
    /// It took nothing of what it was told while others waited for the room. That it cannot be told either.
    Yielded,
    /// The client is back on another socket.
    Replaced(Box<Handover>),
    /// Its place is needed.
    Leave,
    /// The listener is being stopped.
    Stopped,
}

impl From<Call> for Ended {
    fn from(call: Call) -> Self {
        match call {
            Call::Resume(handover) => Self::Replaced(handover),
            Call::Leave => Self::Leave,
        }
    }
}

/// A request on its way, with what it needs.
pub(crate) struct Asked {
    pub(crate) id: u32,
    pub(crate) permit: Arc<Permit>,
}

/// Why a request is not carried out.
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

/// A commit that waits for operations to be answered.
pub(crate) struct WaitingCommit {
    pub(crate) asked: Asked,
    pub(crate) id: TransactionId,
    pub(crate) operations: Option<u32>,
}

impl WaitingCommit {
    /// Whether its answer will have this id.
    pub(crate) const fn is_asked_as(&self, id: u32) -> bool {
        id != 0 && self.asked.id == id
    }
}

/// A frame that was written and that the client may still ask for.
struct Written {
    /// Empty if it cannot be resumed.
    bytes: Bytes,
    /// What it counts for.
    held_bytes: u64,
    /// Links and the bytes of their deliveries in it.
    deliveries: Box<[(u32, u64)]>,
    /// Messages in it that are stored nowhere any more.
    removed_count: u64,
}

/// Frames written that the client has not confirmed, or that are not flushed.
#[derive(Default)]
struct WrittenFrames {
    /// The last one has the number `sent`.
    unconfirmed: VecDeque<Written>,
    sent: u64,
    /// What they count for, wherever they are.
    kept_bytes: u64,
    /// What the client has confirmed in all counted for.
    confirmed_bytes: u64,
    /// The number of the last frame of which the system has taken all, while its client was not lost since.
    flushed: u64,
}

/// The signs of life on a socket.
struct Pulse {
    /// Looks twice in each heartbeat, and twice in the time that a frame may take.
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

/// The state of a conversation, which outlives its sockets.
pub(crate) struct Conversation {
    pub(crate) site: Arc<Site>,
    /// Its account has everything that is held for the client: contents, answers, frames it has not taken.
    pub(crate) engine: Engine<Self>,
    place: ConversationPlace,
    /// Whether it has shown a token that is good, as of the last look.
    shows_key: bool,
    pub(crate) encoding: Encoding,
    calls: mpsc::Receiver<Call>,
    resume_token: u128,
    /// How long it may be resumed; none if the client did not ask for it.
    grace: Option<Duration>,
    heartbeat: Duration,

    /// Frames of the client that were taken.
    seen: u64,
    /// Commits that wait for the answers to what was asked before them.
    pub(crate) commits: Vec<WaitingCommit>,

    /// What was collected for the next frame.
    collected_bytes: u64,
    /// The place of a request of which not all is handed over to its entity: nothing behind it is begun.
    pub(crate) handing_over: Option<usize>,
    /// What was begun, by the room that it takes: requests, and of wide ones what is handed over. With what is still to
    /// be begun, or done apart, its client may hold others up.
    pub(crate) begun_bytes: u64,
    beginning: Taking,
    /// What is to be written, and what it counts for.
    pub(crate) ready: Vec<Item>,
    ready_bytes: u64,
    /// Messages in it that are stored nowhere any more.
    pub(crate) unwritten_count: u64,
    /// Links and the bytes of the deliveries in `ready`.
    pub(crate) delivered: Vec<(u32, u64)>,
    frames: WrittenFrames,
    /// The socket has taken not all that was written.
    unflushed: bool,
    /// What of a frame is not with the socket at all.
    outgoing: Unwritten,
    /// Pongs among that.
    pongs: Pongs,
    pulse: Pulse,
    /// How long its client has not taken what was written.
    stall: Stall,
}

/// Closes a socket and gives its peer a moment to answer.
async fn close(socket: &mut Socket, close: &Close) {
    tracing::debug!(code = close.code, reason = close.reason, "closing a connection");
    // What has arrived of a frame is given up.
    socket.get_mut().frame_taken();
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
    async fn run(mut self: Box<Self>, mut handover: Box<Handover>) {
        let mut resumed = false;
        let end = loop {
            let ended = match self.adopt(&mut handover, resumed).await {
                Ok(()) => self.serve(&mut handover.socket).await,
                Err(ended) => ended,
            };
            if matches!(ended, Ended::Lost(_) | Ended::Replaced(_) | Ended::Yielded) {
                // What the system has taken may have got no farther: from here on the client's word counts alone.
                self.frames.flushed = 0;
            }
            match ended {
                Ended::Orderly => break LinkEnd::Orderly,
                Ended::Refused(refusal) => {
                    close(&mut handover.socket, &refusal).await;
                    break LinkEnd::Broken;
                }
                Ended::Leave => {
                    let leave = Close::new(
                        code::TRY_LATER,
                        "the connection is closed to make room for another client",
                    );
                    close(&mut handover.socket, &leave).await;
                    break LinkEnd::Broken;
                }
                Ended::Yielded => {
                    tracing::debug!("a client does not read while other clients wait");
                    // With what it has not taken.
                    drop(handover);
                    break LinkEnd::Broken;
                }
                Ended::Stopped => {
                    self.engine.stop_flows();
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

    /// Ends everything that the conversation holds (SET-21, RCV-14): links are told to deliver nothing more, and when that is
    /// answered, everything that came before is here. What was not written is given back without count.
    async fn end(mut self: Box<Self>, end: LinkEnd) {
        self.calls.close();
        // Commands that wait for room are not carried out: nobody was promised anything.
        self.engine.cancel();
        let mut lost_count = self.lost_count();
        // The room is others' at once.
        self.ready = Vec::new();
        self.frames.unconfirmed = VecDeque::new();
        lost_count += self.engine.quiet().await;
        self.engine.links.finish_end(end, lost_count);
        tracing::debug!(?end, "connection ended");
    }

    /// How many messages are stored nowhere any more and not with the client (RCV-02): of what was not written, and of
    /// frames of which the system has not taken all, or whose client was lost and has not confirmed them.
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
