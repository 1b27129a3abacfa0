//! Admission of messages to a topic: its checks of SND-19, and the copies that each message would
//! become, since the quota counts them (TOP-10).

use std::collections::BTreeSet;

use super::Topic;
use super::copies::{ExceededLimit, StagedCopies, overlay_bytes};
use super::publish::Journey;
use crate::change::{Change, Durability};
use crate::command::InboundMessage;
use crate::condition::Condition;
use crate::description::EntityStatus;
use crate::duplicate_history::DuplicateHistory;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::{Intake, Quota};
use crate::limits::OVERLAY_BYTES;
use crate::message::Content;
use crate::peers::Peers;
use crate::rule::{Excess, Facts, PublishedMessage, Selection};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, StepOutput, intake};

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
        let view = content.property_view();
        let view = match &journey.changes {
            Some(changes) => view.with(changes),
            None => view,
        };
        let time_to_live =
            view.time_to_live().map(|own| own.min(self.description.default_message_time_to_live));
        let facts = Facts {
            sequence,
            enqueued_sequence: journey.first,
            enqueued_at: now,
            expires_at: time_to_live.map(|own| now.plus(own)),
            time_to_live,
            size: u64::from(content.size()),
            dead_letter_source: journey.dead_letter_source(),
        };
        PublishedMessage::new(view, facts)
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
