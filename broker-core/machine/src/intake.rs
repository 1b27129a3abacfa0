//! Checks of incoming messages that queues and topics share. They are called in the order that
//! SND-19 prescribes: see `Queue::admit` in `queue/send.rs`, and `topic/publish.rs`.

use std::collections::BTreeSet;

use super::duplicate_history::DuplicateHistory;
use super::peers::{PeerSource, Peers};
use super::{Ctx, StepOutput};
use crate::change::{Change, Durability};
use crate::command::{InboundMessage, Outcome};
use crate::description::EntityStatus;
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::message::{Defect, Overlay};
use crate::record::Reserved;
use crate::time::{TimeSpan, Timestamp};
use crate::transfer::Arrival;

/// Quota of an entity, with its kind and path for rejections. A subscription uses the quota of its
/// topic.
pub(crate) struct Quota<'a> {
    pub(crate) kind: &'static str,
    pub(crate) path: &'a str,
    pub(crate) bytes_max: u64,
}

/// A machine that accepts messages.
pub(crate) trait Intake {
    fn quota(&self) -> Quota<'_>;

    fn status(&self) -> EntityStatus;

    /// Path for rejections and other texts.
    fn name(&self) -> &str;

    /// History of accepted ids, if duplicates are detected.
    fn history(&self) -> Option<&DuplicateHistory>;

    /// Mutable history, to free memory.
    fn history_mut(&mut self) -> Option<&mut DuplicateHistory>;

    /// Returns DuplicateDetectionHistoryTimeWindow.
    fn window(&self) -> TimeSpan;

    /// Whether the message waits for its scheduled instant.
    fn is_scheduled(&self, sequence: SequenceNumber) -> bool;

    /// Whether the message is scheduled and its number is public, so that it can be cancelled.
    fn is_cancellable(&self, sequence: SequenceNumber) -> bool;

    /// Messages that other brokers forwarded here recently.
    fn peers(&self) -> &Peers;

    /// Carries a change out and adds it to the step.
    fn apply_change(
        &mut self,
        change: Change,
        durability: Durability,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    );

    /// Refuses messages if the status forbids sending (ENT-24).
    fn refuse_status(&self) -> Result<(), Rejection> {
        if !self.status().allows_send() {
            return Err(Rejection::entity_disabled(self.name(), self.status()));
        }
        Ok(())
    }

    /// Refuses `bytes` more bytes if they exceed the quota (SND-24, TOP-10).
    fn refuse_over_quota(&self, bytes: u64, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        let Quota { kind, path, bytes_max } = self.quota();
        if ctx.stored_bytes.saturating_add(bytes) > bytes_max {
            return Err(Rejection::entity_full(kind, path, ctx.stored_bytes, bytes_max));
        }
        Ok(())
    }

    /// Refuses messages with an id if the history has reached its limit (DUP-01).
    fn refuse_full_history(
        &self,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        match self.history() {
            Some(history) => history.refuse_if_full(messages, self.name(), self.window(), ctx),
            None => Ok(()),
        }
    }

    /// Returns the number to answer with if the id is a duplicate: the number of the earlier
    /// message if it is still scheduled, else 0 (DUP-12).
    fn find_duplicate(&self, id_hash: Option<u128>, now: Timestamp) -> Option<SequenceNumber> {
        let found = self.history()?.find(id_hash?, now, self.window())?;
        Some(if self.is_scheduled(found) { found } else { SequenceNumber(0) })
    }

