//! Deferred messages: received by number only (DEF-01 to DEF-11). `queue/mod.rs` and the session
//! commands call it. Deferred messages are never offered to other receives.

use std::collections::BTreeSet;

use super::session::SessionIndex;
use super::{Queue, gate_of};
use crate::change::Removal;
use crate::command::{Outcome, ReceiveMode};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::{ReceiverId, SequenceNumber};
use crate::path::SubQueue;
use crate::slot::SlotState;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

impl Queue {
    /// Receives deferred messages by number, all or none (DEF-03).
    pub(super) fn receive_deferred(
        &mut self,
        sub_queue: SubQueue,
        mode: ReceiveMode,
        sequences: &[SequenceNumber],
        holder: Option<ReceiverId>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if sub_queue == SubQueue::Main && self.sessions.is_some() {
            return Err(Rejection::session_lock_lost(format!(
                "only the holder of a session can receive its deferred messages from `{}`; accept \
                 the session first",
                self.path()
            )));
        }
        self.refuse_forwarded(sub_queue)?;
        self.refuse_receive()?;
        self.refuse_detached(holder)?;
        self.check_deferred(sub_queue, sequences, ctx)?;
        Ok(self.hand_out_deferred(mode, sequences, holder, ctx, step))
    }

    /// Receives deferred messages of a session for its holder (DEF-08).
    pub(super) fn receive_deferred_of(
        &mut self,
        index: SessionIndex,
        receiver: ReceiverId,
        sequences: &[SequenceNumber],
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_receive()?;
        self.check_deferred(SubQueue::Main, sequences, ctx)?;
        if let Some(foreign) = sequences.iter().find(|one| !self.is_in_session(index, **one)) {
            return Err(Rejection::session_lock_lost(format!(
                "message {foreign} belongs to a session that receiver link {} does not hold; \
                 accept that session first",
                receiver.0
            )));
        }
        let hold = self.sessions.as_ref().and_then(|sessions| sessions.get(index)?.hold());
        let mode = hold.map_or(ReceiveMode::PeekLock, |hold| hold.mode);
        Ok(self.hand_out_deferred(mode, sequences, Some(receiver), ctx, step))
    }

    /// Refuses a list with a number that cannot be received (DEF-03), or with more bytes than the
    /// limit of an answer (DEF-11).
    fn check_deferred(
        &self,
        sub_queue: SubQueue,
        sequences: &[SequenceNumber],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let mut seen = BTreeSet::new();
        let mut bytes = 0u64;
        for sequence in sequences {
            if !seen.insert(*sequence)
                || !self.is_receivable_deferred(sub_queue, *sequence, ctx.now)
            {
                return Err(Rejection::message_not_found(*sequence));
            }
            bytes += self.slots.get(*sequence).map_or(0, |slot| u64::from(slot.size));
        }
        let bytes_max = ctx.limits.deferred_bytes_max;
        if bytes > bytes_max && sequences.len() > 1 {
            return Err(Rejection::quota_exceeded(format!(
                "{} deferred messages have {bytes} bytes together, more than the limit \
                 `deferred_bytes_max` of {bytes_max}; ask for fewer at once",
                sequences.len()
            )));
        }
        Ok(())
    }

    fn hand_out_deferred(
        &mut self,
        mode: ReceiveMode,
        sequences: &[SequenceNumber],
        holder: Option<ReceiverId>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let messages = sequences
            .iter()
            .filter_map(|sequence| self.hand_out(*sequence, mode, holder, ctx, step))
            .collect();
        self.touch(ctx.now);
        Answer::Now(Outcome::Received(messages), gate_of(mode))
    }

    /// Removes a deferred message, expired or not, or a Delayed message (DEL-09, RTY-13).
    pub(super) fn delete_deferred(
        &mut self,
        sub_queue: SubQueue,
        sequence: SequenceNumber,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let is_delayed = self.is_durably_delayed(sequence)
            && self.slots.get(sequence).is_some_and(|slot| slot.sub_queue == sub_queue);
        if !is_delayed && !self.is_durably_deferred(sub_queue, sequence) {
            return Err(Rejection::message_not_found(sequence));
        }
        self.remove_message(sequence, Removal::Deleted, ctx, step);
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Whether a message is deferred, unlocked and durable.
    fn is_durably_deferred(&self, sub_queue: SubQueue, sequence: SequenceNumber) -> bool {
        self.slots.get(sequence).is_some_and(|slot| {
            slot.state == SlotState::Deferred
                && slot.sub_queue == sub_queue
                && slot.lock.is_none()
                && !slot.is_in_flight()
        })
    }

    fn is_receivable_deferred(
        &self,
        sub_queue: SubQueue,
        sequence: SequenceNumber,
        now: Timestamp,
    ) -> bool {
        self.is_durably_deferred(sub_queue, sequence)
            && self.slots.get(sequence).is_some_and(|slot| !self.is_expired(slot, now))
    }
}
