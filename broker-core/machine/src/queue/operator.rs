//! Commands of an operator on locks and sessions that others hold (CON-26, CON-27), and on messages
//! (`act.rs`). `queue/mod.rs` calls it. A lock that is broken ends as if its time was over or the broker had closed its link.

use super::session::SessionHold;
use super::{COMMAND_MOVES_MAX, Queue};
use crate::act::ActOnMessages as _;
use crate::command::{BROKEN_LOCK_COUNT_MAX, LinkEnd, OperatorCommand, Outcome};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::event::LockEnd;
use crate::ids::SequenceNumber;
use crate::lock_table::Lock;
use crate::path::SubQueue;
use crate::{Ctx, StepOutput};

impl Queue {
    /// Carries out a command of an operator.
    pub(super) fn operate(
        &mut self,
        sub_queue: SubQueue,
        command: OperatorCommand,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        match command {
            OperatorCommand::BreakLocks { sequences, counts } => {
                self.break_locks(sub_queue, &sequences, end_of(counts), ctx, step)
            }
            OperatorCommand::BreakSession { session, counts } => {
                self.break_session(sub_queue, &session, end_of(counts), ctx, step)
            }
            OperatorCommand::SetSessionState { session, state } => {
                self.set_state_of_unheld(sub_queue, &session, state, ctx, step)
            }
            OperatorCommand::Act(act) => self.act(sub_queue, &act, ctx, step),
            OperatorCommand::ForgetJob(job) => Ok(self.forget_job(job, ctx, step)),
        }
    }

    /// Ends the locks of these messages that are in force. A message whose lock has ended meanwhile
    /// is skipped.
    fn break_locks(
        &mut self,
        sub_queue: SubQueue,
        sequences: &[SequenceNumber],
        end: LinkEnd,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if sequences.len() > BROKEN_LOCK_COUNT_MAX {
            return Err(Rejection::out_of_range(format!(
                "{} sequence numbers were given, the limit is {BROKEN_LOCK_COUNT_MAX}; break the \
                 locks in several requests",
                sequences.len()
            )));
        }
        if sub_queue == SubQueue::Main && self.sessions.is_some() {
            return Err(Rejection::invalid_operation(format!(
                "messages of `{}` are locked with their session; break the session lock instead",
                self.path()
            )));
        }
        let mut count = 0;
        for sequence in sequences {
            let Some(lock) = self.breakable_lock(sub_queue, *sequence, ctx) else { continue };
            step.moves += self.moves_to_end(*sequence, ctx.now) as u64;
            self.end_lock(&lock, (end, LockEnd::Operator), ctx, step);
            count += 1;
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::LocksBroken(count)))
    }

    /// Returns the lock of a message outside sessions, unless it is over or its holder is gone.
    fn breakable_lock(
        &self,
        sub_queue: SubQueue,
        sequence: SequenceNumber,
        ctx: &Ctx<'_>,
    ) -> Option<Lock> {
        let slot = self.slots.get(sequence).filter(|slot| slot.sub_queue == sub_queue)?;
        let lock = self.locks.get(slot.lock?).copied()?;
        let in_force = lock.until > ctx.now && self.end_of_detached(lock.holder).is_none();
        in_force.then_some(lock)
    }

    /// Ends the lock of a session. If it has more messages than a step moves, later steps end the
    /// rest; the holder loses the session at once.
    fn break_session(
        &mut self,
        sub_queue: SubQueue,
        session: &str,
        end: LinkEnd,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        let in_force = self.hold_of(session).is_some_and(|hold| hold.until > ctx.now);
        let index = self.sessions.as_ref().and_then(|sessions| sessions.named(session));
        if in_force && let Some(index) = index {
            let mut moves = COMMAND_MOVES_MAX;
            self.end_hold(index, end, &mut moves, ctx, step);
            step.moves += (COMMAND_MOVES_MAX - moves) as u64;
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::LocksBroken(u64::from(in_force))))
    }

    /// The hold of a session, whose lock may be over.
    pub(super) fn hold_of(&self, session: &str) -> Option<&SessionHold> {
        self.session_named(session)?.hold()
    }
}

/// How the link of a holder would have ended: its deliveries count as failed, or not (SET-31).
const fn end_of(counts: bool) -> LinkEnd {
    if counts { LinkEnd::Broken } else { LinkEnd::ByBroker }
}
