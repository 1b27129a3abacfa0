//! A connection with one client, from its first byte to its end. (Data path, step 1 and back.)
//!
//! One task reads, carries out and writes. Everything that was read is carried out before anything is
//! delivered (AMQP-69). While there is no permit, nothing more is read; while the socket takes nothing, nothing
//! more is encoded (DESIGN D6).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::contract::Principal;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::permits::Budget;
use peeklock_core::time::Timestamp;
use peeklock_link::{Account, ByToken, Engine};
use peeklock_listen::Tracked;

use super::attach::Attaching;
use super::login::Identity;
use super::node::{Asker, Managing, Node};
use super::outcomes::OutcomeKind;
use super::place::Entry;
use super::requests::{Each, Work};
use super::settle::Understood;
use super::share::Share;
use super::site::Site;
use super::transaction::{Book, Committed, Joining};
use super::turn::{Clock, Inflow, Outflow};
use crate::connection::{Connection, Event, LinkId, ReceivedId, SentId};
use crate::error::AmqpError;
use crate::state::DeliveryState;

/// What is remembered of what entities are asked.
pub(super) enum Expect {
    /// Deliveries of a client.
    Sent {
        /// The number of their link.
        number: u32,
        /// Each to be answered; none if it was settled.
        deliveries: Each<Option<ReceivedId>>,
        /// Whether no other that large may arrive meanwhile.
        is_large: bool,
    },
    /// What becomes of deliveries.
    Settled(Each<Ended>),
    /// What an entity takes, of which a sender is told before it is attached.
    Described(Box<Attaching>),
    /// What a request at a management node has asked.
    Managed(Box<Managing>),
    /// What is asked beside the connection for a request at a management node.
    Apart(Asker),
    /// Whether an operation would be carried out, for a transaction.
    Joined(Box<Joining>),
    /// What there is to see for a browser, by its number.
    Seen { number: u32 },
    /// That a transaction is carried out.
    Committed(Box<Committed>),
}

/// What is remembered of what links are asked, by its id.
pub(super) enum Asked {
    /// To be attached.
    Attach(LinkId),
    /// To give back credit.
    Drain(LinkId),
    /// To be detached.
    Detach(LinkId),
}

/// A delivery that is being settled.
pub(super) struct Ended {
    pub(super) token: LockToken,
    pub(super) kind: OutcomeKind,
    /// What the client is answered, if it has not forgotten the delivery.
    pub(super) answer: Option<(SentId, DeliveryState)>,
    /// The delivery, unless its client has settled it for good: it stays if this is refused and its lock stays.
    pub(super) sent: Option<Sent>,
}

/// A delivery that the client was sent under a lock and has not settled, whether its link is there or not
/// (AMQP-39).
pub(super) struct Sent {
    pub(super) id: SentId,
    /// The number of its link.
    pub(super) number: u32,
    pub(super) entity: Entity,
    /// Whether it is locked with its session.
    pub(super) of_session: bool,
    /// When its lock ends, unless it was renewed.
    pub(super) until: Timestamp,
    /// When the message expires.
    pub(super) expires_at: Option<Timestamp>,
}

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
}
