//! A connection with one client, from its first byte to its end. (Data path, step 1 and back.)
//!
//! One task reads, carries out and writes. Everything that was read is carried out before anything is
//! delivered (AMQP-69). While there is no permit, nothing more is read; while the socket takes nothing, nothing
//! more is encoded (DESIGN D6).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use peeklock_core::admission::{Account, Budget};
use peeklock_core::contract::Principal;
use peeklock_core::error::Rejection;
use peeklock_link::{ByToken, Engine};
use peeklock_listen::Tracked;

use super::book::Book;
use super::flow::{Clock, Inflow, Outflow};
use super::identity::Identity;
use super::node::Node;
use super::place::Entry;
use super::settlement::Understood;
use super::site::{Share, Site};
use super::work::{Asked, Sent, Work};
use crate::connection::{Connection, Event, LinkId};
use crate::error::AmqpError;

/// How a connection was closed.
pub(super) enum Close {
    /// By its client, whatever for (SET-21).
    Orderly,
    /// Because of an error.
    ByError,
    /// For want of room: frames that arrive are not even read.
    GaveUp,
}

/// The numbers of links, and of requests that links were asked.
#[derive(Default)]
pub(super) struct Numbering {
    pub(super) numbers: HashMap<u32, LinkId>,
    pub(super) last_number: u32,
    pub(super) asked: HashMap<u32, Asked>,
    last_asked: u32,
}

/// The state of a connection.
pub(super) struct Conversation {
    pub(super) site: Arc<Site>,
    /// Its rights count where no token was put.
    pub(super) engine: Engine<Self>,
    _tracked: Tracked,
    pub(super) identity: Identity,
    /// What it may have of links, sessions and tokens.
    pub(super) share: Share,
    pub(super) entry: Entry,
    /// Whether its client has opened it.
    pub(super) is_open: bool,

    pub(super) amqp: Connection,
    pub(super) inflow: Inflow,
    pub(super) outflow: Outflow,
    pub(super) clock: Clock,

    /// What may be removed by number before it is sent.
    pub(super) for_good: Budget,
    // Requests are carried out in their order: first the one that needs a permit, then `gathered`, then `behind`, then
    // the events of the machine and `input`. A connection is not over before all of that is (see `has_ahead`): a client
    // may send requests, close, and wait for nothing.
    /// What is to be handed over, with what may come behind it: there only within `carry_out`, which ends with
    /// none, so that it never waits for a client to say more.
    pub(super) gathered: Option<Work>,
    /// What came behind what was gathered and did not go with it, or needs a place, at most one: the next to be carried
    /// out, before anything else is taken from the machine. It may be the client's own `close`.
    pub(super) behind: Option<Event>,
    /// What the client has said last of deliveries, as long as it is being told of each.
    pub(super) understood: Understood,

    pub(super) nodes: BTreeMap<LinkId, Node>,
    /// Those of them that something may be sent on, while each is looked at.
    pub(super) pumped: Vec<LinkId>,
    pub(super) numbering: Numbering,
    /// By the tokens of their locks, which requests name them by, and which their tags say: what its session has as
    /// unsettled, or what is being told of that.
    pub(super) sent: ByToken<Sent>,
    /// Requests that wait for credit for their replies.
    pub(super) waiting_requests: usize,
    pub(super) book: Book,
    /// Whether its client knows of the stop.
    pub(super) stop_announced: bool,
}

impl Conversation {
    pub(super) fn new(site: Arc<Site>, who: Principal) -> Self {
        let broker = site.broker.placed();
        let config = &site.config;
        let window_bytes = config.outbound_bytes_max;
        let share = Share::new(Arc::clone(&site.links), config.link_count_max);
        // As much again as deliveries may be, so that replies have room beside those that wait for the client.
        let account = Account::new(&broker.outbound_pool(), 2 * window_bytes)
            .with_large(site.large_outbound.clone());
        let access = broker.access(who.clone());
        let unsettled_max = config.unsettled_count_max;
        let stop = site.connections.stop_begun();
        let mut engine =
            Engine::new(broker.clone(), access, stop, account, window_bytes, unsettled_max);
        engine.links.count_from(config.initial_delivery_count.into());
        Self {
            engine,
            _tracked: site.connections.track(),
            identity: Identity::new(who),
            entry: Entry::default(),
            is_open: false,
            amqp: {
                let mut amqp = Connection::new(config.of_connection(&broker.settings().name));
                amqp.allow(share.count(), share.session_count());
                amqp
            },
            share,
            inflow: Inflow::new(&site),
            outflow: Outflow::default(),
            clock: Clock::new(config.opening_timeout),
            numbering: Numbering::default(),
            for_good: Budget::new(window_bytes),
            gathered: None,
            behind: None,
            understood: Understood::default(),
            nodes: BTreeMap::new(),
            pumped: Vec::new(),
            sent: ByToken::default(),
            waiting_requests: 0,
            book: Book::default(),
            stop_announced: false,
            site,
        }
    }

    /// A name for something that is asked of a link.
    pub(super) fn ask(&mut self, asked: Asked) -> u32 {
        loop {
            self.numbering.last_asked = self.numbering.last_asked.wrapping_add(1);
            if self.numbering.last_asked != 0
                && !self.numbering.asked.contains_key(&self.numbering.last_asked)
            {
                self.numbering.asked.insert(self.numbering.last_asked, asked);
                return self.numbering.last_asked;
            }
        }
    }

    pub(super) fn refuse(&self, rejection: Rejection, path: &str) -> AmqpError {
        super::error::of(&self.engine.broker.refuse(rejection, path))
    }

    /// The same with a condition of the standard, for what the broker has no word for.
    pub(super) fn refuse_as(&self, condition: &'static str, text: String, path: &str) -> AmqpError {
        let error = self.engine.broker.refuse(Rejection::argument(text), path);
        AmqpError::new(condition, error.to_string())
    }

    /// Makes room for another link and another session, if there is none.
    pub(super) fn make_room_for_links(&mut self) {
        let is_short = self.amqp.link_count() >= self.share.count()
            || self.amqp.session_count() >= self.share.session_count();
        if is_short {
            self.grow();
        }
    }

    /// Takes a step more than it has. False if there is none for it.
    pub(super) fn grow(&mut self) -> bool {
        let grows = self.is_let_in() && self.share.grow();
        if grows {
            self.amqp.allow(self.share.count(), self.share.session_count());
        }
        grows
    }

    /// Gives back what it does not need any more.
    pub(super) fn shrink_share(&mut self) {
        let count = self.amqp.link_count().max(self.identity.shown.len());
        self.share.shrink(count, self.amqp.session_count(), self.identity.shown_bytes(None));
        self.amqp.allow(self.share.count(), self.share.session_count());
    }
}
