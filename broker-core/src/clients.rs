//! Registry of the connected clients with their links, and of the holders of locks (CON-24).
//!
//! ```text
//!  connect ─► Broker::client ─► ClientGuard ── attach ─► link ─► LinkGuard ── gauge: relaxed stores
//!                                   │                               │         of its connection
//!                                   ▼                               ▼
//!                     clients by id, for lists        receivers by id, for holders of locks;
//!                                                     the last ended ones are remembered
//! ```
//!
//! A connection and a link cost one lock and one allocation when they begin and when they end. A
//! delivery costs no lock. Locks of AMQP and HTTP clients outlive their connections (decision 37),
//! so the registry remembers a bounded number of ended receivers.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use peeklock_model::inspect::ROW_COUNT_MAX;
use tokio::sync::watch;

use crate::command::ReceiveMode;
use crate::condition::Condition;
use crate::error::Rejection;
use crate::findings::{
    ClientFacts, ClientId, ClientPage, ClientQuery, HolderFacts, LinkFacts, LinkRole,
};
use crate::ids::ReceiverId;
use crate::path::{EntityAddress, PathKey};
use crate::survey::ReadableKeys;
use crate::time::Timestamp;

/// Maximum characters that are kept of the name that a client gives itself.
const NAME_CHARS_MAX: usize = 256;
/// Maximum number of ended receivers whose clients are remembered.
const ENDED_COUNT_MAX: usize = 4_096;
/// Maximum number of registered links and holders. A further one works, but is not listed.
const LINK_COUNT_MAX: usize = 1_000_000;
/// Approximate maximum size of a page in bytes, unless its first client exceeds it.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Approximate maximum size of the links of a client in a page, in bytes.
const CLIENT_BYTES_MAX: usize = 256 << 10;
/// Approximate size of a client or link as written for a reader, without its texts.
const ROW_BYTES: usize = 192;
/// Number of clients that are examined between two yields.
const EXAMINED_AT_ONCE: usize = 256;

/// Facts about a link that do not change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkIdentity {
    /// Name under which the entity knows the link; locks of its deliveries belong to it.
    pub receiver: ReceiverId,
    /// Path of the entity or sub-queue.
    pub path: Arc<str>,
    /// Purpose of the link.
    pub role: LinkRole,
    /// Whether received messages are locked or deleted; none for a sender.
    pub mode: Option<ReceiveMode>,
    /// Name of the policy that grants the link, if there is one.
    pub policy: Option<Arc<str>>,
}

/// Clients and receivers of a broker. Also the source of receiver ids.
pub(crate) struct Clients {
    next_client: AtomicU64,
    next_receiver: AtomicU64,
    open: RwLock<BTreeMap<ClientId, Arc<ClientEntry>>>,
    receivers: RwLock<Receivers>,
    /// Number of registered links and holders.
    link_count: AtomicUsize,
}

/// Receivers that hold or may hold locks.
#[derive(Default)]
struct Receivers {
    by_id: HashMap<ReceiverId, Holder>,
    /// The receivers in `by_id` that have ended, in the order of their ends.
    ended: VecDeque<ReceiverId>,
}

struct Holder {
    client: Arc<ClientEntry>,
    policy: Option<Arc<str>>,
}

struct ClientEntry {
    id: ClientId,
    transport: &'static str,
    connected_at: Timestamp,
    /// In ticks.
    active_at: AtomicI64,
    is_by_proxy: AtomicBool,
    is_connected: AtomicBool,
    /// Whether an operator has closed it. Its connection listens, if it can be closed.
    closed: watch::Sender<bool>,
    /// Holder of locks that belong to no link.
    receiver: OnceLock<HolderId>,
    traits: Mutex<Traits>,
    links: Mutex<BTreeMap<ReceiverId, Arc<LinkEntry>>>,
}

/// Holder of locks that belong to no link.
struct HolderId {
    receiver: ReceiverId,
    /// Whether it is registered; it is not if there were too many links.
    is_registered: bool,
}

/// Facts about a client that may change while it is connected.
#[derive(Default)]
struct Traits {
    peer: Option<SocketAddr>,
    name: Option<Arc<str>>,
    policy: Option<Arc<str>>,
}

struct LinkEntry {
    identity: LinkIdentity,
    /// Key of its entity; none for a node without an entity.
    key: Option<PathKey>,
    session: OnceLock<Arc<str>>,
    gauge: LinkGauge,
}

/// Connected client. Dropping the guard removes it; its name is remembered for locks that outlive
/// it.
pub struct ClientGuard {
    clients: Arc<Clients>,
    client: Arc<ClientEntry>,
}

/// Registered link. Dropping the guard removes it.
pub struct LinkGuard {
    clients: Arc<Clients>,
    client: Arc<ClientEntry>,
    link: Arc<LinkEntry>,
}

