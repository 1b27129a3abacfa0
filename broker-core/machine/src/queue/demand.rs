//! Demand: waiting receivers and the order in which they get messages (RCV-16 to RCV-18).
//!
//! Each sub-queue has a ring of turns, and so has each held session. A receive call is served
//! completely in its turn. A link gets messages up to `link_turn_count_max` or
//! `link_turn_bytes_max` (by default 16 messages or 64 KiB) and goes to the back of the ring. A
//! link without credit, or without room in its connection, is not in the ring: it is skipped, so no
//! message is locked for it.
//!
//! The queue has the calls and links of its sub-queues; a held session has its own.

use std::collections::{BTreeMap, BTreeSet};

use super::session::SessionIndex;
use super::{COMMAND_MOVES_MAX, MessageView, Queue, SERVED_PER_STEP, gate_of};
use crate::change::Removal;
use crate::command::{Drain, LockGrant, MessageFacts, Outcome, ReceiveMode};
use crate::effect::{Answer, Effect, Gate};
use crate::error::Rejection;
use crate::event::EventKind;
use crate::ids::{ReceiverId, SequenceNumber, Ticket};
use crate::path::SubQueue;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

/// A waiting receiver in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    Call(Ticket),
    Link(ReceiverId),
}

/// Source of messages for a receiver: a sub-queue, or the session that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    SubQueue(SubQueue),
    Session(SessionIndex),
}

/// Waiting receivers in the order of their turns (RCV-17).
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    turns: BTreeMap<u64, Demand>,
    next_turn: u64,
}

impl Ring {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Demand)> {
        self.turns.iter().map(|(turn, demand)| (*turn, *demand))
    }

    fn first(&self) -> Option<(u64, Demand)> {
        self.turns.first_key_value().map(|(turn, demand)| (*turn, *demand))
    }

    /// Adds a receiver at the back; returns its turn.
    fn take_turn(&mut self, demand: Demand) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.turns.insert(turn, demand);
        turn
    }
}

/// A receive call that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct ReceiveCall {
    pub(super) lane: Lane,
    pub(super) mode: ReceiveMode,
    pub(super) count_max: u32,
    pub(super) bytes_max: u64,
    pub(super) holder: Option<ReceiverId>,
    pub(super) turn: u64,
    pub(super) deadline: Timestamp,
}

/// All receive calls that wait for their answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    waiting: BTreeMap<Ticket, ReceiveCall>,
    deadlines: BTreeSet<(Timestamp, Ticket)>,
    /// Calls that have a holder.
    by_holder: BTreeSet<(ReceiverId, Ticket)>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&ReceiveCall> {
        self.waiting.get(&ticket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &ReceiveCall)> {
        self.waiting.iter().map(|(ticket, call)| (*ticket, call))
    }

    pub(super) fn insert(&mut self, ticket: Ticket, call: ReceiveCall) {
        self.deadlines.insert((call.deadline, ticket));
        self.by_holder.extend(call.holder.map(|holder| (holder, ticket)));
        self.waiting.insert(ticket, call);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<ReceiveCall> {
        let call = self.waiting.remove(&ticket)?;
        self.deadlines.remove(&(call.deadline, ticket));
        if let Some(holder) = call.holder {
            self.by_holder.remove(&(holder, ticket));
        }
        Some(call)
    }

    /// Returns the calls of a holder.
    pub(super) fn of(&self, holder: ReceiverId) -> impl Iterator<Item = Ticket> {
        let all = (holder, Ticket(u64::MIN))..=(holder, Ticket(u64::MAX));
        self.by_holder.range(all).map(|(_, ticket)| *ticket)
    }

    /// Returns the call with the earliest deadline.
    pub(super) fn first_deadline(&self) -> Option<(Timestamp, Ticket)> {
        self.deadlines.first().copied()
    }

    /// Whether every call has exactly one deadline and is found exactly by its holder.
    pub(super) fn is_whole(&self) -> bool {
        let deadlines = self.iter().map(|(ticket, call)| (call.deadline, ticket));
        let held = self.iter().filter_map(|(ticket, call)| Some((call.holder?, ticket)));
        deadlines.collect::<BTreeSet<_>>() == self.deadlines
            && held.collect::<BTreeSet<_>>() == self.by_holder
    }
}

/// Limits of a link as its receiver sets them.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkLimits {
    pub(super) delivery_limit: u64,
    pub(super) byte_limit: u64,
    pub(super) drain: Drain,
}

