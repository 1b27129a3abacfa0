//! Receive: waiting calls (RCV-10 to RCV-14), and the begin and end of links. `queue/mod.rs` calls
//! it. A waiting call is answered exactly once.

use super::demand::{Demand, Lane, ReceiveCall, ReceiverLink};
use super::{COMMAND_MOVES_MAX, Queue};
use crate::command::{LinkEnd, Outcome, ReceiveMode};
use crate::effect::{Answer, Effect, Gate};
use crate::error::Rejection;
use crate::event::LockEnd;
use crate::ids::{ReceiverId, Ticket};
use crate::path::SubQueue;
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput};

impl Queue {
    /// Registers a call. It is matched with messages at the end of the list of commands; a call
    /// that may not wait is answered then with the available messages.
    pub(super) fn receive(
        &mut self,
        ticket: Ticket,
        call: ReceiveCall,
        wait: TimeSpan,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.refuse_sessionless(call.lane)?;
        if let Lane::SubQueue(which) = call.lane {
            self.refuse_forwarded(which)?;
        }
        self.wait_for_messages(ticket, call, wait, ctx)
    }

    /// Registers a call in its lane.
    pub(super) fn wait_for_messages(
        &mut self,
        ticket: Ticket,
        mut call: ReceiveCall,
        wait: TimeSpan,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.refuse_receive()?;
        if call.count_max == 0 {
            return Err(Rejection::out_of_range(
                "a receive must ask for at least 1 message, not 0",
            ));
        }
        self.refuse_detached(call.holder)?;
        self.refuse_receiver_count(ctx)?;
        call.deadline = ctx.now.plus(wait.min(ctx.limits.receive_wait_max));
        call.turn = self.take_turn(call.lane, Demand::Call(ticket));
        match (call.lane, &mut self.sessions) {
            (Lane::Session(index), Some(sessions)) => sessions.add_call(index, ticket, call),
            _ => self.calls.insert(ticket, call),
        }
        self.touch(ctx.now);
        Ok(Answer::Later)
    }

    /// Withdraws a waiting call; it takes no lock (RCV-14).
    pub(super) fn cancel_receive(
        &mut self,
        call: Ticket,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.answer_empty(call, ctx, step);
        self.withdraw_accept(call, ctx, step);
        Ok(Answer::Now(Outcome::Done, Gate::Open))
    }

    /// Answers a waiting call with no messages.
    fn answer_empty(&mut self, call: Ticket, ctx: &Ctx<'_>, step: &mut StepOutput) {
        if self.remove_call(call).is_some() {
            self.touch(ctx.now);
            step.effects.push(Effect::Answer {
                ticket: call,
                result: Ok(Outcome::Received(Vec::new())),
                gate: Gate::Open,
            });
        }
    }

    /// Removes a call from its ring and table.
    pub(super) fn remove_call(&mut self, ticket: Ticket) -> Option<ReceiveCall> {
        let call = match self.calls.remove(ticket) {
            Some(call) => call,
            None => self.sessions.as_mut()?.take_call(ticket)?,
        };
        self.release_turn(call.lane, call.turn);
        Some(call)
    }

    /// Answers expired calls with no messages (RCV-11). The answer waits until moves of expired
    /// messages are durable (EXP-34).
    pub(super) fn end_calls(&mut self, ctx: &Ctx<'_>, step: &mut StepOutput) {
        while let Some(ticket) = self.first_call_over(ctx.now) {
            self.remove_call(ticket);
            self.touch(ctx.now);
            step.effects.push(Effect::Answer {
                ticket,
                result: Ok(Outcome::Received(Vec::new())),
                gate: Gate::Commit,
            });
        }
    }

    /// Returns a call whose deadline has passed.
    fn first_call_over(&self, now: Timestamp) -> Option<Ticket> {
        let of_queue = self.calls.first_deadline().filter(|(deadline, _)| *deadline <= now);
        match of_queue {
            Some((_, ticket)) => Some(ticket),
            None => self.sessions.as_ref()?.first_call_over(now),
        }
    }

