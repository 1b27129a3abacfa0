//! Publish: the checks of SND-19 and the copies that each message would become, since the quota
//! counts them (TOP-10); then a number, and a copy for each subscription that selects the message
//! (TOP-01 to TOP-10).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Topic;
use super::copies::{ExceededLimit, InheritedProperties, StagedCopies, overlay_bytes};
use crate::change::{Change, Durability, PublishedContent, SubscriptionCopy, TopicChange};
use crate::command::{InboundMessage, Outcome};
use crate::condition::Condition;
use crate::description::EntityStatus;
use crate::duplicate_history::DuplicateHistory;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::{Intake, Quota};
use crate::limits::OVERLAY_BYTES;
use crate::message::{Content, Overlay};
use crate::peers::Peers;
use crate::rule::{Acceptance, Excess, PublishedMessage, SampledMessage, Selection};
use crate::slot::{Marks, Slot, SlotState};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput, intake};

/// Earlier transfers of a message from another entity; the default for a client's send.
#[derive(Clone, Debug, Default)]
pub(super) struct Journey {
    /// Number of transfers; the way to the subscriptions does not count (FWD-13).
    pub(super) hops: u8,
    /// Copies that the original message has made already, or that other copies may still make
    /// (FWD-33).
    pub(super) copies_spent: u16,
    /// Number at its original point of submission; 0 if that is the topic (MSG-15).
    pub(super) first: SequenceNumber,
    /// Properties set since it was sent, and the entity in which it was dead-lettered (FWD-26).
    pub(super) changes: Option<Overlay>,
    /// Marks of its copies: whether it is never a duplicate (DUP-14), as its envelope says, and
    /// whether it was scheduled (PEK-05).
    pub(super) marks: Marks,
}

