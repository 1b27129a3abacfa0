//! State that all connections of a listener share: the broker, the settings, the slots, and the
//! conversations that may be resumed. `listener.rs` makes it. A conversation has at most one
//! connection at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::Broker;
use peeklock_core::admission::{Member, Newcomer, Occupant, Place, Places, Pool};
use peeklock_listen::{Strangers, TrackGuard, Tracker};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;

use crate::config::WebSocketConfig;
use crate::frame::Encoding;
use crate::metered::Metered;
use crate::operation::Hello;

pub(crate) type Socket = WebSocketStream<Metered>;

/// One listener: its broker, its settings, its connections.
pub(crate) struct Site {
    pub(crate) broker: Broker,
    pub(crate) config: WebSocketConfig,
    /// Slots of conversations, and of sockets whose clients have not sent a hello.
    pub(crate) places: Places,
    /// Clients that were refused because of their address.
    pub(crate) strangers: Strangers,
    /// Bytes of partial frames.
    pub(crate) inbound: Arc<Pool>,
    /// Running conversations, including those without a socket now.
    pub(crate) tracker: Tracker,
    conversations: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
    lost: AtomicU64,
}

/// The data of a conversation that other tasks need.
struct Entry {
    resume_token: u128,
    encoding: Encoding,
    calls: mpsc::Sender<Call>,
    /// Set while the conversation has no socket.
    lost: Option<LostSocket>,
    /// Its slot among all connections.
    place: Place,
}

/// A conversation that has lost its socket.
struct LostSocket {
    /// Position in the order of losses.
    at: u64,
    /// Handle to give its slot to another connection, if its address is counted.
    occupant: Option<Occupant>,
}

/// A request of another task to a conversation.
pub(crate) enum Call {
    /// The client is back, on this socket.
    Resume(Box<Handover>),
    /// Another connection needs the slot.
    Leave,
}

/// A socket whose client wants to resume a conversation.
pub(crate) struct Handover {
    pub(crate) socket: Box<Socket>,
    pub(crate) hello: Hello,
    pub(crate) hello_id: u32,
    /// Number of frames of the server that the client has taken.
    pub(crate) received: u64,
}

/// The slot of a conversation; dropping it frees the slot.
pub(crate) struct ConversationPlace {
    site: Arc<Site>,
    key: u64,
    _tracked: TrackGuard,
}

impl Site {
    pub(crate) fn new(broker: Broker, config: WebSocketConfig) -> Self {
        Self {
            broker,
            places: Places::new(config.connection_count_max),
            strangers: Strangers::default(),
            inbound: Pool::of_parts(config.inbound_bytes_max),
            config,
            tracker: Tracker::default(),
            conversations: Mutex::default(),
            next: AtomicU64::new(1),
            lost: AtomicU64::new(0),
        }
    }

    /// Takes a slot for a new conversation; none if there are too many. A conversation without a
    /// socket is evicted before all others, if the newcomer has authenticated.
    pub(crate) fn enter(
        self: &Arc<Self>,
        resume_token: u128,
        encoding: Encoding,
        newcomer: Newcomer,
        calls: mpsc::Sender<Call>,
    ) -> Option<ConversationPlace> {
        let place = self.places.take_or_evict_with(newcomer, || self.evict_lost())?;
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, Entry { resume_token, encoding, calls, lost: None, place });
        Some(ConversationPlace { site: Arc::clone(self), key, _tracked: self.tracker.track() })
    }

    /// Evicts the conversation that lost its socket first and has not been asked to leave yet;
    /// returns its slot.
    fn evict_lost(&self) -> Option<Place> {
        let mut conversations = self.lock();
        let lost =
            conversations.iter().filter_map(|(key, entry)| Some((entry.lost.as_ref()?, *key)));
        let mut in_order: Vec<(&LostSocket, u64)> = lost.collect();
        in_order.sort_unstable_by_key(|(lost, _)| lost.at);
        let goes = |lost: &LostSocket| lost.occupant.as_ref().is_none_or(Occupant::claim);
        let (_, key) = in_order.into_iter().find(|&(lost, _)| goes(lost))?;
        let entry = conversations.remove(&key)?;
        // The channel is full only if a resumption is in progress; then that socket is closed.
        drop(entry.calls.try_send(Call::Leave));
        Some(entry.place)
    }

    /// Hands a socket to the conversation with this token; returns it if there is none.
    pub(crate) fn resume(
        &self,
        resume_token: u128,
        encoding: Encoding,
        handover: Box<Handover>,
    ) -> Result<(), Box<Handover>> {
        let calls = self
            .lock()
            .values()
            .find(|entry| entry.resume_token == resume_token && entry.encoding == encoding)
            .map(|entry| entry.calls.clone());
        match calls.map(mpsc::Sender::try_reserve_owned) {
            Some(Ok(slot)) => {
                slot.send(Call::Resume(handover));
                Ok(())
            }
            Some(Err(_)) | None => Err(handover),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConversationPlace {
    /// Notes that the conversation has lost its socket.
    pub(crate) fn mark_lost(&self, member: Option<&Member>) {
        let at = self.site.lost.fetch_add(1, Ordering::Relaxed);
        self.mark(Some(LostSocket { at, occupant: member.map(Member::occupant) }));
    }

    /// Notes that the conversation has a socket again.
    pub(crate) fn mark_resumed(&self) {
        self.mark(None);
    }

    fn mark(&self, lost: Option<LostSocket>) {
        if let Some(entry) = self.site.lock().get_mut(&self.key) {
            entry.lost = lost;
        }
    }
}

impl Drop for ConversationPlace {
    fn drop(&mut self) {
        self.site.lock().remove(&self.key);
    }
}