    /// Opens a link without credit.
    pub(super) fn attach(
        &mut self,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        mode: ReceiveMode,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.refuse_sessionless(Lane::SubQueue(sub_queue))?;
        self.refuse_forwarded(sub_queue)?;
        self.refuse_receive()?;
        self.refuse_receiver_count(ctx)?;
        if self.links.contains_key(&receiver) {
            return Err(Rejection::invalid_operation(format!(
                "receiver link {} is already attached",
                receiver.0
            )));
        }
        self.links.insert(receiver, ReceiverLink::new(Lane::SubQueue(sub_queue), mode));
        Ok(Answer::Now(Outcome::Done, Gate::Commit))
    }

    /// Ends a link or a holder of locks (SET-21, SET-31).
    pub(super) fn detach(
        &mut self,
        receiver: ReceiverId,
        end: LinkEnd,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if let Some(link) = self.remove_link(receiver) {
            if link.credit() > 0 {
                self.touch(ctx.now);
            }
            if let Some(ticket) = link.drain {
                step.effects.push(Effect::Answer {
                    ticket,
                    result: Ok(Outcome::Granted { unused: link.credit() }),
                    gate: Gate::Commit,
                });
            }
        }
        // A call of a holder that is gone would lock messages for no client (RCV-14).
        for call in self.calls_of(receiver) {
            self.answer_empty(call, ctx, step);
        }
        self.withdraw_accepts_of(receiver, ctx, step);
        let mut moves = COMMAND_MOVES_MAX;
        let session =
            self.sessions.as_ref().and_then(|sessions| sessions.session_held_by(receiver));
        if let Some(index) = session {
            self.unlock_session(index, end, &mut moves, ctx, step);
        }
        let releases = match end {
            LinkEnd::Orderly => self.config.release_on_detach,
            LinkEnd::Lost => self.config.release_on_connection_loss,
            LinkEnd::Broken | LinkEnd::ByBroker => true,
        };
        if releases && self.locks.first_of(receiver).is_some() {
            self.detached.entry(receiver).or_insert(end);
            self.end_detached_locks(&mut moves, ctx, step);
        }
        step.moves += (COMMAND_MOVES_MAX - moves) as u64;
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Ends locks of holders that are gone, in the order in which they were taken, within the
    /// budget of a step. The locks are not in force from the end of the link on, even before their
    /// turn (SET-21).
    pub(super) fn end_detached_locks(
        &mut self,
        moves: &mut usize,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        while let Some((receiver, end)) = self.detached.first_key_value() {
            let (receiver, end) = (*receiver, *end);
            let Some(lock) = self.locks.first_of(receiver).copied() else {
                self.detached.pop_first();
                continue;
            };
            if *moves == 0 {
                return;
            }
            *moves = moves.saturating_sub(self.moves_to_end(lock.sequence(), ctx.now));
            self.end_lock(&lock, (end, LockEnd::LinkEnded), ctx, step);
        }
    }

    /// How the link of a holder ended, if the holder is gone and some of its locks are not ended
    /// yet.
    pub(super) fn end_of_detached(&self, holder: Option<ReceiverId>) -> Option<LinkEnd> {
        self.detached.get(&holder?).copied()
    }

    /// Deadline in the past while locks of gone holders must be ended.
    pub(super) fn detached_deadline(&self) -> Option<Timestamp> {
        (!self.detached.is_empty()).then_some(Timestamp::NONE)
    }

    /// Refuses commands of a holder that is gone while its locks are being ended.
    pub(super) fn refuse_detached(&self, holder: Option<ReceiverId>) -> Result<(), Rejection> {
        match (self.end_of_detached(holder), holder) {
            (Some(_), Some(holder)) => Err(Rejection::invalid_operation(format!(
                "receiver link {} was detached, and its locks are being released",
                holder.0
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the waiting calls of a holder.
    pub(super) fn calls_of(&self, receiver: ReceiverId) -> Vec<Ticket> {
        let hold = self.sessions.as_ref().and_then(|sessions| sessions.hold_of(receiver));
        let of_session = hold.into_iter().flat_map(|hold| hold.calls.of(receiver));
        self.calls.of(receiver).chain(of_session).collect()
    }

    /// Fails all waiting receivers, because the status forbids receiving (ENT-24). Held locks stay
    /// (ENT-25).
    pub(super) fn reject_receivers(&mut self, step: &mut StepOutput) {
        let reason = Rejection::entity_disabled(self.path(), self.description.status);
        self.reject_accepts(&reason, step);
        for ticket in self.all_calls() {
            self.remove_call(ticket);
            step.effects.push(Effect::Answer {
                ticket,
                result: Err(reason.clone()),
                gate: Gate::Commit,
            });
        }
        for receiver in self.all_links() {
            if let Some(ticket) = self.remove_link(receiver).and_then(|link| link.drain) {
                step.effects.push(Effect::Answer {
                    ticket,
                    result: Err(reason.clone()),
                    gate: Gate::Commit,
                });
            }
            step.effects.push(Effect::Detached { receiver, reason: reason.clone() });
        }
    }

    /// Returns a waiting call of a lane.
    pub(super) fn call(&self, lane: Lane, ticket: Ticket) -> Option<&ReceiveCall> {
        match lane {
            Lane::SubQueue(_) => self.calls.get(ticket),
            Lane::Session(index) => self.sessions.as_ref()?.get(index)?.hold()?.calls.get(ticket),
        }
    }

    /// Returns all waiting calls, calls of sessions included.
    pub(super) fn all_calls(&self) -> Vec<Ticket> {
        let of_sessions = self.sessions.iter().flat_map(|sessions| sessions.calls());
        self.calls.iter().map(|(ticket, _)| ticket).chain(of_sessions).collect()
    }

    /// Returns all links, links to sessions included.
    pub(super) fn all_links(&self) -> Vec<ReceiverId> {
        let of_sessions = self.sessions.iter().flat_map(|sessions| sessions.links());
        self.links.keys().copied().chain(of_sessions).collect()
    }

    /// Fails all receivers that wait for messages of a sub-queue, because it forwards from now on
    /// (RCV-29, FWD-27). Held locks stay (MAT-03).
    pub(super) fn reject_receivers_of(&mut self, which: SubQueue, step: &mut StepOutput) {
        let reason = self.forwarded(which);
        let lane = Lane::SubQueue(which);
        let calls: Vec<Ticket> = self
            .calls
            .iter()
            .filter(|(_, call)| call.lane == lane)
            .map(|(ticket, _)| ticket)
            .collect();
        for ticket in calls {
            self.remove_call(ticket);
            let result = Err(reason.clone());
            step.effects.push(Effect::Answer { ticket, result, gate: Gate::Commit });
        }
        let links: Vec<ReceiverId> = self
            .links
            .iter()
            .filter(|(_, link)| link.lane == lane)
            .map(|(receiver, _)| *receiver)
            .collect();
        for receiver in links {
            if let Some(ticket) = self.remove_link(receiver).and_then(|link| link.drain) {
                let result = Err(reason.clone());
                step.effects.push(Effect::Answer { ticket, result, gate: Gate::Commit });
            }
            step.effects.push(Effect::Detached { receiver, reason: reason.clone() });
        }
    }

    pub(super) fn refuse_receive(&self) -> Result<(), Rejection> {
        if !self.description.status.allows_receive() {
            return Err(Rejection::entity_disabled(self.path(), self.description.status));
        }
        Ok(())
    }

    /// Refuses to receive without a session if the queue requires sessions (RCV-28).
    pub(super) fn refuse_sessionless(&self, lane: Lane) -> Result<(), Rejection> {
        if lane == Lane::SubQueue(SubQueue::Main) && self.sessions.is_some() {
            return Err(Rejection::invalid_operation(format!(
                "`{}` requires sessions: accept a session to receive its messages",
                self.path()
            ))
            .in_cloud_words(
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
            ));
        }
        Ok(())
    }

    /// Refuses to delete many messages without a session if the queue requires sessions: the holder
    /// of a session deletes its messages, or delete-unlocked does in sessions without a holder
    /// (DEL-07).
    pub(super) fn refuse_sessionless_delete(&self, lane: Lane) -> Result<(), Rejection> {
        self.refuse_sessionless(lane).map_err(|_| {
            Rejection::invalid_operation(format!(
                "`{}` requires sessions: use delete-unlocked for messages in sessions without a \
                 holder, or accept a session and delete its messages",
                self.path()
            ))
        })
    }

    pub(super) fn refuse_receiver_count(&self, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        let count_max = ctx.limits.receiver_count_max;
        if self.receiver_count() + self.other_receivers() >= count_max {
            return Err(Rejection::too_many("concurrent receivers", self.path(), count_max));
        }
        Ok(())
    }
}
