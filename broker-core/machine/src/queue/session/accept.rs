//! Accepting a session: by its id at once, or the next available one in the order of calls (SES-05
//! to SES-10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{SessionHold, SessionIndex};
use crate::command::{LinkEnd, MachineOutcome, Outcome, ReceiveMode};
use crate::effect::{Answer, Effect, Gate};
use crate::error::Rejection;
use crate::ids::{ReceiverId, SessionEpoch, Ticket};
use crate::path::SubQueue;
use crate::queue::demand::{Lane, ReceiverLink};
use crate::queue::{COMMAND_MOVES_MAX, Queue};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput};

/// A call that waits for a session.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) struct Accept {
    pub(in crate::queue) ticket: Ticket,
    pub(in crate::queue) receiver: ReceiverId,
    pub(in crate::queue) mode: ReceiveMode,
    pub(in crate::queue) deadline: Timestamp,
}

/// Waiting calls in the order of arrival (SES-08).
#[derive(Debug, Default)]
pub(super) struct WaitingAccepts {
    turns: BTreeMap<u64, Accept>,
    next_turn: u64,
    by_ticket: BTreeMap<Ticket, u64>,
    by_receiver: BTreeMap<ReceiverId, u64>,
    deadlines: BTreeSet<(Timestamp, u64)>,
}

impl WaitingAccepts {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    fn push(&mut self, accept: Accept) {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.by_ticket.insert(accept.ticket, turn);
        self.by_receiver.insert(accept.receiver, turn);
        self.deadlines.insert((accept.deadline, turn));
        self.turns.insert(turn, accept);
    }

    fn take(&mut self, turn: u64) -> Option<Accept> {
        let accept = self.turns.remove(&turn)?;
        self.by_ticket.remove(&accept.ticket);
        self.by_receiver.remove(&accept.receiver);
        self.deadlines.remove(&(accept.deadline, turn));
        Some(accept)
    }

    fn first(&self) -> Option<u64> {
        self.turns.first_key_value().map(|(turn, _)| *turn)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let count = self.turns.len();
        let indexes = [self.by_ticket.len(), self.by_receiver.len(), self.deadlines.len()];
        if indexes.iter().all(|index| *index == count) {
            return Ok(());
        }
        Err(format!("{count} calls wait for a session, but {indexes:?} in its indexes"))
    }
}

impl Queue {
    /// Locks a session, or registers the call as waiting.
    pub(in crate::queue) fn accept_session(
        &mut self,
        sub_queue: SubQueue,
        session: Option<&str>,
        accept: Accept,
        wait: TimeSpan,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let Accept { receiver, mode, .. } = accept;
        self.refuse_without_sessions(sub_queue)?;
        self.refuse_receive()?;
        self.refuse_receiver_count(ctx)?;
        let known = self.sessions.as_ref().is_some_and(|sessions| {
            sessions.session_held_by(receiver).is_some()
                || sessions.waiting.by_receiver.contains_key(&receiver)
        });
        if known || self.link(receiver).is_some() {
            return Err(Rejection::invalid_operation(format!(
                "receiver link {} is already attached",
                receiver.0
            )));
        }
        let answer = match session {
            Some(name) => {
                let outcome = self.accept_by_id(name, receiver, mode, ctx, step)?;
                Answer::Now(outcome, Gate::Open)
            }
            None => {
                let deadline = ctx.now.plus(wait.min(ctx.limits.receive_wait_max));
                if let Some(sessions) = &mut self.sessions {
                    sessions.waiting.push(Accept { deadline, ..accept });
                }
                Answer::Later
            }
        };
        self.touch(ctx.now);
        Ok(answer)
    }

