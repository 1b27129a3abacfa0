//! A connection with a client, from its first byte to its end. This is step 1 of the data path in
//! ARCHITECTURE.md, and the way back.
//!
//! A single task reads, carries out requests and writes. All requests that were read are carried
//! out before anything is delivered (AMQP-69). Nothing more is read while a permit is missing, and
//! nothing more is encoded while the socket accepts no bytes (DESIGN D6).

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use peeklock_core::admission::{Account, Budget, PacedShare};
use peeklock_core::contract::Principal;
use peeklock_core::error::Rejection;
use peeklock_link::{ByToken, Engine};
use peeklock_listen::TrackGuard;
use tokio::time::Sleep;

use super::book::TransactionBook;
use super::deleted::{LossCounter, UnflushedDeletions};
use super::identity::Identity;
use super::listener_state::{ConnectionQuota, ListenerState};
use super::node::Node;
use super::place::PlaceSearch;
use super::settlement::SettlementCache;
use super::work::{LinkRequest, LockedDelivery, UnpaidWork};
use crate::connection::{Connection, Event, LinkId};
use crate::error::AmqpError;

/// Reason why a connection was closed.
pub(super) enum Close {
    /// The client closed it, with or without an error (SET-21).
    Orderly,
    /// This side closed it because of an error.
    ByError,
    /// Memory is short: arriving frames are not even read.
    OutOfMemory,
}

/// Numbers of links, and ids of requests to links.
#[derive(Default)]
pub(super) struct Numbering {
    pub(super) numbers: HashMap<u32, LinkId>,
    pub(super) last_number: u32,
    pub(super) link_requests: HashMap<u32, LinkRequest>,
    last_link_request: u32,
}

/// State of a connection.
pub(super) struct Conversation {
    pub(super) listener: Arc<ListenerState>,
    /// Its access applies where no token was put.
    pub(super) engine: Engine<Self>,
    _tracked: TrackGuard,
    pub(super) identity: Identity,
    /// Limits of links, sessions and tokens.
    pub(super) quota: ConnectionQuota,
    pub(super) place_search: PlaceSearch,
    /// Whether the client has opened the connection.
    pub(super) has_received_open: bool,

    pub(super) amqp: Connection,
    pub(super) inflow: Inflow,
    pub(super) outflow: Outflow,
    pub(super) clock: ConnectionTimes,

    /// Budget of messages that may be deleted before they are sent.
    pub(super) deletion_budget: Budget,
    // Requests are carried out in order: first a request that needs a permit, then `grouped_work`,
    // then `delayed_event`, then the events of the machine and the input of `inflow`. A connection
    // must not end before all of these are done (see `has_pending_work`): a client may send
    // requests, close, and not wait for answers.
    /// Requests that are handed over together with requests after them. Present only within
    /// `carry_out`, which ends with none, so no request waits for the client to send more.
    pub(super) grouped_work: Option<UnpaidWork>,
    /// The event after the grouped requests that could not join them, or an event that needs a
    /// place. It is carried out before any other event of the machine, and may be the client's own
    /// `close`.
    pub(super) delayed_event: Option<Event>,
    /// The outcome of the client's current disposition, while it is reported for each delivery.
    pub(super) settlement_cache: SettlementCache,

    pub(super) nodes: BTreeMap<LinkId, Node>,
    /// Links on which something may be sent; reused at each turn.
    pub(super) sending_links: Vec<LinkId>,
    pub(super) numbering: Numbering,
    /// Deliveries by lock token, which requests and delivery tags carry: unsettled deliveries of
    /// its sessions, and deliveries that are being settled.
    pub(super) locked_deliveries: ByToken<LockedDelivery>,
    /// Number of requests that wait for credit for their replies.
    pub(super) waiting_requests: usize,
    pub(super) book: TransactionBook,
    /// Whether the client was notified of the stop.
    pub(super) stop_announced: bool,
}

impl Conversation {
    pub(super) fn new(listener: Arc<ListenerState>, principal: Principal) -> Self {
        let broker = listener.broker.with_connection_place();
        let config = &listener.config;
        let window_bytes = config.outbound_bytes_max;
        let quota = ConnectionQuota::new(Arc::clone(&listener.links), config.link_count_max);
        // Twice the bytes of deliveries, so that replies have room next to waiting deliveries.
        let account = Account::new(&broker.outbound_pool(), 2 * window_bytes)
            .with_large(listener.large_outbound.clone());
        let access = broker.access(principal.clone());
        let unsettled_max = config.unsettled_count_max;
        let stop = listener.connections.stop_begun();
        let client = broker.client("amqp", principal.peer);
        client.set_address(principal.peer, principal.by_proxy);
        let mut engine =
            Engine::new(broker.clone(), access, client, stop, account, window_bytes, unsettled_max);
        engine.links.count_from(config.initial_delivery_count.into());
        Self {
            engine,
            _tracked: listener.connections.track(),
            identity: Identity::new(principal),
            place_search: PlaceSearch::default(),
            has_received_open: false,
            amqp: {
                let mut amqp = Connection::new(config.of_connection(&broker.settings().name));
                amqp.allow(quota.count(), quota.session_count());
                amqp
            },
            quota,
            inflow: Inflow::new(&listener),
            outflow: Outflow::default(),
            clock: ConnectionTimes::new(config.opening_timeout),
            numbering: Numbering::default(),
            deletion_budget: Budget::new(window_bytes),
            grouped_work: None,
            delayed_event: None,
            settlement_cache: SettlementCache::default(),
            nodes: BTreeMap::new(),
            sending_links: Vec::new(),
            locked_deliveries: ByToken::default(),
            waiting_requests: 0,
            book: TransactionBook::default(),
            stop_announced: false,
            listener,
        }
    }