/// A receiver link.
#[derive(Clone, Debug)]
pub(super) struct ReceiverLink {
    pub(super) lane: Lane,
    pub(super) mode: ReceiveMode,
    /// Messages and bytes delivered since the attach, each with its limit.
    pub(super) delivered: u64,
    pub(super) delivery_limit: u64,
    pub(super) delivered_bytes: u64,
    pub(super) byte_limit: u64,
    /// Its turn in the ring, if it can be served.
    pub(super) turn: Option<u64>,
    /// Ticket of a drain to answer after the available messages have been delivered.
    pub(super) drain: Option<Ticket>,
}

impl ReceiverLink {
    /// Returns a link without credit.
    pub(super) const fn new(lane: Lane, mode: ReceiveMode) -> Self {
        Self {
            lane,
            mode,
            delivered: 0,
            delivery_limit: 0,
            delivered_bytes: 0,
            byte_limit: 0,
            turn: None,
            drain: None,
        }
    }

    /// Number of messages that may be delivered now.
    pub(super) const fn credit(&self) -> u64 {
        self.delivery_limit.saturating_sub(self.delivered)
    }

    /// Whether it has credit, and room in its connection.
    pub(super) const fn can_be_served(&self) -> bool {
        self.delivered < self.delivery_limit && self.delivered_bytes < self.byte_limit
    }
}

impl Queue {
    /// Sets the limits of a link (AMQP 2.6.7). An earlier drain in the same list of commands is
    /// completed first, so that a list has the same result as its commands one by one.
    pub(super) fn grant(
        &mut self,
        ticket: Ticket,
        receiver: ReceiverId,
        limits: LinkLimits,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if let Some(link) = self.link(receiver)
            && link.drain.is_some()
        {
            let lane = link.lane;
            self.expire(&mut { COMMAND_MOVES_MAX }, ctx, step);
            self.match_demand(lane, &mut { SERVED_PER_STEP }, ctx, step);
            self.draining.retain(|draining| *draining != receiver);
            self.end_drain(receiver, step);
        }
        let Some(link) = self.link_mut(receiver) else {
            return Err(unknown_link(receiver));
        };
        let had_credit = link.credit() > 0;
        link.delivery_limit = limits.delivery_limit;
        link.byte_limit = limits.byte_limit;
        let is_use = had_credit || link.credit() > 0;
        let answer = match limits.drain {
            Drain::No => Answer::Now(Outcome::Granted { unused: link.credit() }, Gate::Open),
            Drain::Yes => {
                link.drain = Some(ticket);
                self.draining.push(receiver);
                Answer::Later
            }
        };
        self.update_turn(receiver);
        // An open link without credit does not count as use (TMP-15).
        if is_use {
            self.touch(ctx.now);
        }
        Ok(answer)
    }

    /// Gives a link a turn at the back of the ring if it can be served, or removes its turn
    /// otherwise. Also updates the set of links with credit.
    fn update_turn(&mut self, receiver: ReceiverId) {
        let Some(link) = self.link(receiver) else { return };
        let (lane, turn, has_credit) = (link.lane, link.turn, link.credit() > 0);
        let turn = match (link.can_be_served(), turn) {
            (true, None) => Some(self.take_turn(lane, Demand::Link(receiver))),
            (false, Some(turn)) => {
                self.release_turn(lane, turn);
                None
            }
            (true | false, same) => same,
        };
        if let Some(link) = self.link_mut(receiver) {
            link.turn = turn;
        }
        if let Lane::SubQueue(which) = lane {
            let credited = &mut self.sub_queue_mut(which).credited;
            if has_credit {
                credited.insert(receiver);
            } else {
                credited.remove(&receiver);
            }
        }
    }

    /// Returns a link of a sub-queue or of a session's holder.
    pub(super) fn link(&self, receiver: ReceiverId) -> Option<&ReceiverLink> {
        self.links.get(&receiver).or_else(|| self.sessions.as_ref()?.link(receiver))
    }

    fn link_mut(&mut self, receiver: ReceiverId) -> Option<&mut ReceiverLink> {
        match self.links.get_mut(&receiver) {
            Some(link) => Some(link),
            None => self.sessions.as_mut()?.link_mut(receiver),
        }
    }

    /// Removes a link from its ring, its table and the set of links with credit.
    pub(super) fn remove_link(&mut self, receiver: ReceiverId) -> Option<ReceiverLink> {
        let link = match self.links.remove(&receiver) {
            Some(link) => link,
            None => self.sessions.as_mut()?.take_link(receiver)?,
        };
        if let Some(turn) = link.turn {
            self.release_turn(link.lane, turn);
        }
        if let Lane::SubQueue(which) = link.lane {
            self.sub_queue_mut(which).credited.remove(&receiver);
        }
        Some(link)
    }

