//! Holding a session: commands of its holder, and the end of the lock (SES-11 to SES-18, SES-30 to
//! SES-33).

use super::SessionIndex;
use crate::command::{LinkEnd, Outcome, SessionCommand};
use crate::effect::{Answer, Effect, Gate};
use crate::error::Rejection;
use crate::event::LockEnd;
use crate::ids::{ReceiverId, SequenceNumber, Ticket};
use crate::lock_table::Lock;
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::queue::demand::{Lane, ReceiveCall, ReceiverLink};
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

impl Queue {
    /// Deadline in the past if a session has expired and is not emptied yet, or its hold has ended
    /// and is not returned yet.
    pub(in crate::queue) fn cleanup_deadline(&self) -> Option<Timestamp> {
        let is_behind = self
            .sessions
            .as_ref()
            .is_some_and(|sessions| !sessions.expiring.is_empty() || sessions.is_ending());
        is_behind.then_some(Timestamp::NONE)
    }

    /// Carries out a command of a session's holder; refuses it without the lock (SES-15).
    pub(in crate::queue) fn in_session(
        &mut self,
        ticket: Ticket,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        command: SessionCommand,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        let index = self.session_held_by(receiver, ctx.now)?;
        match command {
            SessionCommand::Attach => self.attach_again(index, receiver),
            SessionCommand::Receive { count_max, bytes_max, wait } => {
                let Some(hold) =
                    self.sessions.as_ref().and_then(|sessions| sessions.get(index)?.hold())
                else {
                    return Err(lost(receiver));
                };
                let call = ReceiveCall {
                    lane: Lane::Session(index),
                    mode: hold.mode,
                    count_max,
                    bytes_max,
                    holder: Some(receiver),
                    turn: 0,
                    deadline: ctx.now,
                };
                self.wait_for_messages(ticket, call, wait, ctx)
            }
            SessionCommand::ReceiveDeferred { sequences } => {
                self.receive_deferred_of(index, receiver, &sequences, ctx, step)
            }
            SessionCommand::Renew => Ok(self.renew_session(index, ctx)),
            SessionCommand::GetState => Ok(self.session_state(index, ctx)),
            SessionCommand::SetState { state } => self.set_session_state(index, state, ctx, step),
            SessionCommand::DeleteBatch { count_max, enqueued_before } => {
                self.delete_batch_of(index, count_max, enqueued_before, ctx, step)
            }
        }
    }