    /// Locks the named session, which may have no message yet (SES-05).
    fn accept_by_id(
        &mut self,
        name: &str,
        receiver: ReceiverId,
        mode: ReceiveMode,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<MachineOutcome, Rejection> {
        refuse_long_id(name, ctx)?;
        let hold = self.sessions.as_ref().and_then(|sessions| {
            let index = sessions.named(name)?;
            let hold = sessions.get(index)?.hold()?;
            Some((index, hold.until, hold.locks.len()))
        });
        if let Some((index, until, locked)) = hold {
            let moves_max = locked as u64 + self.tally.overlay_bound(locked as u64);
            // The session is still locked, or the end of its hold may exceed the moves of a step.
            // In that case `end_session_locks` ends the hold as time passes.
            if until > ctx.now || moves_max >= COMMAND_MOVES_MAX as u64 {
                return Err(Rejection::session_cannot_be_locked(name));
            }
            let mut moves = COMMAND_MOVES_MAX;
            self.end_hold(index, LinkEnd::Broken, &mut moves, ctx, step);
            step.moves += (COMMAND_MOVES_MAX - moves) as u64;
        }
        let index = self
            .sessions
            .as_mut()
            .map(|sessions| sessions.get_or_create(name))
            .ok_or_else(|| Rejection::internal("the entity has no sessions"))?;
        Ok(self.grant_session(index, receiver, mode, ctx))
    }

    /// Locks a session for LockDuration (SES-12), and opens its link without credit.
    fn grant_session(
        &mut self,
        index: SessionIndex,
        receiver: ReceiverId,
        mode: ReceiveMode,
        ctx: &mut Ctx<'_>,
    ) -> MachineOutcome {
        let locked_until = ctx.now.plus(self.description.lock_duration);
        let mut session = Arc::from("");
        if let Some(sessions) = &mut self.sessions {
            let mut epoch = fresh_epoch(ctx);
            while sessions.has_epoch(epoch) {
                epoch = SessionEpoch(epoch.0.wrapping_add(1));
            }
            let link = ReceiverLink::new(Lane::Session(index), mode);
            sessions.lock(
                index,
                SessionHold::new(receiver, mode, epoch, (ctx.now, locked_until), link),
            );
            if let Some(found) = sessions.get(index) {
                session = Arc::clone(found.name());
            }
        }
        // The shell adds the entrance to the actor of the session.
        Outcome::SessionAccepted { session, receiver, locked_until, session_entrance: () }
    }

    /// Grants sessions to waiting calls, the oldest call first (SES-07, SES-08, decision 38). While
    /// expiration is behind, the sessions that will have messages are unknown (EXP-45).
    pub(in crate::queue) fn match_accepts(
        &mut self,
        left: &mut usize,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) {
        while *left > 0
            && self.sessions.as_ref().is_some_and(|sessions| !sessions.waiting.is_empty())
        {
            if self.is_session_behind(ctx.now) {
                return;
            }
            let Some(sessions) = &mut self.sessions else { return };
            let Some((_, index)) = sessions.first_open() else { return };
            let Some(turn) = sessions.waiting.first() else { return };
            let Some(accept) = sessions.waiting.take(turn) else { return };
            *left -= 1;
            let outcome = self.grant_session(index, accept.receiver, accept.mode, ctx);
            self.touch(ctx.now);
            step.effects.push(Effect::Answer {
                ticket: accept.ticket,
                result: Ok(outcome),
                gate: Gate::Open,
            });
        }
    }

    /// Fails the calls whose time is over (SES-08). The answer waits until moves of expired
    /// messages are durable.
    pub(in crate::queue) fn end_accepts(&mut self, ctx: &Ctx<'_>, step: &mut StepOutput) {
        while let Some(sessions) = &mut self.sessions
            && let Some((deadline, turn)) = sessions.waiting.deadlines.first().copied()
            && deadline <= ctx.now
        {
            let Some(accept) = sessions.waiting.take(turn) else { return };
            self.touch(ctx.now);
            step.effects.push(Effect::Answer {
                ticket: accept.ticket,
                result: Err(Rejection::timeout("no session with an available message in time")),
                gate: Gate::Commit,
            });
        }
    }

    /// Next deadline of a call that waits for a session.
    pub(in crate::queue) fn accept_deadline(&self) -> Option<Timestamp> {
        let sessions = self.sessions.as_ref()?;
        sessions.waiting.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Withdraws a call that waits for a session.
    pub(in crate::queue) fn withdraw_accept(
        &mut self,
        ticket: Ticket,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(sessions) = &mut self.sessions else { return };
        let Some(turn) = sessions.waiting.by_ticket.get(&ticket).copied() else { return };
        if sessions.waiting.take(turn).is_some() {
            self.touch(ctx.now);
            step.effects.push(Effect::Answer {
                ticket,
                result: Err(Rejection::cancelled("the call was withdrawn")),
                gate: Gate::Open,
            });
        }
    }

    /// Withdraws the call of a receiver that is gone: a grant would lock a session for no client.
    pub(in crate::queue) fn withdraw_accepts_of(
        &mut self,
        receiver: ReceiverId,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let ticket = self.sessions.as_ref().and_then(|sessions| {
            let turn = sessions.waiting.by_receiver.get(&receiver)?;
            Some(sessions.waiting.turns.get(turn)?.ticket)
        });
        if let Some(ticket) = ticket {
            self.withdraw_accept(ticket, ctx, step);
        }
    }

    /// Fails all calls that wait for a session (ENT-24).
    pub(in crate::queue) fn reject_accepts(&mut self, reason: &Rejection, step: &mut StepOutput) {
        let Some(sessions) = &mut self.sessions else { return };
        while let Some(turn) = sessions.waiting.first() {
            let Some(accept) = sessions.waiting.take(turn) else { return };
            step.effects.push(Effect::Answer {
                ticket: accept.ticket,
                result: Err(reason.clone()),
                gate: Gate::Commit,
            });
        }
    }

    /// Refuses commands about sessions unless they address the main queue of an entity with
    /// sessions (SES-09, MAT-04).
    pub(in crate::queue) fn refuse_without_sessions(
        &self,
        sub_queue: SubQueue,
    ) -> Result<(), Rejection> {
        if sub_queue != SubQueue::Main || self.sessions.is_none() {
            return Err(Rejection::invalid_operation(format!(
                "`{}{}` has no sessions",
                self.path(),
                sub_queue.suffix()
            ))
            .in_cloud_words(
                "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure \
                 RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.",
            ));
        }
        Ok(())
    }
}

/// Refuses an id that no message can have.
pub(super) fn refuse_long_id(session: &str, ctx: &Ctx<'_>) -> Result<(), Rejection> {
    let chars_max = ctx.limits.message_id_chars_max;
    let chars = session.chars().count();
    if chars <= chars_max {
        return Ok(());
    }
    Err(Rejection::out_of_range(format!(
        "a session id must have at most {chars_max} characters; this one has {chars}"
    )))
}

fn fresh_epoch(ctx: &mut Ctx<'_>) -> SessionEpoch {
    #[expect(clippy::cast_possible_truncation, reason = "32 of the 64 random bits are enough")]
    SessionEpoch((ctx.tokens)() as u32)
}
