//! Send: the admission checks in the order of SND-19, then a number and a slot for each message.
//! `queue/mod.rs` calls it. A batch is accepted whole or not at all. At the end, the quota, status
//! and duplicate detection of a queue, for sends and transfers (DUP-02, SND-24).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Queue;
use crate::change::{Change, Durability};
use crate::command::{InboundMessage, Outcome};
use crate::condition::Condition;
use crate::description::EntityStatus;
use crate::duplicate_history::DuplicateHistory;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::{Intake, Quota};
use crate::path::SubQueue;
use crate::peers::Peers;
use crate::slot::{Marks, Slot, SlotState};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput, intake};

impl Queue {
    /// Stores one message, now or for its scheduled instant (FND-02, SCH-02).
    pub(super) fn send(
        &mut self,
        sub_queue: SubQueue,
        message: InboundMessage,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.admit(sub_queue, std::slice::from_ref(&message), ctx)?;
        let sequence = self.accept(message, ctx, step);
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Accepted(sequence)))
    }

    /// Stores all messages, with consecutive numbers, or none (SND-29, SND-31).
    pub(super) fn send_batch(
        &mut self,
        sub_queue: SubQueue,
        messages: Vec<InboundMessage>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.admit_batch(sub_queue, &messages, ctx)?;
        if messages.is_empty() {
            return Ok(Answer::after_commit(Outcome::AcceptedBatch(Vec::new())));
        }
        let sequences =
            messages.into_iter().map(|message| self.accept(message, ctx, step)).collect();
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::AcceptedBatch(sequences)))
    }

    /// Checks a batch, which may be empty (SND-30, SND-34).
    pub(super) fn admit_batch(
        &self,
        sub_queue: SubQueue,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        self.refuse_sub_queue(sub_queue)?;
        self.refuse_status()?;
        if messages.is_empty() {
            return Ok(());
        }
        intake::check_batch_size(messages, ctx)?;
        self.admit(sub_queue, messages, ctx)?;
        intake::check_atomic_size(messages, ctx)
    }

    /// Checks all messages of a transaction: `own` stay in the queue, the others of `all` go to
    /// another entity. The quota applies to their sum, and so does the bound of an atomic unit
    /// (TXN-07, QUO-07). The limit of a batch does not apply.
    pub(super) fn admit_together(
        &self,
        own: &[InboundMessage],
        all: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        if !own.is_empty() {
            self.admit(SubQueue::Main, own, ctx)?;
        }
        let total = all.iter().map(|message| u64::from(message.envelope.size)).sum();
        self.refuse_over_quota(total, ctx)?;
        intake::check_atomic_size(all, ctx)
    }

    /// Checks messages that go to another entity, in the order of SND-19.
    pub(super) fn admit_via(
        &self,
        sub_queue: SubQueue,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        self.refuse_sub_queue(sub_queue)?;
        self.refuse_status()?;
        // A single message is not a batch (SND-22, SND-30).
        if messages.len() > 1 {
            intake::check_batch_size(messages, ctx)?;
        }
        let total = intake::check_messages(messages, self.message_bytes_max())?;
        intake::refuse_without_room(ctx)?;
        self.refuse_over_quota(total, ctx)?;
        intake::refuse_too_many_messages(messages.len(), ctx)?;
        intake::check_atomic_size(messages, ctx)
    }

    /// Makes the checks of SND-19 that belong to the entity. Each check covers all messages before
    /// the next begins.
    pub(super) fn admit(
        &self,
        sub_queue: SubQueue,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        self.refuse_sub_queue(sub_queue)?;
        self.refuse_status()?;
        let total = intake::check_messages(messages, self.message_bytes_max())?;
        self.refuse_without_session(messages, Condition::InvalidOperation)?;
        intake::refuse_without_room(ctx)?;
        self.refuse_over_quota(total, ctx)?;
        intake::refuse_too_many_messages(messages.len(), ctx)?;
        intake::refuse_too_many_delayed(messages, ctx)?;
        self.refuse_too_many_sessions(messages, ctx)?;
        self.refuse_full_history(messages, ctx)
    }

    /// Refuses messages without a session id if the queue requires sessions (SND-25, DLQ-21).
    pub(super) fn refuse_without_session(
        &self,
        messages: &[InboundMessage],
        condition: Condition,
    ) -> Result<(), Rejection> {
        let lacks_session = |message: &InboundMessage| message.envelope.session_id.is_none();
        if self.sessions.is_some() && messages.iter().any(lacks_session) {
            return Err(Rejection::session_id_not_set(condition, self.path()));
        }
        Ok(())
    }

    /// Refuses messages of new sessions if they exceed the broker's limit of sessions.
    pub(super) fn refuse_too_many_sessions(
        &self,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let Some(sessions) = &self.sessions else { return Ok(()) };
        if ctx.remaining.sessions >= messages.len() as u64 {
            return Ok(());
        }
        let ids = messages.iter().filter_map(|message| message.envelope.session_id.as_deref());
        let fresh: BTreeSet<&str> = ids.filter(|id| sessions.named(id).is_none()).collect();
        if fresh.len() as u64 <= ctx.remaining.sessions {
            return Ok(());
        }
        Err(intake::too_many_sessions(ctx))
    }

    /// Refuses messages for a sub-queue or a subscription, which accept no sends (SND-20, VIA-01).
    pub(super) fn refuse_sub_queue(&self, sub_queue: SubQueue) -> Result<(), Rejection> {
        match sub_queue {
            SubQueue::Main if self.subscription.is_some() => Err(self.refuse_sending(sub_queue)),
            SubQueue::Main => Ok(()),
            SubQueue::DeadLetter | SubQueue::TransferDeadLetter => {
                Err(Rejection::invalid_operation(format!(
                    "cannot send to `{}{}`: only dead-lettering puts messages into it",
                    self.path(),
                    sub_queue.suffix()
                )))
            }
        }
    }

    /// Maximum size of a message in bytes (SND-22).
    pub(super) fn message_bytes_max(&self) -> u64 {
        self.description.max_message_size_in_kilobytes.saturating_mul(1_024)
    }

    /// Stores an admitted message and returns its number. A duplicate is dropped: returns 0, or,
    /// for a scheduled duplicate, the number of the scheduled message that it repeats (DUP-02,
    /// DUP-12).
    pub(super) fn accept(
        &mut self,
        message: InboundMessage,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> SequenceNumber {
        self.accept_as(message, None, ctx, step)
    }

    /// Accepts a message under a reserved number if it is still scheduled; an enqueued message gets
    /// a new number (SCH-03).
    pub(super) fn accept_as(
        &mut self,
        message: InboundMessage,
        reserved: Option<SequenceNumber>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> SequenceNumber {
        let envelope = &message.envelope;
        if let Some(earlier) = self.find_duplicate(envelope.message_id_hash, ctx.now) {
            let number = DuplicateHistory::number_for_sender(envelope, earlier);
            step.note_duplicate(number, envelope.message_id_hash);
            return number;
        }
        let scheduled_at = envelope.scheduled_enqueue_time.filter(|at| *at > ctx.now);
        let reserved = reserved.filter(|_| scheduled_at.is_some());
        let sequence = reserved.unwrap_or_else(|| self.last_sequence.next());
        let enqueued_at = scheduled_at.unwrap_or(ctx.now);
        let slot = Slot {
            expires_at: self.own_expiry(envelope.time_to_live, enqueued_at, scheduled_at),
            state: if scheduled_at.is_some() { SlotState::Scheduled } else { SlotState::Active },
            marks: Marks::never_duplicate(envelope.is_never_duplicate()),
            ..Slot::arriving(enqueued_at, envelope.size, envelope.header_size)
        };
        let id_hash = envelope.message_id_hash;
        let session = match self.sessions {
            Some(_) => message.envelope.session_id.map(Arc::from),
            None => None,
        };
        step.bytes_added += u64::from(slot.size);
        self.change(
            Change::Accepted {
                sequence,
                slot,
                session,
                dead_letter_source: None,
                content: message.content,
            },
            Durability::Sync,
            ctx,
            step,
        );
        self.remember_id(id_hash, scheduled_at.map(|_| sequence), ctx, step);
        sequence
    }

    /// Instant at which a message expires by its own TTL, lowered to the default of the entity
    /// (EXP-05). A scheduled message is lowered when it is enqueued (EXP-17).
    pub(super) fn own_expiry(
        &self,
        time_to_live: Option<crate::time::TimeSpan>,
        enqueued_at: Timestamp,
        scheduled_at: Option<Timestamp>,
    ) -> Timestamp {
        let Some(own) = time_to_live else { return Timestamp::NEVER };
        match scheduled_at {
            Some(_) => enqueued_at.plus(own),
            None => enqueued_at.plus(own.min(self.description.default_message_time_to_live)),
        }
    }
}

impl Intake for Queue {
    fn quota(&self) -> Quota<'_> {
        let (kind, path) = self.quota_of();
        let bytes_max = self.description.max_size_in_megabytes.saturating_mul(1_024 * 1_024);
        Quota { kind, path, bytes_max }
    }

    fn status(&self) -> EntityStatus {
        self.description.status
    }

    fn name(&self) -> &str {
        self.path()
    }

    fn history(&self) -> Option<&DuplicateHistory> {
        self.duplicates.as_deref()
    }

    fn history_mut(&mut self) -> Option<&mut DuplicateHistory> {
        self.duplicates.as_deref_mut()
    }

    fn window(&self) -> TimeSpan {
        self.description.duplicate_detection_history_time_window
    }

    fn is_scheduled(&self, sequence: SequenceNumber) -> bool {
        self.slots.get(sequence).is_some_and(|slot| slot.state == SlotState::Scheduled)
    }

    fn is_cancellable(&self, sequence: SequenceNumber) -> bool {
        self.is_durably_scheduled(sequence)
    }

    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn apply_change(
        &mut self,
        change: Change,
        durability: Durability,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        self.change(change, durability, ctx, step);
    }
}
