//! A connection with one client, from its first byte to its end. (Data path, step 1 and back.)
//!
//! One task reads, carries out and writes. Everything that was read is carried out before anything is
//! delivered (AMQP-69). While there is no permit, nothing more is read; while the socket takes nothing, nothing
//! more is encoded (DESIGN D6).

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::contract::Principal;
use peeklock_core::error::{Quoted, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::permits::Budget;
use peeklock_core::request::{Outcome, Released};
use peeklock_core::time::Timestamp;
use peeklock_link::pending::place;
use peeklock_link::{
    Account, ByToken, Engine, Event as LinkEvent, Finished, LONG_MAX, Phase, Protocol,
};
use peeklock_listen::Tracked;

use super::attach::Attaching;
use super::deliver::token_of;
use super::gather::Each;
use super::login::Identity;
use super::node::{Answered, Asker, ManagementAnswer, Managing, Node};
use super::outcomes::OutcomeKind;
use super::place::Entry;
use super::settle::Understood;
use super::share::Share;
use super::site::Site;
use super::transaction::{Book, Committed, Joining};
use super::turn::{Clock, Inflow, Outflow};
use super::work::Work;
use crate::connection::{Connection, Event, LinkId, ReceivedId, SentId, SessionId};
use crate::error::AmqpError;
use crate::performative::DeliveryTag;
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

/// The link under whose name answers are brought that stand in no order with deliveries: these may have to wait
/// for room that the client makes when it is answered.
pub(super) const ANSWERS: u32 = u32::MAX - 1;

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

impl Protocol for Conversation {
    type Expect = Expect;
    type Unpaid = Work;
    type Paid = Infallible;
    type Close = Close;
    type Outcome = Answered;

    const APART_MAX: usize = LONG_MAX;

    fn engine(&mut self) -> &mut Engine<Self> {
        &mut self.engine
    }

    fn order_of(&mut self, released: &Released) -> u32 {
        let link = self.engine.links.link_of(released);
        let Released::Answer { correlation, result } = released else { return link };
        let brings = matches!(
            result,
            Ok(Outcome::Received(_) | Outcome::Peeked(_) | Outcome::SessionState(_))
        );
        let is_asked = self.engine.links.asked_mut(place(*correlation).0).is_some();
        if is_asked && !brings { ANSWERS } else { link }
    }

    /// Says whether it would be missed: it has links, but to ask for something, to put tokens or to declare transactions, which
    /// take no right, or something of it is under way, such as a transaction with an operation. False if it would not
    /// have been a moment ago, and somebody has its place.
    fn mark_idle(&mut self) -> bool {
        let only_asks = |node: &Node| {
            matches!(node, Node::Requests(_) | Node::Replies(_) | Node::Coordinator(_))
        };
        let has_link = !self.nodes.values().all(only_asks);
        if has_link {
            self.engine.standing.has_link();
        }
        let is_idle = self.entry.place.is_some()
            && self.engine.is_open()
            && !has_link
            && !(self.engine.standing.awaits_link() && self.shows_key())
            && self.engine.links.pending_count() == 0
            && self.numbering.asked.is_empty()
            && self.sent.is_empty()
            && self.gathered.is_none()
            && self.waiting_requests == 0
            && !self.engine.apart.is_busy()
            && !self.engine.transactions.has_operations();
        self.engine.standing.mark_idle(is_idle, &self.site.places)
    }

    fn may_emit(&self) -> bool {
        self.may_answer()
    }

    fn may_start_apart(&self) -> bool {
        self.engine.account.held_bytes() < self.engine.account.bytes_max() && self.may_answer()
    }

    fn measure(&self) -> impl Fn(&Answered) -> u64 + Send + 'static {
        |answer| answer.as_ref().map_or(0, ManagementAnswer::len)
    }

    async fn emit(&mut self, event: LinkEvent, held_bytes: u64) {
        self.engine.steps.add_bytes(held_bytes);
        match event {
            LinkEvent::Delivered { link, message, .. } => {
                return self.deliver(link, *message, held_bytes);
            }
            LinkEvent::Answer { slot, index, result } => {
                return self.answered(slot, index, result, held_bytes);
            }
            LinkEvent::Stopped { link, path, reason } => self.stopped(link, &path, reason),
            LinkEvent::Done { id, path, result } => match self.numbering.asked.remove(&id) {
                Some(Asked::Attach(link)) => self.attached(link, &path, result),
                Some(Asked::Detach(link)) => self.amqp.detach(link, None),
                Some(Asked::Drain(_)) | None => {}
            },
            LinkEvent::Drained { id, .. } => {
                if let Some(Asked::Drain(link)) = self.numbering.asked.remove(&id) {
                    self.drained(link);
                }
            }
            LinkEvent::Accepted { id, path, result } => {
                if let Some(Asked::Attach(link)) = self.numbering.asked.remove(&id) {
                    self.session_accepted(link, &path, result);
                }
            }
            LinkEvent::Nothing | LinkEvent::Messages { .. } => {}
        }
        self.engine.account.release(held_bytes);
    }

    fn emit_finished(&mut self, finished: Finished<Answered>) {
        self.answer_apart(finished);
    }
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

    /// Carries out requests as far as there is room. Returns whether some are left.
    pub(super) async fn carry_out(&mut self) -> bool {
        let now = self.clock.began.elapsed();
        let is_stopped = loop {
            self.engine.steps.rest().await;
            if !self.may_ask() {
                break true;
            }
            self.engine.steps.add(1);
            if self.gathered.is_none() && (self.ask_waiting().await || self.commit_answered().await)
            {
                continue;
            }
            let next = self.behind.take();
            self.make_room_for_links();
            let before = self.inflow.input.len();
            let next = next.or_else(|| self.amqp.next_event(&mut self.inflow.input, now));
            self.engine.steps.add_bytes(before.saturating_sub(self.inflow.input.len()) as u64);
            let Some(event) = next else { break false };
            if self.needs_place(&event) {
                self.behind = Some(event);
                self.engine.phase = Phase::NeedsPlace;
                break true;
            }
            self.engine.standing.asks();
            if self.joins(&event) {
                self.happened(event).await;
            } else {
                self.behind = Some(event);
                self.hand_over_gathered().await;
            }
        };
        self.hand_over_gathered().await;
        self.engine.links.hand_over();
        if self.amqp.settling.is_none() {
            // It may be as large as a frame.
            self.understood = Understood::default();
        }
        match self.engine.phase {
            Phase::Closed(Close::GaveUp) => self.inflow.input.clear(),
            // After an end only the client's own end counts.
            Phase::Closed(_) => {
                while self.amqp.next_event(&mut self.inflow.input, now).is_some() {}
            }
            _ => {}
        }
        is_stopped
    }

    /// What came, is no part of a message yet, and waits for what came before it.
    pub(super) fn behind_bytes(&self) -> u64 {
        match &self.behind {
            Some(Event::Received { part, .. }) => part.payload.len() as u64,
            _ => 0,
        }
    }

    pub(super) async fn happened(&mut self, event: Event) {
        match event {
            Event::Login(credentials) => self.log_in(credentials).await,
            Event::Opened(open) => {
                tracing::debug!(client = &*open.container_id, "connection opened");
                self.is_open = true;
                self.seek_place().await;
            }
            Event::Begun(_) => {}
            Event::Attached { link, attach } => self.attach(link, &attach).await,
            Event::Credit { link, drain, .. } => self.credited(link, drain),
            Event::Received { link, part } => self.received(link, part).await,
            Event::Settled { delivery, tag, state, settled, .. } => {
                self.settle(delivery, &tag, state, settled).await;
            }
            Event::Detached { link, .. } | Event::Failed { link, .. } => self.detach(link),
            Event::Ended { session, unsettled, .. } => self.end_session(session, &unsettled),
            Event::Closed { error, by_client } => {
                if let (Some(error), true) = (&error, by_client) {
                    let error = error.to_string();
                    tracing::debug!(error = %Quoted(&error), "closed by its client");
                }
                // Nobody has to go for one that goes itself.
                self.stop_seeking();
                let is_orderly = by_client || error.is_none();
                let close = if is_orderly { Close::Orderly } else { Close::ByError };
                self.engine.phase = Phase::Closed(close);
            }
        }
    }

    fn end_session(&mut self, session: SessionId, unsettled: &[DeliveryTag]) {
        let links: Vec<LinkId> =
            self.nodes.range(LinkId::all_of(session)).map(|(link, _)| *link).collect();
        for link in links {
            self.detach(link);
        }
        self.book.groups.end(session);
        // Nobody can settle them any more; queues keep them locked until their locks end (AMQP-69). Other sessions may
        // have any number of them, so these are looked up.
        for token in unsettled.iter().filter_map(token_of) {
            self.sent.remove(&token);
        }
        self.engine.steps.add(unsettled.len());
    }

    /// Something that an entity was asked is answered, by what holds so much of the account.
    fn answered(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
        held_bytes: u64,
    ) {
        if let Some((_, _, Expect::Managed(_))) = self.engine.links.asked_mut(slot) {
            return self.managed(slot, index, result, held_bytes);
        }
        self.answered_alone(slot, index, result);
        // Not before: what is made of it is counted by now, and keeps the room that it had.
        self.engine.account.release(held_bytes);
    }

    /// The same for what is told at once, whatever else was asked with it.
    fn answered_alone(&mut self, slot: usize, index: usize, result: Result<Outcome, Rejection>) {
        match self.engine.links.asked_mut(slot) {
            Some((_, path, Expect::Sent { number, deliveries, is_large })) => {
                let (number, is_large) = (*number, *is_large);
                let Some((delivery, is_last)) = deliveries.answered(index) else { return };
                if is_last {
                    self.engine.links.answered(slot);
                    self.inflow.large_count -= usize::from(is_large);
                }
                return self.stored(number, delivery, &path, result.map(|_| ()));
            }
            Some((_, path, Expect::Settled(each))) => {
                let Some((ended, is_last)) = each.answered(index) else { return };
                if is_last {
                    self.engine.links.answered(slot);
                }
                return self.settled(ended, &path, result.map(|_| ()));
            }
            _ => {}
        }
        let Some(pending) = self.engine.links.answered(slot) else { return };
        let path = pending.path;
        match pending.expect {
            Expect::Described(attaching) => self.described(*attaching, result),
            Expect::Seen { number } => self.seen(number, &path, result),
            Expect::Joined(joining) => self.joined(*joining, &path, result),
            Expect::Committed(committed) => self.committed(*committed, &path, result),
            Expect::Managed(_) | Expect::Apart(_) | Expect::Sent { .. } | Expect::Settled(_) => {}
        }
    }

    /// Whether something more may be carried out: what waits for a permit or a place goes first, and there is room for
    /// answers. What was delivered and waits for the client's windows is no reason to stop, for it is the
    /// client that opens them.
    pub(super) fn may_ask(&self) -> bool {
        self.engine.is_open()
            && self.engine.links.pending_count()
                < self.engine.broker.settings().limits.connection_inbound_count_max
            && self.may_answer()
    }

    /// Whether there is room for answers: little waits to be written, or none is written any more.
    pub(super) fn may_answer(&self) -> bool {
        self.outflow.write_closed || self.amqp.is_over() || !self.amqp.is_full()
    }

    /// Whether something was read that is not carried out, and that nothing can be read behind: `gathered` is none
    /// wherever this is asked.
    pub(super) const fn has_ahead(&self) -> bool {
        self.engine.needs_permit() || self.behind.is_some()
    }
}
