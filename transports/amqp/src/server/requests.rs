//! Requests of a client: from events of its connection to commands for entities, and from answers
//! back to the client.
//!
//! All requests that were read are carried out before anything is delivered (AMQP-69). Messages on
//! one link are handed over together, and so are settlements of a link. Such a group takes a
//! single permit and a single slot among the pending requests, since a permit and a slot for each
//! would double the cost of a small message. Each message is still answered separately. After a
//! request that waits for a permit, no further request is carried out, so the number of requests of
//! a connection is bounded (DESIGN D6).

use std::convert::Infallible;

use peeklock_core::admission::Permit;
use peeklock_core::error::{Quoted, Rejection};
use peeklock_core::request::{Outcome, Released};
use peeklock_link::pending::slot_and_index;
use peeklock_link::{Engine, Event as LinkEvent, FinishedWork, LONG_MAX, Phase, Protocol};

use super::conversation::{Close, Conversation};
use super::deliver::token_of;
use super::node::{ManagementAnswer, ManagementResult, Node};
use super::settlement::SettlementCache;
use super::work::{ANSWERS, LinkRequest, PendingAnswer, UnpaidWork};
use crate::connection::{Event, LinkId, SessionId};
use crate::performative::DeliveryTag;
use crate::state::DeliveryState;

/// Maximum number of requests that are handed over together.
const COUNT_MAX: usize = 64;
/// Maximum number of bytes that are handed over together; a larger message goes alone.
const BYTES_MAX: u64 = 256 << 10;

impl Protocol for Conversation {
    type PendingAnswer = PendingAnswer;
    type Unpaid = UnpaidWork;
    type Paid = Infallible;
    type Close = Close;
    type Outcome = ManagementResult;

    const BACKGROUND_MAX: usize = LONG_MAX;

    fn engine(&mut self) -> &mut Engine<Self> {
        &mut self.engine
    }

    fn ordering_link(&mut self, released: &Released) -> u32 {
        let link = self.engine.links.link_of(released);
        let Released::Answer { correlation, result } = released else { return link };
        let brings = matches!(
            result,
            Ok(Outcome::Received(_) | Outcome::Peeked(_) | Outcome::SessionState(_))
        );
        let is_pending = self.engine.links.request_mut(slot_and_index(*correlation).0).is_some();
        if is_pending && !brings { ANSWERS } else { link }
    }

    /// Updates whether the connection is idle: it has no links except for requests, tokens and
    /// transactions, which need no right, and no work is in progress, such as a transaction with an
    /// operation. Returns false if the connection was idle before and another client has taken its
    /// place.
    fn mark_idle(&mut self) -> bool {
        let only_asks = |node: &Node| {
            matches!(node, Node::Requests(_) | Node::Replies(_) | Node::Coordinator(_))
        };
        let has_link = !self.nodes.values().all(only_asks);
        if has_link {
            self.engine.place.has_link();
        }
        let is_idle = self.place_search.place.is_some()
            && self.engine.is_open()
            && !has_link
            && !(self.engine.place.awaits_link() && self.has_credential())
            && self.engine.links.pending_count() == 0
            && self.numbering.link_requests.is_empty()
            && self.locked_deliveries.is_empty()
            && self.grouped_work.is_none()
            && self.waiting_requests == 0
            && !self.engine.background.is_busy()
            && !self.engine.transactions.has_operations();
        self.engine.place.mark_idle(is_idle, &self.listener.places)
    }

    fn may_emit(&self) -> bool {
        self.may_answer()
    }

    fn may_start_background(&self) -> bool {
        self.engine.account.held_bytes() < self.engine.account.bytes_max() && self.may_answer()
    }

    fn measure(&self) -> impl Fn(&ManagementResult) -> u64 + Send + 'static {
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
            LinkEvent::Done { id, path, result } => {
                match self.numbering.link_requests.remove(&id) {
                    Some(LinkRequest::Attach(link)) => self.attached(link, &path, result),
                    Some(LinkRequest::Detach(link)) => self.amqp.detach(link, None),
                    Some(LinkRequest::Drain(_)) | None => {}
                }
            }
            LinkEvent::Drained { id, .. } => {
                if let Some(LinkRequest::Drain(link)) = self.numbering.link_requests.remove(&id) {
                    self.drained(link);
                }
            }
            LinkEvent::Accepted { id, path, result } => {
                if let Some(LinkRequest::Attach(link)) = self.numbering.link_requests.remove(&id) {
                    self.session_accepted(link, &path, result);
                }
            }
            LinkEvent::Nothing | LinkEvent::Messages { .. } => {}
        }
        self.engine.account.release(held_bytes);
    }

    fn emit_finished(&mut self, finished: FinishedWork<ManagementResult>) {
        self.answer_background(finished);
    }
}

