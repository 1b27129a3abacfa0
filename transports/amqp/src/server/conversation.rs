//! A connection with a client, from its first byte to its end. This is step 1 of the data path in
//! ARCHITECTURE.md, and the way back.
//!
//! A single task reads, carries out requests and writes. All requests that were read are carried
//! out before anything is delivered (AMQP-69). Nothing more is read while a permit is missing, and
//! nothing more is encoded while the socket accepts no bytes (DESIGN D6).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use peeklock_core::admission::{Account, Budget};
use peeklock_core::contract::Principal;
use peeklock_core::error::Rejection;
use peeklock_link::{ByToken, Engine};
use peeklock_listen::TrackGuard;

use super::book::TransactionBook;
use super::identity::Identity;
use super::listener_state::{ConnectionQuota, ListenerState};
use super::node::Node;
use super::place::PlaceSearch;
use super::settlement::SettlementCache;
use super::traffic::{ConnectionTimes, Inflow, Outflow};
use super::work::{LinkRequest, LockedDelivery, PermittedWork};
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
    pub(super) is_open: bool,

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
    pub(super) grouped_work: Option<PermittedWork>,
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
            is_open: false,
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