/// Numbers of a link, which its connection stores and lists read.
#[derive(Debug, Default)]
pub struct LinkGauge {
    credit: AtomicU64,
    delivered: AtomicU64,
    unsettled: AtomicU32,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            next_client: AtomicU64::new(1),
            next_receiver: AtomicU64::new(1),
            open: RwLock::default(),
            receivers: RwLock::default(),
            link_count: AtomicUsize::new(0),
        }
    }
}

impl Clients {
    /// Returns a new unique name for a receiver link or a holder of locks.
    pub(crate) fn receiver_id(&self) -> ReceiverId {
        ReceiverId(self.next_receiver.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the latest receiver of whose id this is the low half.
    pub(crate) fn latest_receiver(&self, low_half: u32) -> ReceiverId {
        let last = self.next_receiver.load(Ordering::Relaxed) - 1;
        let latest = (last & !u64::from(u32::MAX)) | u64::from(low_half);
        ReceiverId(if latest <= last { latest } else { latest.saturating_sub(1 << 32) })
    }

    /// Adds a client that has connected.
    pub(crate) fn connect(
        self: &Arc<Self>,
        transport: &'static str,
        peer: Option<SocketAddr>,
        now: Timestamp,
    ) -> ClientGuard {
        let id = ClientId(self.next_client.fetch_add(1, Ordering::Relaxed));
        let client = Arc::new(ClientEntry {
            id,
            transport,
            connected_at: now,
            active_at: AtomicI64::new(now.ticks()),
            is_by_proxy: AtomicBool::new(false),
            is_connected: AtomicBool::new(true),
            closed: watch::Sender::new(false),
            receiver: OnceLock::new(),
            traits: Mutex::new(Traits { peer, ..Traits::default() }),
            links: Mutex::default(),
        });
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(id, Arc::clone(&client));
        drop(open);
        ClientGuard { clients: Arc::clone(self), client }
    }

    /// Lets the connection of a client end (CON-24). Returns before it has ended.
    pub(crate) fn close(&self, id: ClientId) -> Result<(), Rejection> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let client = open.get(&id).map(Arc::clone);
        drop(open);
        let Some(client) = client else {
            let detail = format!("no client {} is connected; list the clients again", id.0);
            return Err(Rejection::new(Condition::EntityNotFound, detail));
        };
        if client.closed.receiver_count() == 0 {
            return Err(Rejection::invalid_operation(format!(
                "client {} has no connection that could be closed",
                id.0
            )));
        }
        client.closed.send_replace(true);
        Ok(())
    }

    /// Returns the number of clients of each transport.
    pub(crate) fn count_by_transport(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for client in self.open.read().unwrap_or_else(PoisonError::into_inner).values() {
            *counts.entry(client.transport).or_default() += 1;
        }
        counts
    }

    /// Returns the client of a receiver.
    pub(crate) fn holder(&self, of: ReceiverId) -> Option<HolderFacts> {
        let receivers = self.receivers.read().unwrap_or_else(PoisonError::into_inner);
        let Holder { client, policy } = receivers.by_id.get(&of)?;
        let (client, policy) = (Arc::clone(client), policy.clone());
        drop(receivers);
        let traits = client.traits();
        Some(HolderFacts {
            client: client.id,
            transport: Cow::Borrowed(client.transport),
            name: traits.name.clone(),
            peer: traits.peer,
            policy: policy.or_else(|| traits.policy.clone()),
            is_connected: client.is_connected.load(Ordering::Relaxed),
        })
    }

    /// Returns a page of clients with their links on entities that the reader may read. A reader
    /// that may not read all entities sees no clients without such links.
    pub(crate) async fn page(&self, query: &ClientQuery, readable: &ReadableKeys) -> ClientPage {
        let all: Vec<Arc<ClientEntry>> = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            open.values().map(Arc::clone).collect()
        };
        let wanted = Wanted::new(query);
        let count_max = query.count_max.clamp(1, ROW_COUNT_MAX) as usize;
        let mut page = ClientPage { clients: Vec::new(), total: 0, next: None };
        let (mut bytes, mut is_full) = (0, false);
        for some in all.chunks(EXAMINED_AT_ONCE) {
            for client in some {
                if !wanted.matches(client, readable) {
                    continue;
                }
                page.total += 1;
                if is_full || query.after.is_some_and(|after| client.id <= after) {
                    continue;
                }
                let facts = client.facts(readable);
                let client_bytes = bytes_of_client(&facts);
                let exceeds = !page.clients.is_empty() && bytes + client_bytes > PAGE_BYTES_MAX;
                if exceeds || page.clients.len() == count_max {
                    page.next = page.clients.last().map(|last| last.id);
                    is_full = true;
                    continue;
                }
                bytes += client_bytes;
                page.clients.push(facts);
            }
            tokio::task::yield_now().await;
        }
        page
    }