impl Conversation {
    /// Carries out requests while there is room. Returns whether some are left.
    pub(super) async fn carry_out(&mut self) -> bool {
        let now = self.clock.began.elapsed();
        let has_left = loop {
            self.engine.steps.yield_if_due().await;
            if !self.may_carry_out() {
                break true;
            }
            self.engine.steps.add(1);
            if self.grouped_work.is_none()
                && (self.carry_out_waiting().await || self.commit_answered().await)
            {
                continue;
            }
            let next = self.delayed_event.take();
            self.make_room_for_links();
            let before = self.inflow.input.len();
            let next = next.or_else(|| self.amqp.next_event(&mut self.inflow.input, now));
            self.engine.steps.add_bytes(before.saturating_sub(self.inflow.input.len()) as u64);
            let Some(event) = next else { break false };
            if self.needs_place(&event) {
                self.delayed_event = Some(event);
                self.engine.phase = Phase::NeedsPlace;
                break true;
            }
            self.engine.place.asks();
            if self.may_handle_now(&event) {
                self.handle_event(event).await;
            } else {
                self.delayed_event = Some(event);
                self.hand_over_group().await;
            }
        };
        self.hand_over_group().await;
        self.engine.links.submit_groups();
        if self.amqp.current_disposition.is_none() {
            // The outcome may be as large as a frame.
            self.settlement_cache = SettlementCache::default();
        }
        match self.engine.phase {
            Phase::Closed(Close::OutOfMemory) => self.inflow.input.clear(),
            // After a close, only the client's own close matters.
            Phase::Closed(_) => {
                while self.amqp.next_event(&mut self.inflow.input, now).is_some() {}
            }
            _ => {}
        }
        has_left
    }

    /// Bytes of the event that waits for earlier requests and is not part of a message yet.
    pub(super) fn delayed_event_bytes(&self) -> u64 {
        match &self.delayed_event {
            Some(Event::Received { part, .. }) => part.payload.len() as u64,
            _ => 0,
        }
    }