impl Topic {
    /// Publishes one message, now or at its scheduled instant.
    pub(super) fn send(
        &mut self,
        message: InboundMessage,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let plan = self.admit(std::slice::from_ref(&message), ctx)?.pop();
        let Some(plan) = plan else { return Err(Rejection::internal("the message has no plan")) };
        let sequence = self.accept(message, plan, Journey::default(), ctx, step);
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Accepted(sequence)))
    }

    /// Publishes all messages, with consecutive numbers, or none (SND-29, SND-31, TOP-07).
    pub(super) fn send_batch(
        &mut self,
        messages: Vec<InboundMessage>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let plans = self.admit_batch(&messages, ctx)?;
        if messages.is_empty() {
            return Ok(Answer::after_commit(Outcome::AcceptedBatch(Vec::new())));
        }
        let sequences = messages
            .into_iter()
            .zip(plans)
            .map(|(message, plan)| self.accept(message, plan, Journey::default(), ctx, step))
            .collect();
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::AcceptedBatch(sequences)))
    }

    /// Numbers an admitted message and makes its copies. A duplicate is dropped: returns 0, or, for
    /// a scheduled duplicate, the number of the scheduled message that it repeats (DUP-02, DUP-12).
    pub(super) fn accept(
        &mut self,
        message: InboundMessage,
        plan: AdmissionPlan,
        journey: Journey,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> SequenceNumber {
        self.accept_as(message, plan, journey, None, ctx, step)
    }

    /// Accepts a message under a reserved number if it is still scheduled.
    pub(super) fn accept_as(
        &mut self,
        message: InboundMessage,
        plan: AdmissionPlan,
        mut journey: Journey,
        reserved: Option<SequenceNumber>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> SequenceNumber {
        let InboundMessage { content, envelope } = message;
        journey.marks = Marks::never_duplicate(envelope.is_never_duplicate());
        if let Some(earlier) = self.find_duplicate(envelope.message_id_hash, ctx.now) {
            let number = DuplicateHistory::number_for_sender(&envelope, earlier);
            step.note_duplicate(number, envelope.message_id_hash);
            return number;
        }
        let next = self.last_sequence.next();
        let is_scheduled = matches!(plan, AdmissionPlan::Schedule(_));
        let sequence = reserved.filter(|_| is_scheduled).unwrap_or(next);
        // The rules judged later messages with numbers that assume that this message takes one too.
        self.last_sequence = next;
        let scheduled = is_scheduled.then_some(sequence);
        match plan {
            AdmissionPlan::Schedule(at) => {
                let own = envelope.time_to_live.map_or(Timestamp::NEVER, |own| at.plus(own));
                let slot = Slot {
                    expires_at: own,
                    enqueued_sequence: journey.first,
                    state: SlotState::Scheduled,
                    hops: journey.hops,
                    copies_spent: journey.copies_spent,
                    marks: journey.marks,
                    ..Slot::arriving(at, envelope.size, envelope.header_size)
                };
                step.bytes_added += u64::from(slot.size);
                let change = Change::Accepted {
                    sequence,
                    slot,
                    session: None,
                    dead_letter_source: journey.dead_letter_source().map(Arc::from),
                    content,
                };
                self.change(change, Durability::Sync, ctx, step);
            }
            AdmissionPlan::Publish(selection) => {
                let inherited = InheritedProperties::of_envelope(&envelope);
                let copies =
                    self.copies((&content, &inherited), sequence, selection, &journey, ctx);
                self.note_sample((&content, &journey), sequence, copies.len(), ctx.now, step);
                self.publish(sequence, PublishedContent::New(content), copies, ctx, step);
            }
        }
        self.remember_id(envelope.message_id_hash, scheduled, ctx, step);
        sequence
    }

    /// Makes the change of a publish.
    pub(super) fn publish(
        &mut self,
        sequence: SequenceNumber,
        content: PublishedContent,
        copies: Vec<SubscriptionCopy>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        step.bytes_added += copies.iter().map(|copy| u64::from(copy.slot.size)).sum::<u64>();
        let change = TopicChange::Published { sequence, content, copies };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
    }
}

impl Journey {
    /// The entity in which it was dead-lettered (FWD-26).
    pub(super) fn dead_letter_source(&self) -> Option<&str> {
        Overlay::dead_letter_source_of(self.changes.iter())
    }

    /// Bytes of the properties set on it.
    pub(super) fn set_bytes(&self) -> u64 {
        self.changes.as_ref().map_or(0, |changes| u64::from(changes.size_bytes()))
    }
}

/// Result of an admission.
pub(super) enum AdmissionPlan {
    /// The message waits for its instant.
    Schedule(Timestamp),
    /// The message is published now.
    Publish(Selection),
}

impl Topic {
    /// Checks one message of a list by itself. `bytes_added` is the size of the messages before it.
    pub(super) fn admit_one(
        &self,
        message: &InboundMessage,
        journey: &Journey,
        bytes_added: u64,
        ctx: &mut Ctx<'_>,
    ) -> Result<AdmissionPlan, Rejection> {
        let plan = self.admit_of_journey(std::slice::from_ref(message), journey, ctx)?.pop();
        let Some(plan) = plan else { return Err(Rejection::internal("the message has no plan")) };
        self.refuse_over_quota(bytes_added.saturating_add(plan.size_bytes(message, journey)), ctx)?;
        Ok(plan)
    }

    /// Checks a batch, which may be empty (SND-30, SND-34).
    pub(super) fn admit_batch(
        &self,
        messages: &[InboundMessage],
        ctx: &mut Ctx<'_>,
    ) -> Result<Vec<AdmissionPlan>, Rejection> {
        self.refuse_status()?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        intake::check_batch_size(messages, ctx)?;
        let plans = self.admit(messages, ctx)?;
        intake::check_atomic_size(messages, ctx)?;
        Ok(plans)
    }

    /// Checks new messages. Refuses them all if judging ahead ended at a limit, so that some were
    /// not judged ([`Self::refuse_unjudged`]). Each check covers all messages before the next
    /// begins. The quota counts the copies (TOP-10), so this selects them.
    pub(super) fn admit(
        &self,
        messages: &[InboundMessage],
        ctx: &mut Ctx<'_>,
    ) -> Result<Vec<AdmissionPlan>, Rejection> {
        self.refuse_status()?;
        self.refuse_unjudged(ctx)?;
        self.admit_of_journey(messages, &Journey::default(), ctx)
    }

    /// Checks messages that share one journey, in the order of SND-19. The journey is empty for new
    /// messages; for others it is their hops and copies until now.
    fn admit_of_journey(
        &self,
        messages: &[InboundMessage],
        journey: &Journey,
        ctx: &mut Ctx<'_>,
    ) -> Result<Vec<AdmissionPlan>, Rejection> {
        self.refuse_status()?;
        intake::check_messages(messages, self.description.message_bytes_max())?;
        intake::refuse_without_room(ctx)?;
        let mut plans = Vec::with_capacity(messages.len());
        let mut sequence = self.last_sequence;
        let (mut total, mut staged) = (0u64, StagedCopies::default());
        let mut ids = BTreeSet::new();
        for message in messages {
            let plan = self.plan(message, journey, sequence.next(), ctx);
            total = total.saturating_add(plan.size_bytes(message, journey));
            staged = staged.and(plan.staged(journey));
            if self.is_new(message, &mut ids, ctx.now) {
                sequence = sequence.next();
            }
            plans.push(plan);
        }
        refuse_excess(&plans, ctx)?;
        self.refuse_copies(&plans, journey)?;
        self.refuse_over_quota(total, ctx)?;
        refuse_large_step(staged, ctx)?;
        self.refuse_over_broker_limits(messages, &plans, ctx)?;
        self.refuse_full_history(messages, ctx)?;
        Ok(plans)
    }

    /// Refuses messages that exceed a limit of the broker. Only the subscriptions know whether the
    /// sessions of copies are new, so at the limit of sessions no message in a session is admitted.
    pub(super) fn refuse_over_broker_limits(
        &self,
        messages: &[InboundMessage],
        plans: &[AdmissionPlan],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let counts = plans.iter().map(|plan| match plan {
            AdmissionPlan::Publish(selection) => selection.copies.len(),
            AdmissionPlan::Schedule(_) => 1,
        });
        intake::refuse_too_many_messages(counts.sum(), ctx)?;
        intake::refuse_too_many_delayed(messages, ctx)?;
        let is_in_session = || {
            self.session_subscription_count > 0
                && messages.iter().any(|message| message.envelope.session_id.is_some())
        };
        if ctx.remaining.sessions < messages.len() as u64 && is_in_session() {
            return Err(intake::too_many_sessions(ctx));
        }
        Ok(())
    }

    /// Plans a message: schedules it, or selects its copies.
    pub(super) fn plan(
        &self,
        message: &InboundMessage,
        journey: &Journey,
        sequence: SequenceNumber,
        ctx: &mut Ctx<'_>,
    ) -> AdmissionPlan {
        match message.envelope.scheduled_enqueue_time.filter(|at| *at > ctx.now) {
            Some(at) => AdmissionPlan::Schedule(at),
            None => AdmissionPlan::Publish(self.select(&message.content, journey, sequence, ctx)),
        }
    }

    /// Whether a message of a batch gets a number of its own, which its rules can see (SQL-09).
    fn is_new(&self, message: &InboundMessage, ids: &mut BTreeSet<u128>, now: Timestamp) -> bool {
        let (Some(_), Some(id_hash)) = (&self.duplicates, message.envelope.message_id_hash) else {
            return true;
        };
        self.find_duplicate(Some(id_hash), now).is_none() && ids.insert(id_hash)
    }

    /// Selects the copies of a message that is enqueued now.
    pub(super) fn select(
        &self,
        content: &Content,
        journey: &Journey,
        sequence: SequenceNumber,
        ctx: &mut Ctx<'_>,
    ) -> Selection {
        if let Some(found) = self.found_ahead(content, journey) {
            return found;
        }
        let published = self.published(content, journey, sequence, ctx.now);
        self.matcher.publish(content, &published, ctx.limits, &mut *ctx.tokens)
    }

    /// Returns a message as the rules see it.
    pub(super) fn published<'c>(
        &self,
        content: &'c Content,
        journey: &'c Journey,
        sequence: SequenceNumber,
        now: Timestamp,
    ) -> PublishedMessage<'c> {
        let acceptance = self.acceptance(content, journey, sequence, now);
        PublishedMessage::accepted(content, journey.changes.as_ref(), acceptance)
    }

    fn acceptance(
        &self,
        content: &Content,
        journey: &Journey,
        sequence: SequenceNumber,
        now: Timestamp,
    ) -> Acceptance {
        Acceptance {
            sequence,
            enqueued_sequence: journey.first,
            enqueued_at: now,
            time_to_live_max: self.description.default_message_time_to_live,
            size: content.size(),
        }
    }

    /// Notes a message that is published, with the number of its copies.
    pub(super) fn note_sample(
        &self,
        (content, journey): (&Content, &Journey),
        sequence: SequenceNumber,
        copy_count: usize,
        now: Timestamp,
        step: &mut StepOutput,
    ) {
        if step.notes_samples {
            step.samples.push(SampledMessage {
                content: content.clone(),
                changes: journey.changes.clone(),
                acceptance: self.acceptance(content, journey, sequence, now),
                copy_count: u32::try_from(copy_count).unwrap_or(u32::MAX),
            });
        }
    }

    /// Refuses a message that would exceed the limit of copies over all its hops (FWD-33): a
    /// message from another entity stays there, a client's send is rejected.
    pub(super) fn refuse_copies(
        &self,
        plans: &[AdmissionPlan],
        journey: &Journey,
    ) -> Result<(), Rejection> {
        let counts = plans.iter().filter_map(|plan| match plan {
            AdmissionPlan::Publish(selection) => Some(selection.copies.len()),
            AdmissionPlan::Schedule(_) => None,
        });
        let (allowance, count) = (self.allowance(journey), counts.max().unwrap_or(0));
        if allowance.suffices(count) {
            return Ok(());
        }
        let copy_count_max = self.config.forwarding.copy_count_max;
        if journey.hops == 0 {
            return Err(Rejection::quota_exceeded(format!(
                "the message would become {count} copies in the subscriptions, more than the limit \
                 over all its hops, `message_copy_count_max`, of {copy_count_max}; let fewer \
                 subscriptions select it"
            )));
        }
        let left = allowance.left();
        Err(Rejection::new(
            Condition::MaxTransferCopiesExceeded,
            format!(
                "the message would become {count} copies in the subscriptions, but only {left} of \
                 at most {copy_count_max} over all its hops are left; let fewer subscriptions \
                 select it"
            ),
        ))
    }
}