    /// Registers a request to a link and returns its id.
    pub(super) fn add_link_request(&mut self, asked: LinkRequest) -> u32 {
        loop {
            self.numbering.last_link_request = self.numbering.last_link_request.wrapping_add(1);
            if self.numbering.last_link_request != 0
                && !self.numbering.link_requests.contains_key(&self.numbering.last_link_request)
            {
                self.numbering.link_requests.insert(self.numbering.last_link_request, asked);
                return self.numbering.last_link_request;
            }
        }
    }

    pub(super) fn refuse(&self, rejection: Rejection, path: &str) -> AmqpError {
        super::error::of(&self.engine.broker.refuse(rejection, path))
    }

    /// Refuses with a condition of the standard, for errors that have no condition of the broker.
    pub(super) fn refuse_as(&self, condition: &'static str, text: String, path: &str) -> AmqpError {
        let error = self.engine.broker.refuse(Rejection::argument(text), path);
        AmqpError::new(condition, error.to_string())
    }

    /// Makes room for another link and another session if there is none.
    pub(super) fn make_room_for_links(&mut self) {
        let is_short = self.amqp.link_count() >= self.quota.count()
            || self.amqp.session_count() >= self.quota.session_count();
        if is_short {
            self.grow();
        }
    }

    /// Takes a step from the shared pool. Returns false if none is left for this connection.
    pub(super) fn grow(&mut self) -> bool {
        let grows = self.may_stay() && self.quota.grow();
        if grows {
            self.amqp.allow(self.quota.count(), self.quota.session_count());
        }
        grows
    }

    /// Returns unneeded steps to the shared pool.
    pub(super) fn shrink_share(&mut self) {
        let count = self.amqp.link_count().max(self.identity.tokens.len());
        self.quota.shrink(count, self.amqp.session_count(), self.identity.held_token_bytes(None));
        self.amqp.allow(self.quota.count(), self.quota.session_count());
    }
}

/// Time for which a client may stall in a large message while another large message waits to begin.
/// After that the client must send its message again, so the time is long.
const LARGE_GRACE: Duration = Duration::from_secs(10);
/// Interval at which ended locks are removed and the progress of the client is checked.
pub(super) const TICK: Duration = Duration::from_secs(5);

/// Received bytes that were not carried out.
pub(super) struct Inflow {
    pub(super) input: BytesMut,
    /// Room for incomplete messages, and the number of their received bytes.
    pub(super) share: PacedShare,
    pub(super) assembled_bytes: u64,
    /// Room for a large message, and the number of large messages that are not stored yet.
    pub(super) large_share: PacedShare,
    pub(super) large_count: usize,
}

impl Inflow {
    pub(super) fn new(listener: &ListenerState) -> Self {
        Self {
            input: BytesMut::new(),
            share: listener.inbound.paced_share(),
            assembled_bytes: 0,
            large_share: listener.large_inbound.patient_share(LARGE_GRACE),
            large_count: 0,
        }
    }
}

/// Bytes that are being sent to the client.
#[derive(Default)]
pub(super) struct Outflow {
    /// Total number of bytes that were written to the socket.
    pub(super) written_bytes: u64,
    /// Number of the large content that the account holds, and since when.
    pub(super) large_since: Option<(u64, Instant)>,
    /// Messages that were received and deleted: the lost ones, and the ones that are being written.
    pub(super) lost: LossCounter,
    pub(super) unflushed_deletions: UnflushedDeletions,
    /// Whether bytes were written that the operating system may not have yet.
    pub(super) is_unflushed: bool,
    pub(super) stalled_since: Option<Instant>,
    /// Whether nothing can be written any more. Requests that were read are still carried out.
    pub(super) write_closed: bool,
}

/// Times of a connection.
pub(super) struct ConnectionTimes {
    pub(super) began: Instant,
    /// End of the wait for room after the connection is over, for requests from before.
    pub(super) over_until: Option<Instant>,
    pub(super) timer: Pin<Box<Sleep>>,
    /// Time of the next regular check.
    pub(super) next_tick: Instant,
    /// Whether bytes were read since the timer was last polled.
    pub(super) has_read: bool,
    /// Whether reading waits for room or for an answer, so that the client cannot show activity.
    pub(super) read_blocked: bool,
}

impl ConnectionTimes {
    pub(super) fn new(opening_timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            began: now,
            over_until: None,
            timer: Box::pin(tokio::time::sleep(opening_timeout)),
            next_tick: now + TICK,
            has_read: false,
            read_blocked: false,
        }
    }
}