    pub(super) async fn handle_event(&mut self, event: Event) {
        match event {
            Event::Login(credentials) => self.log_in(credentials).await,
            Event::Opened(open) => {
                tracing::debug!(client = &*open.container_id, "connection opened");
                self.engine.client.set_name(&open.container_id);
                self.has_received_open = true;
                self.seek_place().await;
            }
            Event::Begun(_) => {}
            Event::Attached { link, attach } => self.attach(link, &attach).await,
            Event::Credit { link, drain, .. } => self.credited(link, drain),
            Event::Received { link, part } => self.received(link, part).await,
            Event::Disposition { delivery, tag, state, settled, .. } => {
                self.settle(delivery, &tag, state, settled).await;
            }
            Event::Detached { link, .. } | Event::Failed { link, .. } => self.detach(link),
            Event::Ended { session, unsettled, .. } => self.end_session(session, &unsettled),
            Event::Closed { error, by_client } => {
                if let (Some(error), true) = (&error, by_client) {
                    let error = error.to_string();
                    tracing::debug!(error = %Quoted(&error), "closed by its client");
                }
                // No other connection needs to yield its place to this one any more.
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
        // Nobody can settle the deliveries any more; queues keep them locked until their locks end
        // (AMQP-69). Each is looked up, since other sessions may have many.
        for token in unsettled.iter().filter_map(token_of) {
            self.locked_deliveries.remove(&token);
        }
        self.engine.steps.add(unsettled.len());
    }

    /// Handles the answer of an entity, which holds `held_bytes` bytes of the account.
    fn answered(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
        held_bytes: u64,
    ) {
        if let Some((_, _, PendingAnswer::Managed(_))) = self.engine.links.request_mut(slot) {
            return self.handle_command_answer(slot, index, result, held_bytes);
        }
        self.handle_single_answer(slot, index, result);
        // Released only now: the reply made from the answer is already counted, and takes over its
        // room.
        self.engine.account.release(held_bytes);
    }

    /// Handles an answer that leads to an answer for the client immediately, independent of other
    /// commands of the request.
    fn handle_single_answer(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
    ) {
        match self.engine.links.request_mut(slot) {
            Some((_, path, PendingAnswer::Sent { number, deliveries, is_large })) => {
                let (number, is_large) = (*number, *is_large);
                let Some((delivery, is_last)) = deliveries.answered(index) else { return };
                if is_last {
                    self.engine.links.remove_request(slot);
                    self.inflow.large_count -= usize::from(is_large);
                }
                return self.answer_delivery(number, delivery, &path, result.map(|_| ()));
            }
            Some((_, path, PendingAnswer::Settled(each))) => {
                let Some((ended, is_last)) = each.answered(index) else { return };
                if is_last {
                    self.engine.links.remove_request(slot);
                }
                return self.settled(ended, &path, result.map(|_| ()));
            }
            _ => {}
        }
        let Some(pending) = self.engine.links.remove_request(slot) else { return };
        let path = pending.path;
        match pending.expect {
            PendingAnswer::Described(attaching) => self.described(*attaching, result),
            PendingAnswer::Seen { number } => self.handle_peeked(number, &path, result),
            PendingAnswer::Joined(joining) => self.joined(*joining, &path, result),
            PendingAnswer::Committed(committed) => self.committed(*committed, &path, result),
            PendingAnswer::Managed(_)
            | PendingAnswer::InBackground(_)
            | PendingAnswer::Sent { .. }
            | PendingAnswer::Settled(_) => {}
        }
    }

    /// Returns whether another request may be carried out: no earlier one waits for a permit or a
    /// place, and there is room for answers. Deliveries that wait for the client's windows do not
    /// matter, since it is the client that opens these.
    pub(super) fn may_carry_out(&self) -> bool {
        self.engine.is_open()
            && self.engine.links.pending_count()
                < self.engine.broker.settings().limits.connection_inbound_count_max
            && self.may_answer()
    }

    /// Returns whether there is room for answers: few bytes wait to be written, or nothing is
    /// written any more.
    pub(super) fn may_answer(&self) -> bool {
        self.outflow.write_closed || self.amqp.is_over() || !self.amqp.is_full()
    }

    /// Returns whether a request was read but not carried out, so that nothing after it may be
    /// read. Call only while `grouped_work` is `None`.
    pub(super) const fn has_pending_work(&self) -> bool {
        self.engine.needs_permit() || self.delayed_event.is_some()
    }

    /// Returns whether an event may be handled before the grouped requests are handed over: it
    /// joins them, or there are none.
    pub(super) fn may_handle_now(&self, event: &Event) -> bool {
        let count_max = self.engine.broker.settings().limits.connection_inbound_count_max;
        let has_room = |count: usize| count < COUNT_MAX.min(count_max);
        match (&self.grouped_work, event) {
            (None, _) => true,
            (Some(UnpaidWork::Send(inbound)), Event::Received { link, part }) => {
                let Some(Node::Sender(sender)) = self.nodes.get(link) else { return false };
                let (count, bytes) = inbound.cost();
                let more = sender.assembly.len() + part.payload.len();
                inbound.is_of(*link)
                    && sender.takes_alone(part)
                    && has_room(usize::try_from(count).unwrap_or(usize::MAX))
                    && bytes.saturating_add(more as u64) <= BYTES_MAX
            }
            (Some(UnpaidWork::Settle(list)), Event::Disposition { tag, state, .. }) => {
                let of = |number| list.first().is_some_and(|first| first.is_of(number));
                has_room(list.len())
                    && !matches!(state, Some(DeliveryState::Transactional(_)))
                    && token_of(tag)
                        .and_then(|token| self.locked_deliveries.get(&token))
                        .is_none_or(|sent| of(sent.number))
            }
            _ => false,
        }
    }

    /// Hands over the grouped requests when there is room.
    pub(super) async fn hand_over_group(&mut self) {
        if let Some(work) = self.grouped_work.take() {
            self.when_permitted(work).await;
        }
    }

    /// Carries out work when a permit is available; until then no further request is carried out.
    pub(super) async fn when_permitted(&mut self, work: UnpaidWork) {
        let (count, bytes) = work.cost();
        if let Some(permit) = self.engine.budget.try_take_list(count, bytes) {
            return self.carry_out_work(work, permit).await;
        }
        self.engine.wait_for_permit(work, count, bytes);
    }

    /// Carries out work with its permit.
    pub(super) async fn carry_out_work(&mut self, work: UnpaidWork, permit: Permit) {
        match work {
            UnpaidWork::Send(inbound) => self.send(inbound, permit).await,
            UnpaidWork::Settle(list) => self.settle_now(list, permit).await,
            // The connection is over, so nobody would hold the link.
            UnpaidWork::Attach(_) if self.amqp.is_over() => {}
            UnpaidWork::Attach(attaching) => self.open(*attaching, permit).await,
            UnpaidWork::Commit(committing) => self.commit(committing, permit),
            UnpaidWork::RequestInBackground(reply_address, asking) => {
                self.run_in_background(reply_address, asking, permit)
            }
            UnpaidWork::Request(plan) => self.submit_plan(*plan, permit).await,
        }
    }
}
