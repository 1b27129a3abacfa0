//! Message locks: taken with a delivery, renewed on request, ended by time or with their holder
//! (SET-15 to SET-20).

use super::Queue;
use crate::command::{LinkEnd, Outcome};
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::event::{EventKind, LockEnd};
use crate::ids::{LockToken, ReceiverId, SequenceNumber};
use crate::lock_table::Lock;
use crate::path::SubQueue;
use crate::slot::{LockIndex, Slot};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput};

/// A lock that was looked up and is in force, so its owner may settle.
#[derive(Clone, Copy)]
pub(crate) struct LockInForce {
    pub(super) token: LockToken,
    pub(super) index: LockIndex,
    pub(super) sequence: SequenceNumber,
    pub(super) slot: Slot,
    pub(super) taken_at: Timestamp,
    holder: Option<ReceiverId>,
}

impl Queue {
    /// Lets all locks in force, also in sessions, end later by the same time.
    pub(super) fn prolong_all_locks(&mut self, span: TimeSpan) {
        self.locks.prolong(span);
        if let Some(sessions) = &mut self.sessions {
            sessions.prolong(span);
        }
    }

    /// Locks a message for LockDuration with a fresh token (SET-15).
    pub(super) fn lock(
        &mut self,
        sequence: SequenceNumber,
        holder: Option<ReceiverId>,
        ctx: &mut Ctx<'_>,
    ) -> Option<(LockToken, Timestamp)> {
        let random = (ctx.tokens)();
        let slot = self.slots.get_mut(sequence)?;
        let which = slot.sub_queue;
        if let (Some(sessions), SubQueue::Main) = (&mut self.sessions, which) {
            // The lock of the session covers its messages (SES-14): their locks end with it.
            let hold = sessions.hold_mut(sessions.of(sequence)?)?;
            let token = LockToken::in_session(sequence, hold.epoch, random);
            let until = hold.until;
            let taken_at = ctx.now;
            let lock = Lock { token, until: Timestamp::NEVER, holder: None, taken_at };
            slot.lock = Some(hold.locks.insert(lock)?);
            sessions.withdraw(sequence);
            return Some((token, until));
        }
        let token = LockToken::new(sequence, random);
        let until = ctx.now.plus(self.description.lock_duration);
        let lock = Lock { token, until, holder, taken_at: ctx.now };
        slot.lock = Some(self.locks.insert(lock)?);
        self.sub_queue_mut(which).available.remove(sequence);
        Some((token, until))
    }

    /// Returns a lock of this sub-queue that is still in force (SET-20).
    pub(super) fn lock_in_force(
        &self,
        sub_queue: SubQueue,
        token: LockToken,
        now: Timestamp,
    ) -> Result<LockInForce, Rejection> {
        let sequence = token.sequence();
        let find = || {
            let slot = *self.slots.get(sequence)?;
            let index = slot.lock?;
            let lock = self.lock_table(sequence, slot.sub_queue)?.get(index)?;
            let in_force = lock.token == token
                && lock.until > now
                && slot.sub_queue == sub_queue
                && self.end_of_detached(lock.holder).is_none();
            in_force.then_some(LockInForce {
                token,
                index,
                sequence,
                slot,
                taken_at: lock.taken_at,
                holder: lock.holder,
            })
        };
        // After the end of a session lock, its tokens fail with `SessionLockLost`; a token that is
        // used twice fails as lost message lock (SES-15, SET-13).
        if let (Some(sessions), SubQueue::Main) = (&self.sessions, sub_queue)
            && !sessions.is_in_force(token.epoch(), now)
        {
            return Err(Rejection::session_lock_lost(format!(
                "the session lock that {token} belongs to has expired or was released"
            )));
        }
        find().ok_or_else(|| Rejection::message_lock_lost(token))
    }

    /// Sets the end of a lock to now plus LockDuration; token and delivery count stay (SET-18).
    pub(super) fn renew_lock(
        &mut self,
        sub_queue: SubQueue,
        token: LockToken,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let lock = self.renewable(sub_queue, token, ctx)?;
        let until = self.renew_lock_in_force(&lock, ctx, step);
        self.touch(ctx.now);
        Ok(Answer::Now(Outcome::Renewed(until), Gate::Open))
    }