    /// Adds a receiver at the back of a ring.
    pub(super) fn take_turn(&mut self, lane: Lane, demand: Demand) -> u64 {
        match lane {
            Lane::SubQueue(which) => self.sub_queue_mut(which).ring.take_turn(demand),
            Lane::Session(index) => {
                let Some(sessions) = &mut self.sessions else { return 0 };
                sessions.note_busy(index);
                sessions.hold_mut(index).map_or(0, |hold| hold.ring.take_turn(demand))
            }
        }
    }

    /// Removes a turn from a ring.
    pub(super) fn release_turn(&mut self, lane: Lane, turn: u64) {
        let ring = match lane {
            Lane::SubQueue(which) => Some(&mut self.sub_queue_mut(which).ring),
            Lane::Session(index) => self
                .sessions
                .as_mut()
                .and_then(|sessions| sessions.hold_mut(index))
                .map(|hold| &mut hold.ring),
        };
        if let Some(ring) = ring {
            ring.turns.remove(&turn);
        }
    }

    pub(super) fn ring(&self, lane: Lane) -> Option<&Ring> {
        match lane {
            Lane::SubQueue(which) => Some(&self.sub_queue(which).ring),
            Lane::Session(index) => Some(&self.sessions.as_ref()?.get(index)?.hold()?.ring),
        }
    }

    /// Whether a receiver pulls from the main queue (file 01, "active receiver"; EXP-32).
    pub(super) fn has_active_receiver(&self) -> bool {
        if let Some(sessions) = &self.sessions {
            return sessions.has_receiver();
        }
        if self.has_active_forwarder() {
            return true;
        }
        !self.main.ring.is_empty() || !self.main.credited.is_empty()
    }

    /// Serves the sessions that may have both demand and messages.
    pub(super) fn match_sessions(
        &mut self,
        left: &mut usize,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) {
        if self.sessions.is_none() || self.is_session_behind(ctx.now) {
            return;
        }
        let Some(busy) = self.sessions.as_mut().map(|sessions| sessions.take_busy()) else {
            return;
        };
        for index in busy {
            if *left > 0 {
                self.match_demand(Lane::Session(index), left, ctx, step);
            }
            if *left == 0
                && let Some(sessions) = &mut self.sessions
            {
                sessions.note_busy(index);
            }
        }
    }

    /// Serves a ring until its demand or its messages run out, or the budget of this step ends.
    pub(super) fn match_demand(
        &mut self,
        lane: Lane,
        left: &mut usize,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) {
        while *left > 0
            && let Some((turn, demand)) = self.ring(lane).and_then(Ring::first)
        {
            if self.next_available(lane, ctx).is_none() {
                return;
            }
            let served = match demand {
                Demand::Call(ticket) => self.serve_call(ticket, ctx, step),
                Demand::Link(receiver) => {
                    self.release_turn(lane, turn);
                    if let Some(link) = self.link_mut(receiver) {
                        link.turn = None;
                    }
                    let served = self.serve_link(receiver, ctx, step);
                    self.update_turn(receiver);
                    served
                }
            };
            *left = left.saturating_sub(served.max(1));
        }
    }

    /// Whether the messages that sessions may offer are unknown: expired messages are not removed
    /// yet, or a new retry order is not applied yet.
    pub(super) fn is_session_behind(&self, now: Timestamp) -> bool {
        self.is_order_behind() || self.is_expiry_behind(now)
    }

    /// Returns the lowest available message, unless it is expired. A message that is still there
    /// although it is expired exceeded the budget of this step: matching stops at it, and the next
    /// step removes it (EXP-34).
    fn next_available(&self, lane: Lane, ctx: &Ctx<'_>) -> Option<SequenceNumber> {
        let sequence = match lane {
            Lane::SubQueue(which) => self.sub_queue(which).available.first()?,
            // Any message of the session may be expired (EXP-45).
            Lane::Session(_) if self.is_session_behind(ctx.now) => return None,
            Lane::Session(index) => self.sessions.as_ref()?.next_message(index)?,
        };
        let slot = self.slots.get(sequence)?;
        (!self.is_expired(slot, ctx.now)).then_some(sequence)
    }

