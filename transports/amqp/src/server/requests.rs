//! The requests of a client: from the events of its connection to entities, and from their answers back.
//!
//! Everything that was read is carried out before anything is delivered (AMQP-69). Messages on one link are handed over
//! together, and so are settlements of one link: together they take one permit and one place among what is awaited, and
//! each is answered for itself. A permit and a place for each cost as much as the rest of a small message. No request after one
//! that needs a permit is carried out before that has it, so that the requests of a connection are bounded (DESIGN D6).

use std::convert::Infallible;

use peeklock_core::admission::Permit;
use peeklock_core::error::{Quoted, Rejection};
use peeklock_core::request::{Outcome, Released};
use peeklock_link::pending::place;
use peeklock_link::{Engine, Event as LinkEvent, Finished, LONG_MAX, Phase, Protocol};

use super::conversation::{Close, Conversation};
use super::deliver::token_of;
use super::node::{Answered, ManagementAnswer, Node};
use super::settlement::Understood;
use super::work::{ANSWERS, Asked, Expect, Work};
use crate::connection::{Event, LinkId, SessionId};
use crate::performative::DeliveryTag;
use crate::state::DeliveryState;

/// So many are handed over together.
const COUNT_MAX: usize = 64;
/// So many bytes are handed over together; a message that is larger goes alone.
const BYTES_MAX: u64 = 256 << 10;

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

    /// Whether something may be carried out before what is gathered is handed over: it goes with it, or there is
    /// nothing.
    pub(super) fn joins(&self, event: &Event) -> bool {
        let count_max = self.engine.broker.settings().limits.connection_inbound_count_max;
        let has_room = |count: usize| count < COUNT_MAX.min(count_max);
        match (&self.gathered, event) {
            (None, _) => true,
            (Some(Work::Send(inbound)), Event::Received { link, part }) => {
                let Some(Node::Inlet(inlet)) = self.nodes.get(link) else { return false };
                let (count, bytes) = inbound.cost();
                let more = inlet.assembly.len() + part.payload.len();
                inbound.is_of(*link)
                    && inlet.takes_alone(part)
                    && has_room(usize::try_from(count).unwrap_or(usize::MAX))
                    && bytes.saturating_add(more as u64) <= BYTES_MAX
            }
            (Some(Work::Settle(list)), Event::Settled { tag, state, .. }) => {
                let of = |number| list.first().is_some_and(|first| first.is_of(number));
                has_room(list.len())
                    && !matches!(state, Some(DeliveryState::Transactional(_)))
                    && token_of(tag)
                        .and_then(|token| self.sent.get(&token))
                        .is_none_or(|sent| of(sent.number))
            }
            _ => false,
        }
    }

    /// Hands over what is gathered, when there is room for it.
    pub(super) async fn hand_over_gathered(&mut self) {
        if let Some(work) = self.gathered.take() {
            self.when_room(work).await;
        }
    }

    /// Does something when there is room for it; until then nothing more is carried out.
    pub(super) async fn when_room(&mut self, work: Work) {
        let (count, bytes) = work.cost();
        if let Some(permit) = self.engine.budget.try_take_list(count, bytes) {
            return self.work(work, permit).await;
        }
        self.engine.hold(work, count, bytes);
    }

    /// Does it.
    pub(super) async fn work(&mut self, work: Work, permit: Permit) {
        match work {
            Work::Send(inbound) => self.send(inbound, permit).await,
            Work::Settle(list) => self.settle_now(list, permit).await,
            // Nobody would hold what it brings.
            Work::Attach(_) if self.amqp.is_over() => {}
            Work::Attach(attaching) => self.open(*attaching, permit).await,
            Work::Commit(committing) => self.commit(committing, permit),
            Work::AskApart(asker, asking) => self.ask_apart(asker, asking, permit),
            Work::Ask(plan) => self.ask_planned(*plan, permit).await,
        }
    }
}