    /// Answers the check of an operation that sends messages in a transaction. Reserves sequence
    /// numbers after `last` for scheduled messages (SCH-13). A duplicate gets no number; its sender
    /// gets the same answer as without a transaction (DUP-12).
    fn reserve_numbers(
        &mut self,
        messages: &[InboundMessage],
        mut last: SequenceNumber,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Answer {
        let is_for_later = |message: &InboundMessage| {
            message.envelope.scheduled_enqueue_time.is_some_and(|at| at > ctx.now)
        };
        if !messages.iter().any(is_for_later) {
            return Answer::Now(Outcome::Done, Gate::Open);
        }
        let before = last;
        let (returned, numbers) = messages
            .iter()
            .map(|message| {
                let envelope = &message.envelope;
                match self.find_duplicate(envelope.message_id_hash, ctx.now) {
                    Some(kept) => {
                        (DuplicateHistory::number_for_sender(envelope, kept), SequenceNumber(0))
                    }
                    None if is_for_later(message) => {
                        last = last.next();
                        (last, last)
                    }
                    None => (SequenceNumber(0), SequenceNumber(0)),
                }
            })
            .unzip();
        if last != before {
            self.apply_change(Change::Numbered { last }, Durability::Sync, ctx, step);
        }
        Answer::after_commit(Outcome::NumbersReserved { returned, numbers })
    }

    /// Remembers the id of an accepted message if duplicates are detected; with its number if it is
    /// scheduled (DUP-01).
    fn remember_id(
        &mut self,
        id_hash: Option<u128>,
        scheduled: Option<SequenceNumber>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let (Some(history), Some(id_hash)) = (self.history(), id_hash) else { return };
        let change = history.remember(id_hash, scheduled, ctx.now, self.window());
        self.apply_change(change, Durability::Sync, ctx, step);
    }

    /// Refuses to cancel a message that is not scheduled or is named twice (SCH-05).
    fn check_cancelled(&self, sequences: &[SequenceNumber]) -> Result<(), Rejection> {
        let mut seen = BTreeSet::new();
        let wrong = |sequence: &&SequenceNumber| {
            !seen.insert(**sequence) || !self.is_cancellable(**sequence)
        };
        match sequences.iter().find(wrong) {
            Some(SequenceNumber(0)) => Err(Rejection::out_of_range(
                "sequence number 0 names no message; it stands for a dropped duplicate",
            )),
            Some(sequence) => Err(Rejection::message_not_found(*sequence)),
            None => Ok(()),
        }
    }

    /// Refuses an update of properties that are fixed at creation. Each entry has the property's
    /// name and whether it is unchanged (ENT-16).
    fn refuse_fixed(&self, fixed: &[(&str, bool)]) -> Result<(), Rejection> {
        match fixed.iter().find(|(_, same)| !same) {
            Some((property, _)) => Err(Rejection::argument(format!(
                "{property} of `{}` cannot change after its creation",
                self.name()
            ))),
            None => Ok(()),
        }
    }

    /// Records a message of another broker as taken, so that it is not taken again (FWD-09,
    /// FWD-13). If the number of sources is at its limit, a new source replaces the source that was
    /// silent longest.
    fn record_peer(
        &mut self,
        source: PeerSource,
        sequence: SequenceNumber,
        enqueued_at: Timestamp,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        if let Some(source_to_forget) = self.peers().source_to_forget(&source) {
            self.apply_change(
                Change::PeerForgotten { source: source_to_forget },
                Durability::Lazy,
                ctx,
                step,
            );
        }
        let record = self.peers().record(&source, sequence, enqueued_at, ctx.now);
        self.apply_change(Change::PeerTaken { source, record }, Durability::Sync, ctx, step);
    }

    /// Forgets buckets of message ids whose latest acceptance is older than the window of duplicate
    /// detection.
    fn forget_ids(&mut self, ctx: &Ctx<'_>, step: &mut StepOutput) {
        let window = self.window();
        while let Some(change) =
            self.history().and_then(|history| history.forget_oldest(ctx.now, window))
        {
            self.apply_change(change, Durability::Lazy, ctx, step);
        }
        if let Some(history) = self.history_mut() {
            history.free_memory();
        }
    }
}

/// Refuses messages that are too large or invalid. Each check covers all messages before the next
/// check begins. Returns the sum of their stored sizes.
pub(crate) fn check_messages(messages: &[InboundMessage], size_max: u64) -> Result<u64, Rejection> {
    let mut total = 0u64;
    for message in messages {
        let size = u64::from(message.envelope.sent_size());
        if size > size_max {
            return Err(Rejection::message_size_exceeded("message", size, size_max));
        }
        if let Some(Defect::Size(rejection)) = &message.envelope.defect {
            return Err(rejection.clone());
        }
        total += u64::from(message.envelope.size);
    }
    for message in messages {
        if let Some(Defect::Property(rejection)) = &message.envelope.defect {
            return Err(rejection.clone());
        }
    }
    Ok(total)
}

/// Refuses a message that a job sends, as if a client had sent it with its properties (CON-16).
/// Otherwise it would be dead-lettered at its destination (DLQ-20), which adds the name of the
/// entity in which it was dead-lettered.
pub(crate) fn check_resent(
    arrival: &Arrival,
    size_max: u64,
    ctx: &Ctx<'_>,
) -> Result<(), Rejection> {
    let message = &arrival.message;
    check_messages(std::slice::from_ref(message), size_max)?;
    let source = arrival.dead_letter_source.as_deref().map(Overlay::dead_letter_source);
    let added = source.map_or(0, |source| u64::from(source.size_bytes()));
    let header_size = u64::from(message.envelope.header_size).saturating_add(added);
    if header_size > ctx.limits.header_bytes_max {
        let bytes_max = ctx.limits.header_bytes_max;
        return Err(Rejection::message_size_exceeded("header", header_size, bytes_max));
    }
    Ok(())
}

/// Refuses scheduled messages if the broker has reached its limit of scheduled, deferred and
/// Delayed messages, which `delayed` counts together.
pub(crate) fn refuse_too_many_delayed(
    messages: &[InboundMessage],
    ctx: &Ctx<'_>,
) -> Result<(), Rejection> {
    if ctx.remaining.delayed >= messages.len() as u64 {
        return Ok(());
    }
    let waits = |message: &&InboundMessage| {
        message.envelope.scheduled_enqueue_time.is_some_and(|at| at > ctx.now)
    };
    if messages.iter().filter(waits).count() as u64 <= ctx.remaining.delayed {
        return Ok(());
    }
    Err(too_many_delayed(ctx))
}

pub(crate) fn too_many_delayed(ctx: &Ctx<'_>) -> Rejection {
    Rejection::quota_exceeded(format!(
        "the broker already keeps {} scheduled, deferred and delayed messages, the limit \
         `broker_delayed_count_max`; receive or cancel some",
        ctx.limits.broker_delayed_count_max
    ))
}

pub(crate) fn too_many_sessions(ctx: &Ctx<'_>) -> Rejection {
    Rejection::quota_exceeded(format!(
        "the broker already keeps {} sessions, the limit `broker_session_count_max`; receive the \
         messages and clear the state of some sessions",
        ctx.limits.broker_session_count_max
    ))
}

/// Refuses `count` more rules if they exceed the limit of the broker.
pub(crate) fn refuse_too_many_rules(count: usize, ctx: &Ctx<'_>) -> Result<(), Rejection> {
    if ctx.remaining.rules >= count as u64 {
        return Ok(());
    }
    Err(Rejection::quota_exceeded(format!(
        "the broker already keeps {} rules, the limit `broker_rule_count_max`; delete some",
        ctx.limits.broker_rule_count_max
    )))
}

/// Refuses a batch that is too large (SND-30).
pub(crate) fn check_batch_size(
    messages: &[InboundMessage],
    ctx: &Ctx<'_>,
) -> Result<(), Rejection> {
    let total: u64 = messages.iter().map(|message| u64::from(message.envelope.sent_size())).sum();
    if total > ctx.limits.batch_bytes_max {
        return Err(Rejection::message_size_exceeded("batch", total, ctx.limits.batch_bytes_max));
    }
    Ok(())
}

/// Refuses a batch whose small messages exceed the size of an atomic step (QUO-07).
pub(crate) fn check_atomic_size(
    messages: &[InboundMessage],
    ctx: &Ctx<'_>,
) -> Result<(), Rejection> {
    let small: u64 = messages
        .iter()
        .map(|message| u64::from(message.envelope.size))
        .filter(|size| *size <= ctx.limits.atomic_content_bytes_max)
        .sum();
    if small > ctx.limits.atomic_bytes_max {
        return Err(Rejection::quota_exceeded(format!(
            "atomic batch holds {small} bytes of small messages, the limit is {}; send fewer \
             messages in one batch",
            ctx.limits.atomic_bytes_max
        )));
    }
    Ok(())
}

/// Refuses messages if the store has no room (QUO-05).
pub(crate) fn refuse_without_room(ctx: &Ctx<'_>) -> Result<(), Rejection> {
    match ctx.room {
        Reserved::Granted => Ok(()),
        Reserved::Busy => Err(Rejection::server_busy("the store has no space at the moment")),
        Reserved::Full => Err(Rejection::server_busy("the store is full; wait 10 s and retry")),
    }
}

/// Refuses `count` more messages if they exceed the limit of the broker. Each copy counts.
pub(crate) fn refuse_too_many_messages(count: usize, ctx: &Ctx<'_>) -> Result<(), Rejection> {
    if count as u64 <= ctx.remaining.messages {
        return Ok(());
    }
    Err(Rejection::quota_exceeded(format!(
        "the entities of the broker hold {} messages, the limit `broker_message_count_max`; \
        receive or delete some",
        ctx.limits.broker_message_count_max
    )))
}

/// Refuses a message from another broker if the broker has reached its limit of remembered ids.
pub(crate) fn refuse_too_many_taken(ctx: &Ctx<'_>) -> Result<(), Rejection> {
    if ctx.remaining.duplicate_ids > 0 {
        return Ok(());
    }
    Err(Rejection::quota_exceeded(format!(
        "the broker already keeps {} message ids and forwarded messages for duplicate detection, \
         the limit `broker_duplicate_id_count_max`; retry later",
        ctx.limits.broker_duplicate_id_count_max
    )))
}

/// Refuses the receipt of a step on `count` messages if the broker has reached its limit of
/// remembered ids. Each message of a receipt counts.
pub(crate) fn refuse_too_many_receipts(count: usize, ctx: &Ctx<'_>) -> Result<(), Rejection> {
    if count as u64 <= ctx.remaining.duplicate_ids {
        return Ok(());
    }
    Err(Rejection::quota_exceeded(format!(
        "the broker already keeps {} message ids and results of operators' jobs, the limit \
         `broker_duplicate_id_count_max`; retry later",
        ctx.limits.broker_duplicate_id_count_max
    )))
}

/// Returns the rejection of an abandon whose message would have to wait (RTY-32).
pub(crate) fn no_room_for_a_delay(ctx: &Ctx<'_>) -> Rejection {
    Rejection::quota_exceeded(format!(
        "the broker already keeps {} scheduled, deferred and delayed messages, the limit \
         `broker_delayed_count_max`; abandon with a delay of 0 to make the message available at \
         once",
        ctx.limits.broker_delayed_count_max
    ))
}

/// Returns the rejection of a settlement with properties, which need as much memory as a small
/// message (SET-41).
pub(crate) fn no_room_for_properties(ctx: &Ctx<'_>) -> Rejection {
    Rejection::quota_exceeded(format!(
        "the entities of the broker hold {} messages and properties that were set on messages, the \
         limit `broker_message_count_max`; settle the message without properties",
        ctx.limits.broker_message_count_max
    ))
}

/// Refuses a rule or description that grows, if the growth exceeds the remaining bytes of the
/// broker.
pub(crate) fn refuse_descriptions(
    bytes: u64,
    bytes_before: u64,
    ctx: &Ctx<'_>,
) -> Result<(), Rejection> {
    if bytes.saturating_sub(bytes_before) <= ctx.remaining.described_bytes {
        return Ok(());
    }
    Err(Rejection::too_many_descriptions(ctx.limits))
}