    /// Returns the lock to renew, if it can be renewed.
    pub(super) fn renewable(
        &self,
        sub_queue: SubQueue,
        token: LockToken,
        ctx: &Ctx<'_>,
    ) -> Result<LockInForce, Rejection> {
        if sub_queue == SubQueue::Main && self.sessions.is_some() {
            return Err(Rejection::invalid_operation(format!(
                "messages of `{}` are locked with their session; renew the session lock instead",
                self.path()
            )));
        }
        self.lock_in_force(sub_queue, token, ctx.now)
    }

    /// Renews a lock that [`Queue::renewable`] returned; returns its new end.
    pub(super) fn renew_lock_in_force(
        &mut self,
        lock: &LockInForce,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Timestamp {
        let holder = self.noted_holder(lock, step);
        step.note(lock.sequence, holder, EventKind::Renewed);
        let until = ctx.now.plus(self.description.lock_duration);
        self.locks.renew(lock.index, until);
        until
    }

    /// Ends the locks whose time is over; each counts as a failed delivery (SET-28).
    pub(super) fn end_locks(&mut self, moves: &mut usize, ctx: &Ctx<'_>, step: &mut StepOutput) {
        while *moves > 0 {
            let Some(lock) = self.locks.first().copied().filter(|lock| lock.until <= ctx.now)
            else {
                return;
            };
            *moves = moves.saturating_sub(self.moves_to_end(lock.sequence(), ctx.now));
            let detached = self.end_of_detached(lock.holder);
            step.locks_expired += u32::from(detached.is_none());
            let cause = if detached.is_some() { LockEnd::LinkEnded } else { LockEnd::TimeOver };
            let end = detached.unwrap_or(LinkEnd::Broken);
            self.end_lock(&lock, (end, cause), ctx, step);
        }
    }

    /// Ends a lock whose time is over or whose holder is gone. Its delivery has failed, unless the
    /// broker ended the link (SET-31).
    pub(super) fn end_lock(
        &mut self,
        lock: &Lock,
        (end, cause): (LinkEnd, LockEnd),
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let span = ctx.now.since(lock.taken_at);
        step.note_lock_end(lock.sequence(), lock.holder, (span, cause));
        match end {
            LinkEnd::Orderly | LinkEnd::Broken | LinkEnd::Lost => {
                self.fail_delivery(lock.sequence(), ctx, step);
            }
            LinkEnd::ByBroker => self.release(lock.sequence()),
        }
    }

    /// Holder of a lock, for an event: of the session if its lock covers the message. None if the
    /// step notes no events.
    pub(super) fn noted_holder(&self, lock: &LockInForce, step: &StepOutput) -> Option<ReceiverId> {
        let of_session = || {
            let sessions =
                self.sessions.as_ref().filter(|_| lock.slot.sub_queue == SubQueue::Main)?;
            Some(sessions.get(sessions.of(lock.sequence)?)?.hold()?.receiver)
        };
        lock.holder.or_else(|| step.notes_events.then(of_session).flatten())
    }

    /// Number of moves to end the lock of a message: an expired message is removed with its
    /// overlays (EXP-28).
    pub(super) fn moves_to_end(&self, sequence: SequenceNumber, now: Timestamp) -> usize {
        if self.tally.overlay_count == 0 {
            return 1;
        }
        let expired = self.slots.get(sequence).filter(|slot| self.is_expired(slot, now));
        1 + expired.map_or(0, |slot| usize::from(slot.overlay_count))
    }

    /// Unlocks a message as if it had not been delivered (SET-32).
    pub(super) fn release(&mut self, sequence: SequenceNumber) {
        let Some(slot) = self.slots.get_mut(sequence) else { return };
        let which = slot.sub_queue;
        let Some(lock) = slot.lock.take() else { return };
        self.drop_lock(sequence, which, lock);
        self.offer(sequence);
    }
}