    /// Counts a registered link or holder; false if there are too many.
    fn count_link(&self) -> bool {
        let more = |count| (count < LINK_COUNT_MAX).then_some(count + 1);
        self.link_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn uncount_link(&self) {
        self.link_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a receiver that may hold locks.
    fn begin(&self, receiver: ReceiverId, client: &Arc<ClientEntry>, policy: Option<Arc<str>>) {
        let holder = Holder { client: Arc::clone(client), policy };
        let mut receivers = self.receivers.write().unwrap_or_else(PoisonError::into_inner);
        receivers.by_id.insert(receiver, holder);
    }

    /// Remembers a receiver that has ended. If there are too many, forgets the earliest.
    fn end(&self, receiver: ReceiverId) {
        let mut receivers = self.receivers.write().unwrap_or_else(PoisonError::into_inner);
        receivers.ended.push_back(receiver);
        let forgotten = if receivers.ended.len() > ENDED_COUNT_MAX {
            receivers.ended.pop_front().and_then(|first| receivers.by_id.remove(&first))
        } else {
            None
        };
        // Releases memory after many links have ended.
        let enough = 2 * receivers.by_id.len();
        if receivers.by_id.capacity() > 2 * enough {
            receivers.by_id.shrink_to(enough);
        }
        drop(receivers);
        // The last reference to a client is dropped without the lock.
        drop(forgotten);
    }
}

impl ClientEntry {
    fn traits(&self) -> MutexGuard<'_, Traits> {
        self.traits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<ReceiverId, Arc<LinkEntry>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn facts(&self, readable: &ReadableKeys) -> ClientFacts {
        let (mut links, mut link_count, mut bytes) = (Vec::new(), 0, 0);
        for link in self.links().values().filter(|link| link.is_readable(readable)) {
            link_count += 1;
            if bytes <= CLIENT_BYTES_MAX {
                let facts = link.facts();
                bytes += bytes_of_link(&facts);
                links.push(facts);
            }
        }
        let traits = self.traits();
        ClientFacts {
            id: self.id,
            transport: Cow::Borrowed(self.transport),
            name: traits.name.clone(),
            peer: traits.peer,
            is_by_proxy: self.is_by_proxy.load(Ordering::Relaxed),
            policy: traits.policy.clone(),
            connected_at: self.connected_at,
            active_at: Timestamp::from_ticks(self.active_at.load(Ordering::Relaxed)),
            links,
            link_count,
        }
    }
}

impl LinkEntry {
    fn is_readable(&self, readable: &ReadableKeys) -> bool {
        match &self.key {
            Some(key) => readable.contains(key),
            None => readable.is_all(),
        }
    }

    fn facts(&self) -> LinkFacts {
        LinkFacts {
            path: Arc::clone(&self.identity.path),
            role: self.identity.role,
            mode: self.identity.mode,
            session: self.session.get().cloned(),
            credit: self.gauge.credit.load(Ordering::Relaxed),
            delivered: self.gauge.delivered.load(Ordering::Relaxed),
            unsettled: self.gauge.unsettled.load(Ordering::Relaxed),
        }
    }
}

/// Conditions of a query, prepared for comparisons.
struct Wanted<'a> {
    query: &'a ClientQuery,
    key: Option<PathKey>,
    name: Option<String>,
}

impl<'a> Wanted<'a> {
    fn new(query: &'a ClientQuery) -> Self {
        let key = query.path.as_deref().map(|path| key_of(path).unwrap_or(PathKey::fold(path)));
        let name = query.name.as_deref().map(str::to_ascii_lowercase);
        Self { query, key, name }
    }

    fn matches(&self, client: &ClientEntry, readable: &ReadableKeys) -> bool {
        if self.query.transport.as_deref().is_some_and(|wanted| wanted != client.transport) {
            return false;
        }
        if let Some(wanted) = &self.name {
            let name = client.traits().name.clone().unwrap_or_default();
            if !name.to_ascii_lowercase().contains(wanted.as_str()) {
                return false;
            }
        }
        if self.key.is_none() && readable.is_all() {
            return true;
        }
        client.links().values().any(|link| {
            let is_wanted = self.key.is_none() || self.key == link.key;
            is_wanted && link.is_readable(readable)
        })
    }
}

/// Key of the entity of a path.
fn key_of(path: &str) -> Option<PathKey> {
    EntityAddress::parse(path).ok().map(|address| address.key())
}

fn bytes_of_client(client: &ClientFacts) -> usize {
    let texts = [&client.name, &client.policy].into_iter().flatten();
    let links = client.links.iter().map(bytes_of_link);
    ROW_BYTES + texts.map(|text| text.len()).sum::<usize>() + links.sum::<usize>()
}

fn bytes_of_link(link: &LinkFacts) -> usize {
    ROW_BYTES + link.path.len() + link.session.as_deref().map_or(0, str::len)
}

impl ClientGuard {
    /// Sets the name that the client gave itself. Its first 256 characters are kept.
    pub fn set_name(&self, name: &str) {
        let mut traits = self.client.traits();
        let end = name.char_indices().nth(NAME_CHARS_MAX).map_or(name.len(), |(at, _)| at);
        let kept = name.get(..end).unwrap_or_default();
        if traits.name.as_deref() != Some(kept) {
            traits.name = (!kept.is_empty()).then(|| kept.into());
        }
    }