    /// Opens the link of a holder again, after the entity closed it and left the session to the
    /// holder.
    fn attach_again(
        &mut self,
        index: SessionIndex,
        receiver: ReceiverId,
    ) -> Result<Answer, Rejection> {
        self.refuse_receive()?;
        if self.link(receiver).is_some() {
            return Err(Rejection::invalid_operation(format!(
                "receiver link {} is already attached",
                receiver.0
            )));
        }
        let Some(sessions) = &mut self.sessions else { return Err(lost(receiver)) };
        let Some(hold) = sessions.get(index).and_then(|session| session.hold()) else {
            return Err(lost(receiver));
        };
        let link = ReceiverLink::new(Lane::Session(index), hold.mode);
        sessions.open_link(index, link);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Returns the session that a receiver holds, while its lock is in force.
    pub(in crate::queue) fn session_held_by(
        &self,
        receiver: ReceiverId,
        now: Timestamp,
    ) -> Result<SessionIndex, Rejection> {
        let find = || {
            let sessions = self.sessions.as_ref()?;
            let index = sessions.session_held_by(receiver)?;
            let in_force = sessions.get(index)?.hold()?.until > now;
            in_force.then_some(index)
        };
        find().ok_or_else(|| lost(receiver))
    }

    /// Whether a message belongs to the session.
    pub(in crate::queue) fn is_in_session(
        &self,
        index: SessionIndex,
        sequence: SequenceNumber,
    ) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.of(sequence) == Some(index))
    }

    /// Sets the end of a session lock to now plus LockDuration (SES-12).
    fn renew_session(&mut self, index: SessionIndex, ctx: &Ctx<'_>) -> Answer {
        let until = ctx.now.plus(self.description.lock_duration);
        if let Some(sessions) = &mut self.sessions {
            sessions.renew(index, until);
        }
        self.touch(ctx.now);
        Answer::Now(Outcome::Renewed(until), Gate::Open)
    }

    /// Ends the session locks whose time is over.
    pub(in crate::queue) fn end_session_locks(
        &mut self,
        moves: &mut usize,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        while *moves > 0 {
            let ended = self.sessions.as_ref().and_then(|sessions| sessions.first_ended(ctx.now));
            let Some(index) = ended else { return };
            *moves -= 1;
            let hold = self.sessions.as_ref().and_then(|sessions| sessions.get(index)?.hold());
            // Further steps that end the same hold do not count it again.
            if let Some(hold) = hold.filter(|hold| hold.ended.is_none()) {
                step.locks_expired += u32::try_from(hold.locks.len()).unwrap_or(u32::MAX);
            }
            self.end_hold(index, LinkEnd::Broken, moves, ctx, step);
        }
    }

    /// Ends a session lock that ran out, or that an operator breaks. Deliveries under a lock that
    /// ran out count as failed (SES-30). The receiver is notified (SES-15). If an earlier step has
    /// begun to end the lock, continues there.
    pub(in crate::queue) fn end_hold(
        &mut self,
        index: SessionIndex,
        end: LinkEnd,
        moves: &mut usize,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(receiver) =
            self.sessions.as_ref().and_then(|sessions| Some(sessions.get(index)?.hold()?.receiver))
        else {
            return;
        };
        let reason = lost(receiver);
        for ticket in self.calls_of(receiver) {
            if self.remove_call(ticket).is_some() {
                let result = Err(reason.clone());
                step.effects.push(Effect::Answer { ticket, result, gate: Gate::Commit });
            }
        }
        if let Some(link) = self.remove_link(receiver) {
            if let Some(ticket) = link.drain {
                let result = Err(reason.clone());
                step.effects.push(Effect::Answer { ticket, result, gate: Gate::Commit });
            }
            step.effects.push(Effect::Detached { receiver, reason });
        }
        self.unlock_session(index, end, moves, ctx, step);
    }

    /// Returns the messages of a holder and ends its lock. After an orderly close, even messages in
    /// flight return uncounted, because sessions must keep their order (SES-31). If the lock ran
    /// out or the connection broke, deliveries count (SES-30, SES-33). Works within the budget of a
    /// step: the holder loses its session at the first step, and the next receiver can get it after
    /// the last.
    pub(in crate::queue) fn unlock_session(
        &mut self,
        index: SessionIndex,
        end: LinkEnd,
        moves: &mut usize,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(sessions) = &mut self.sessions else { return };
        if sessions.begin_end(index, end)
            && let Some(hold) = sessions.hold_mut(index)
        {
            step.effects.push(Effect::SessionEnded { receiver: hold.receiver });
            self.touch(ctx.now);
        }
        let sessions = self.sessions.as_ref();
        let holder = sessions.and_then(|sessions| Some(sessions.get(index)?.hold()?.receiver));
        while let Some((lock, end)) = self.first_remaining_lock(index) {
            if *moves == 0 {
                return;
            }
            *moves = moves.saturating_sub(self.moves_to_end(lock.sequence(), ctx.now));
            let span = ctx.now.since(lock.taken_at);
            step.note_lock_end(lock.sequence(), holder, (span, LockEnd::SessionEnded));
            match end {
                LinkEnd::Orderly | LinkEnd::ByBroker => self.release(lock.sequence()),
                LinkEnd::Broken | LinkEnd::Lost => self.fail_delivery(lock.sequence(), ctx, step),
            }
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.unlock(index);
        }
    }

    /// Returns a lock that must still be ended under an ended hold, and how the hold ended.
    fn first_remaining_lock(&self, index: SessionIndex) -> Option<(Lock, LinkEnd)> {
        let hold = self.sessions.as_ref()?.get(index)?.hold()?;
        Some((*hold.locks.first()?, hold.ended?))
    }
}

fn lost(receiver: ReceiverId) -> Rejection {
    Rejection::session_lock_lost(format!(
        "receiver link {} holds no session: its lock has expired or was released",
        receiver.0
    ))
}