impl Intake for Topic {
    fn quota(&self) -> Quota<'_> {
        let bytes_max = self.description.size_bytes_max();
        Quota { kind: "topic", path: self.path(), bytes_max }
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
        self.slots.get(sequence).is_some()
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

impl AdmissionPlan {
    /// Bytes that a message adds to the stored size: the content once per copy (TOP-10).
    pub(super) fn size_bytes(&self, message: &InboundMessage, journey: &Journey) -> u64 {
        let size = u64::from(message.envelope.size);
        match self {
            Self::Schedule(_) => size,
            Self::Publish(selection) => {
                let of_copies = selection.copies.iter().map(|copy| {
                    // The overlay of a copy has a record, and so has the reason of a refusal
                    // (SET-41).
                    let is_set = journey.changes.is_some() || copy.changed.is_some();
                    let records = u64::from(is_set) + u64::from(copy.refusal.is_some());
                    size + overlay_bytes(copy) + records * u64::from(OVERLAY_BYTES)
                });
                of_copies.sum()
            }
        }
    }

    /// Returns the copies of the message and their bytes.
    pub(super) fn staged(&self, journey: &Journey) -> StagedCopies {
        match self {
            Self::Schedule(_) => StagedCopies::default(),
            Self::Publish(selection) => StagedCopies::of(selection, journey),
        }
    }
}

/// Refuses messages that exceed an atomic step (TOP-07, QUO-07).
pub(super) fn refuse_large_step(staged: StagedCopies, ctx: &Ctx<'_>) -> Result<(), Rejection> {
    match staged.exceeded_limit(ctx.limits) {
        Some(exceeded) => Err(exceeded.rejection(ctx.limits)),
        None => Ok(()),
    }
}

/// Refuses messages whose rules were stopped at a limit, and messages with more copies than one
/// step may make.
pub(super) fn refuse_excess(plans: &[AdmissionPlan], ctx: &Ctx<'_>) -> Result<(), Rejection> {
    let limits = ctx.limits;
    let selections = plans.iter().filter_map(|plan| match plan {
        AdmissionPlan::Publish(selection) => Some(selection),
        AdmissionPlan::Schedule(_) => None,
    });
    let mut count = 0usize;
    for selection in selections {
        count = count.saturating_add(selection.copies.len());
        match selection.excess {
            Some(Excess::Steps) => {
                return Err(Rejection::quota_exceeded(format!(
                    "the rules of the topic take more than {} steps for the message, the limit \
                    `publish_step_count_max`; make patterns and properties shorter",
                    limits.publish_step_count_max
                )));
            }
            Some(Excess::Bytes) => return Err(ExceededLimit::Bytes.rejection(limits)),
            Some(Excess::Copies) => count = usize::MAX,
            None => {}
        }
    }
    if count > limits.publish_copy_count_max {
        return Err(ExceededLimit::Copies.rejection(limits));
    }
    Ok(())
}