    /// Sets the network address of the client, and whether it is the address of a proxy. The
    /// address changes if the client resumes its connection on another socket.
    pub fn set_address(&self, peer: Option<SocketAddr>, is_by_proxy: bool) {
        self.client.traits().peer = peer;
        self.client.is_by_proxy.store(is_by_proxy, Ordering::Relaxed);
    }

    /// Sets the policy whose credentials the client presented. For a client with links, the policy
    /// of its first link is set.
    pub fn set_policy(&self, policy: Option<Arc<str>>) {
        self.client.traits().policy = policy;
    }

    /// Notes that the client sent bytes at this time.
    pub fn note_activity(&self, at: Timestamp) {
        self.client.active_at.store(at.ticks(), Ordering::Relaxed);
    }

    /// Resolves when an operator closes the client. A connection that calls this can be closed.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closed = self.client.closed.subscribe();
        async move {
            // The client ends with its guard, unless an operator has closed it before.
            if closed.wait_for(|closed| *closed).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether an operator has closed the client.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.client.closed.borrow()
    }

    /// Returns the holder of locks that belong to no link, for transports without links. No
    /// `Detach` names it, so its locks outlive the connection (SET-23).
    #[must_use]
    pub fn receiver(&self) -> ReceiverId {
        let holder = self.client.receiver.get_or_init(|| {
            let receiver = self.clients.receiver_id();
            let is_registered = self.clients.count_link();
            if is_registered {
                self.clients.begin(receiver, &self.client, None);
            }
            HolderId { receiver, is_registered }
        });
        holder.receiver
    }

    /// Registers a link of the client; none if the broker has too many.
    #[must_use]
    pub fn link(&self, identity: LinkIdentity) -> Option<LinkGuard> {
        if !self.clients.count_link() {
            return None;
        }
        let (receiver, policy) = (identity.receiver, identity.policy.clone());
        let mut traits = self.client.traits();
        if traits.policy.is_none() {
            traits.policy.clone_from(&policy);
        }
        drop(traits);
        if identity.role == LinkRole::Receiver {
            self.clients.begin(receiver, &self.client, policy);
        }
        let key = key_of(&identity.path);
        let (session, gauge) = (OnceLock::new(), LinkGauge::default());
        let link = Arc::new(LinkEntry { identity, key, session, gauge });
        self.client.links().insert(receiver, Arc::clone(&link));
        let (clients, client) = (Arc::clone(&self.clients), Arc::clone(&self.client));
        Some(LinkGuard { clients, client, link })
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.client.is_connected.store(false, Ordering::Relaxed);
        let mut open = self.clients.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.client.id);
        drop(open);
        if let Some(holder) = self.client.receiver.get().filter(|holder| holder.is_registered) {
            self.clients.end(holder.receiver);
            self.clients.uncount_link();
        }
    }
}

impl LinkGuard {
    /// Numbers of the link.
    #[must_use]
    pub fn gauge(&self) -> &LinkGauge {
        &self.link.gauge
    }

    /// Records the session that the link is bound to, once.
    pub fn set_session(&self, session: &str) {
        self.link.session.get_or_init(|| session.into());
    }
}

impl Drop for LinkGuard {
    fn drop(&mut self) {
        let LinkIdentity { receiver, role, .. } = self.link.identity;
        self.client.links().remove(&receiver);
        if role == LinkRole::Receiver {
            self.clients.end(receiver);
        }
        self.clients.uncount_link();
    }
}

impl LinkGauge {
    /// Sets the number of messages that the client can still receive.
    pub fn set_credit(&self, credit: u64) {
        self.credit.store(credit, Ordering::Relaxed);
    }

    /// Sets the number of messages delivered over the link.
    pub fn set_delivered(&self, delivered: u64) {
        self.delivered.store(delivered, Ordering::Relaxed);
    }

    /// Adds messages delivered over the link.
    pub fn add_delivered(&self, count: u64) {
        self.delivered.fetch_add(count, Ordering::Relaxed);
    }

    /// Sets the number of deliveries in the hands of the client.
    pub fn set_unsettled(&self, unsettled: u32) {
        self.unsettled.store(unsettled, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
