//! What all connections of one listener share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::Broker;
use peeklock_core::permits::Pool;
use peeklock_listen::{Leaving, Member, Newcomer, Place, Places, Strangers, Tracked, Tracker};
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
    /// Places of conversations, and sockets whose clients have not said hello.
    pub(crate) places: Places,
    /// Who was refused for where it comes from.
    pub(crate) strangers: Strangers,
    /// Frames that have not arrived whole.
    pub(crate) inbound: Arc<Pool>,
    /// Conversations, those that have lost their socket included.
    pub(crate) tracker: Tracker,
    conversations: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
    lost: AtomicU64,
}

/// A conversation as others see it.
struct Entry {
    resume_token: u128,
    encoding: Encoding,
    calls: mpsc::Sender<Call>,
    /// Its place among those that have lost their socket.
    lost: Option<Lost>,
    /// Its place among all.
    place: Place,
}

/// A conversation that has lost its socket.
struct Lost {
    /// In the order in which they have.
    at: u64,
    /// By which its place is given to another, where it is counted by its address.
    leaving: Option<Leaving>,
}

/// What others want of a conversation.
pub(crate) enum Call {
    /// Its client is back, on this socket.
    Resume(Box<Handover>),
    /// Its place is needed.
    Leave,
}

/// A socket whose client wants to go on with a conversation.
pub(crate) struct Handover {
    pub(crate) socket: Box<Socket>,
    pub(crate) hello: Hello,
    pub(crate) hello_id: u32,
    /// How many frames of the server the client has taken.
    pub(crate) received: u64,
}

/// The place of a conversation, until this is dropped.
pub(crate) struct ConversationPlace {
    site: Arc<Site>,
    key: u64,
    _tracked: Tracked,
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

    /// A place for a new conversation; none if there are too many. One that waits for its client to
    /// come back makes room for one that is there and no stranger, before all others.
    pub(crate) fn enter(
        self: &Arc<Self>,
        resume_token: u128,
        encoding: Encoding,
        newcomer: Newcomer,
        calls: mpsc::Sender<Call>,
    ) -> Option<ConversationPlace> {
        let place = self.places.enter_or(newcomer, || self.place_of_lost())?;
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, Entry { resume_token, encoding, calls, lost: None, place });
        Some(ConversationPlace { site: Arc::clone(self), key, _tracked: self.tracker.track() })
    }

    /// The place of the conversation that was lost first, which has to go, of those that were not told so otherwise.
    fn place_of_lost(&self) -> Option<Place> {
        let mut conversations = self.lock();
        let lost =
            conversations.iter().filter_map(|(key, entry)| Some((entry.lost.as_ref()?, *key)));
        let mut in_order: Vec<(&Lost, u64)> = lost.collect();
        in_order.sort_unstable_by_key(|(lost, _)| lost.at);
        let goes = |lost: &Lost| lost.leaving.as_ref().is_none_or(Leaving::tell);
        let (_, key) = in_order.into_iter().find(|&(lost, _)| goes(lost))?;
        let entry = conversations.remove(&key)?;
        // Full only if it is being resumed at this very moment; then that socket is closed.
        drop(entry.calls.try_send(Call::Leave));
        Some(entry.place)
    }

    /// Hands a socket to the conversation of this token; gives it back if there is none.
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
    /// The conversation, which is this member, has lost its socket.
    pub(crate) fn lose(&self, member: Option<&Member>) {
        let at = self.site.lost.fetch_add(1, Ordering::Relaxed);
        self.mark(Some(Lost { at, leaving: member.map(Member::leaving) }));
    }

    /// It has one again.
    pub(crate) fn regain(&self) {
        self.mark(None);
    }

    fn mark(&self, lost: Option<Lost>) {
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