    /// Answers a call with the available messages within its bounds (RCV-12, RCV-13). Returns the
    /// work.
    fn serve_call(&mut self, ticket: Ticket, ctx: &mut Ctx<'_>, step: &mut StepOutput) -> usize {
        let Some(call) = self.remove_call(ticket) else { return 0 };
        let room = self.available_count(call.lane).min(u64::from(call.count_max));
        let mut messages = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
        let mut bytes = 0u64;
        while messages.len() < call.count_max as usize
            && let Some(sequence) = self.next_available(call.lane, ctx)
        {
            let size = self.slots.get(sequence).map_or(0, |slot| u64::from(slot.size));
            if !messages.is_empty() && bytes.saturating_add(size) > call.bytes_max {
                break;
            }
            bytes = bytes.saturating_add(size);
            let Some(facts) = self.hand_out(sequence, call.mode, call.holder, ctx, step) else {
                break;
            };
            messages.push(facts);
        }
        self.touch(ctx.now);
        let served = messages.iter().map(MessageFacts::work).sum();
        step.effects.push(Effect::Answer {
            ticket,
            result: Ok(Outcome::Received(messages)),
            gate: gate_of(call.mode),
        });
        served
    }

    fn available_count(&self, lane: Lane) -> u64 {
        match lane {
            Lane::SubQueue(which) => self.sub_queue(which).available.len(),
            Lane::Session(index) => self
                .sessions
                .as_ref()
                .and_then(|sessions| sessions.get(index))
                .map_or(0, |session| session.available().len()),
        }
    }

    /// Serves a link for one turn, up to the limits on messages and bytes of a turn. Returns the
    /// work.
    fn serve_link(
        &mut self,
        receiver: ReceiverId,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> usize {
        let Some(link) = self.link(receiver) else { return 0 };
        let (lane, mode) = (link.lane, link.mode);
        let mut credit = link.credit();
        let room = link.byte_limit.saturating_sub(link.delivered_bytes);
        let (mut count, mut bytes, mut work) = (0usize, 0u64, 0usize);
        let turn_max = ctx.limits.link_turn_count_max;
        while credit > 0
            && bytes < room
            && count < turn_max
            && bytes < ctx.limits.link_turn_bytes_max
            && let Some(sequence) = self.next_available(lane, ctx)
            && let Some(facts) = self.hand_out(sequence, mode, Some(receiver), ctx, step)
        {
            credit -= 1;
            count += 1;
            bytes += u64::from(facts.size);
            work += facts.work();
            step.effects.push(Effect::Deliver { receiver, facts, gate: gate_of(mode) });
        }
        if let Some(link) = self.link_mut(receiver) {
            link.delivered += count as u64;
            link.delivered_bytes += bytes;
        }
        self.touch(ctx.now);
        work
    }

    /// Hands an available message to a receiver: locks it, or removes it from the queue.
    pub(super) fn hand_out(
        &mut self,
        sequence: SequenceNumber,
        mode: ReceiveMode,
        holder: Option<ReceiverId>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Option<MessageFacts> {
        let slot = *self.slots.get(sequence)?;
        let mut facts = self.facts(sequence, &slot, MessageView::Received);
        let delivered = EventKind::Delivered { delivery_count: slot.delivery_count };
        match mode {
            ReceiveMode::PeekLock => {
                let (token, until) = self.lock(sequence, holder, ctx)?;
                facts.lock = Some(LockGrant { token, until });
                step.note(sequence, holder, delivered);
            }
            ReceiveMode::ReceiveAndDelete => {
                step.note(sequence, holder, delivered);
                self.remove_message(sequence, Removal::Received, ctx, step);
            }
        }
        Some(facts)
    }

    /// Returns the credit of draining links (RCV-18).
    pub(super) fn end_drains(&mut self, step: &mut StepOutput) {
        for receiver in std::mem::take(&mut self.draining) {
            self.end_drain(receiver, step);
        }
    }

    fn end_drain(&mut self, receiver: ReceiverId, step: &mut StepOutput) {
        let Some(link) = self.link_mut(receiver) else { return };
        let Some(ticket) = link.drain.take() else { return };
        let unused = link.credit();
        link.delivery_limit = link.delivered;
        self.update_turn(receiver);
        // The answer waits for the moves that the drain has triggered (EXP-34).
        let (result, gate) = (Ok(Outcome::Granted { unused }), Gate::Commit);
        step.effects.push(Effect::Answer { ticket, result, gate });
    }
}

fn unknown_link(receiver: ReceiverId) -> Rejection {
    Rejection::invalid_operation(format!("no receiver link {} is attached", receiver.0))
}
