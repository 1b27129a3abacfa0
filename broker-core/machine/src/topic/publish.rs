//! Publish: the checks of SND-19, then a number, and a copy for each subscription that selects the
//! message (TOP-01 to TOP-10).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Topic;
use crate::allowance::Allowance;
use crate::change::{
    Change, DeadLetterCause, Durability, PublishedContent, SubscriptionCopy, TopicChange,
};
use crate::command::{InboundMessage, Outcome};
use crate::condition::Condition;
use crate::description::EntityStatus;
use crate::duplicate_history::DuplicateHistory;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::intake::{Intake, Quota};
use crate::message::{Content, Overlay};
use crate::path::SubQueue;
use crate::peers::Peers;
use crate::rule::{Cause, Copy, Excess, Facts, Published, Refusal, Selection};
use crate::slot::{Marks, Slot, SlotState};
use crate::time::{TimeSpan, Timestamp};
use crate::{Ctx, Step, intake};

/// What the record of one copy needs in the store.
const COPY_RECORD_BYTES: u64 = 128;
/// What it says of why it is a dead letter, if a rule fails or makes it too large.
const REFUSAL_BYTES: u64 = 640;
/// What it needs in addition in a session: an id of as many letters as it may have, or why it has none.
const SESSION_TEXT_BYTES: u64 = 160;

/// What a message has behind it that comes from another entity; nothing for one that a client sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Journey {
    /// Transfers so far; the way to the subscriptions is none (FWD-13).
    pub(super) hops: u8,
    /// Of the copies that one message may become, those that are not its own to make any more (FWD-33).
    pub(super) copies_spent: u16,
    /// The number it was first given, 0 if that is the topic's (MSG-15).
    pub(super) first: SequenceNumber,
    /// What was set on it since it was sent, and where it was dead-lettered (FWD-26).
    pub(super) changes: Option<Overlay>,
    /// Whether it is never a duplicate (DUP-14), as its envelope says; for its copies.
    pub(super) marks: Marks,
}

/// What is to become of an admitted message.
pub(super) enum Plan {
    /// It waits for its instant.
    Schedule(Timestamp),
    /// It is published now.
    Publish(Selection),
}

/// What the records of so many copies need in the store, of which so many are in sessions.
pub(super) fn copies_bytes(count: usize, in_session_count: usize) -> u64 {
    let in_sessions = SESSION_TEXT_BYTES.saturating_mul(in_session_count as u64);
    COPY_RECORD_BYTES.saturating_mul(count as u64).saturating_add(in_sessions)
}

impl Topic {
    /// What the copies of one message may need in the store beside its content, and beside what rules set on them. A
    /// subscription gets one more than it has actions, and one of all says which rule has failed.
    pub(super) fn overhead_bytes(&self) -> u64 {
        let rules = self.matcher.sql_rule_count() + self.matcher.action_count();
        let refused = rules.min(self.subscriptions.len()) + self.matcher.action_count();
        let copies = self.subscriptions.len() + self.matcher.action_count();
        copies_bytes(copies, self.session_subscription_count)
            .saturating_add(REFUSAL_BYTES.saturating_mul(refused as u64))
    }

    /// Publishes one message, now or at its scheduled instant.
    pub(super) fn send(
        &mut self,
        message: InboundMessage,
        ctx: &mut Ctx<'_>,
        step: &mut Step,
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
        step: &mut Step,
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

    /// The checks for a message that is one of a list, each by itself; `bytes_added` is what those before
    /// it have added.
    pub(super) fn admit_one(
        &self,
        message: &InboundMessage,
        journey: &Journey,
        bytes_added: u64,
        ctx: &mut Ctx<'_>,
    ) -> Result<Plan, Rejection> {
        let plan = self.admit_after(std::slice::from_ref(message), journey, ctx)?.pop();
        let Some(plan) = plan else { return Err(Rejection::internal("the message has no plan")) };
        self.refuse_over_quota(bytes_added.saturating_add(plan.size_bytes(message)), ctx)?;
        Ok(plan)
    }

    /// The checks of a batch, an empty one too (SND-30, SND-34).
    pub(super) fn admit_batch(
        &self,
        messages: &[InboundMessage],
        ctx: &mut Ctx<'_>,
    ) -> Result<Vec<Plan>, Rejection> {
        self.refuse_status()?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        intake::check_batch_size(messages, ctx)?;
        let plans = self.admit(messages, ctx)?;
        intake::check_atomic_size(messages, ctx)?;
        Ok(plans)
    }

    /// The checks of SND-19 that are the topic's; each covers all messages before the next begins. The
    /// quota needs to know the copies (TOP-10), so this finds them.
    pub(super) fn admit(
        &self,
        messages: &[InboundMessage],
        ctx: &mut Ctx<'_>,
    ) -> Result<Vec<Plan>, Rejection> {
        self.admit_after(messages, &Journey::default(), ctx)
    }

    /// The same for messages that have the same behind them.
    fn admit_after(
        &self,
        messages: &[InboundMessage],
        journey: &Journey,
        ctx: &mut Ctx<'_>,
    ) -> Result<Vec<Plan>, Rejection> {
        self.refuse_status()?;
        intake::check_messages(messages, self.description.message_bytes_max())?;
        intake::refuse_without_room(ctx)?;
        let mut plans = Vec::with_capacity(messages.len());
        let mut sequence = self.last_sequence;
        let (mut total, mut changed) = (0u64, 0u64);
        let mut ids = BTreeSet::new();
        for message in messages {
            let plan = self.plan(message, journey, sequence.next(), ctx);
            total = total.saturating_add(plan.size_bytes(message));
            changed = changed.saturating_add(plan.record_bytes());
            if self.is_new(message, &mut ids, ctx.now) {
                sequence = sequence.next();
            }
            plans.push(plan);
        }
        refuse_excess(&plans, ctx)?;
        self.refuse_copies(&plans, journey)?;
        self.refuse_over_quota(total, ctx)?;
        if changed > ctx.limits.atomic_bytes_max {
            return Err(Rejection::quota_exceeded(format!(
                "the copies would need {changed} bytes beside the contents, the limit for one \
                 atomic step is {}",
                ctx.limits.atomic_bytes_max
            )));
        }
        self.refuse_beyond_broker(messages, &plans, ctx)?;
        self.refuse_full_history(messages, ctx)?;
        Ok(plans)
    }

    /// Refuses what the broker keeps as many of as it may. Whether the sessions of copies are new, only their
    /// subscriptions know: at the bound none is taken.
    pub(super) fn refuse_beyond_broker(
        &self,
        messages: &[InboundMessage],
        plans: &[Plan],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let counts = plans.iter().map(|plan| match plan {
            Plan::Publish(selection) => selection.copies.len(),
            Plan::Schedule(_) => 1,
        });
        intake::refuse_too_many_messages(counts.sum(), ctx)?;
        intake::refuse_too_many_delayed(messages, ctx)?;
        let is_in_session = || {
            let has_sessions =
                |subscription: &super::Subscription| subscription.settings.rules.requires_session;
            self.subscriptions.values().any(has_sessions)
                && messages.iter().any(|message| message.envelope.session_id.is_some())
        };
        if ctx.left.sessions < messages.len() as u64 && is_in_session() {
            return Err(intake::too_many_sessions(ctx));
        }
        Ok(())
    }

    /// What is to become of a message.
    pub(super) fn plan(
        &self,
        message: &InboundMessage,
        journey: &Journey,
        sequence: SequenceNumber,
        ctx: &mut Ctx<'_>,
    ) -> Plan {
        match message.envelope.scheduled_enqueue_time.filter(|at| *at > ctx.now) {
            Some(at) => Plan::Schedule(at),
            None => Plan::Publish(self.select(&message.content, journey, sequence, ctx)),
        }
    }

    /// Whether a message of a batch gets a number of its own, so that its rules can see it (SQL-09).
    fn is_new(&self, message: &InboundMessage, ids: &mut BTreeSet<u128>, now: Timestamp) -> bool {
        let (Some(_), Some(id_hash)) = (&self.duplicates, message.envelope.message_id_hash) else {
            return true;
        };
        self.find_duplicate(Some(id_hash), now).is_none() && ids.insert(id_hash)
    }

    /// The copies of a message that is enqueued now.
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

    /// A message as the rules see it.
    pub(super) fn published<'c>(
        &self,
        content: &'c Content,
        journey: &'c Journey,
        sequence: SequenceNumber,
        now: Timestamp,
    ) -> Published<'c> {
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
        Published::new(view, facts)
    }

    /// Gives an admitted message its number and its copies, or drops it as a duplicate and returns 0, or for
    /// one that is to be scheduled the number of the scheduled message that it repeats (DUP-02, DUP-12).
    pub(super) fn accept(
        &mut self,
        message: InboundMessage,
        plan: Plan,
        mut journey: Journey,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> SequenceNumber {
        let InboundMessage { content, envelope } = message;
        journey.marks = Marks::never_duplicate(envelope.never_duplicate());
        if let Some(kept) = self.find_duplicate(envelope.message_id_hash, ctx.now) {
            return DuplicateHistory::told(&envelope, kept);
        }
        let sequence = self.last_sequence.next();
        let scheduled = matches!(plan, Plan::Schedule(_)).then_some(sequence);
        match plan {
            Plan::Schedule(at) => {
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
            Plan::Publish(selection) => {
                let copies = self.copies(&content, sequence, selection, &journey, ctx);
                self.publish(sequence, PublishedContent::New(content), copies, ctx, step);
            }
        }
        self.remember_id(envelope.message_id_hash, scheduled, ctx, step);
        sequence
    }

    /// Makes the one change that a publish is.
    pub(super) fn publish(
        &mut self,
        sequence: SequenceNumber,
        content: PublishedContent,
        copies: Vec<SubscriptionCopy>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) {
        step.bytes_added += copies.iter().map(|copy| u64::from(copy.slot.size)).sum::<u64>();
        let change = TopicChange::Published { sequence, content, copies };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
    }

    /// Numbers the copies, subscription by subscription (TOP-05), and gives each its slot.
    pub(super) fn copies(
        &self,
        content: &Content,
        sequence: SequenceNumber,
        selection: Selection,
        journey: &Journey,
        ctx: &Ctx<'_>,
    ) -> Vec<SubscriptionCopy> {
        let first = if journey.first.0 == 0 { sequence } else { journey.first };
        let mut copies: Vec<SubscriptionCopy> = Vec::with_capacity(selection.copies.len());
        if selection.copies.is_empty() {
            return copies;
        }
        let view = content.property_view();
        let own_session: Option<Arc<str>> = view.session_id().map(Arc::from);
        for Copy { subscription: id, changed, refusal } in selection.copies {
            let Some(subscription) = self.subscriptions.get(&id) else { continue };
            let before = copies.last().filter(|last| last.subscription == id);
            let last = before.map_or(subscription.last_sequence, |last| last.sequence);
            let (own, session, changes) = match changed {
                Some(changed) => {
                    let session = changed.session_id.map(Arc::from);
                    (changed.time_to_live, session, Some(changed.overlay))
                }
                None => (view.time_to_live(), own_session.clone(), None),
            };
            let changes = match (changes, &journey.changes) {
                (Some(changes), Some(source)) => Some(changes.on_top_of(source)),
                (changes, source) => changes.or_else(|| source.clone()),
            };
            let settings = subscription.settings;
            let ceiling = settings
                .default_message_time_to_live
                .min(self.description.default_message_time_to_live);
            let mut slot = Slot {
                // The lowest of the three counts, from enqueueing in the subscription (EXP-07).
                expires_at: own.map_or(Timestamp::NEVER, |own| ctx.now.plus(own.min(ceiling))),
                enqueued_sequence: first,
                hops: journey.hops,
                marks: journey.marks,
                copies_spent: u16::from(settings.forwards),
                ..Slot::arriving(ctx.now, content.size(), content.header_size())
            };
            slot.add_overlay(changes.as_ref());
            // What a rule adds was judged with it.
            let refusal = refusal.or_else(|| match &journey.changes {
                Some(_) => header_refusal(content, changes.as_ref(), &slot, ctx),
                None => None,
            });
            let mut verdict: Option<Overlay> = None;
            if let Some(refusal) = &refusal {
                slot.sub_queue = SubQueue::DeadLetter;
                verdict = refusal.overlay();
            }
            slot.add_overlay(verdict.as_ref());
            let in_session = settings.rules.requires_session && refusal.is_none();
            copies.push(SubscriptionCopy {
                subscription: id,
                sequence: last.next(),
                slot,
                session: session.filter(|_| in_session),
                overlays: [changes, verdict],
                refused: refusal.map(|refusal| cause(refusal.cause)),
            });
        }
        self.divide_allowance(&mut copies, journey);
        copies
    }

    /// Leaves each copy its part of the copies that may still be made (FWD-33). Those that go on are marked
    /// with a 1.
    fn divide_allowance(&self, copies: &mut [SubscriptionCopy], journey: &Journey) {
        let going_on = copies.iter().filter(|copy| copy.slot.copies_spent > 0).count();
        let shares = self.allowance(journey).divide(going_on, copies.len() - going_on);
        for copy in copies {
            let goes_on = copy.slot.copies_spent > 0;
            copy.slot.copies_spent = if goes_on { shares.going_on } else { shares.resting };
        }
    }

    fn allowance(&self, journey: &Journey) -> Allowance {
        Allowance::of(self.config.forwarding.copy_count_max, journey.copies_spent)
    }

    /// Whether a message may become all these copies.
    pub(super) fn may_become(&self, selection: &Selection, journey: &Journey) -> bool {
        self.allowance(journey).suffices(selection.copies.len())
    }

    /// Refuses a message that would become more copies than it may over all its hops (FWD-33): one that comes
    /// from another entity, so that it rests there, and one that a client sends.
    pub(super) fn refuse_copies(&self, plans: &[Plan], journey: &Journey) -> Result<(), Rejection> {
        let counts = plans.iter().filter_map(|plan| match plan {
            Plan::Publish(selection) => Some(selection.copies.len()),
            Plan::Schedule(_) => None,
        });
        let (allowance, count) = (self.allowance(journey), counts.max().unwrap_or(0));
        if allowance.suffices(count) {
            return Ok(());
        }
        let copy_count_max = self.config.forwarding.copy_count_max;
        if journey.hops == 0 {
            return Err(Rejection::quota_exceeded(format!(
                "the message would become {count} copies in the subscriptions, the limit over all its \
                 hops, `message_copy_count_max`, is {copy_count_max}"
            )));
        }
        let left = allowance.left();
        Err(Rejection::new(
            Condition::MaxTransferCopiesExceeded,
            format!(
                "it would become {count} copies in the subscriptions, and {left} are left to it of the \
                 {copy_count_max} that one message becomes at most over all its hops"
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
        self.is_waiting(sequence)
    }

    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn note(&mut self, change: Change, durability: Durability, ctx: &Ctx<'_>, step: &mut Step) {
        self.change(change, durability, ctx, step);
    }
}

impl Journey {
    /// The entity in which it was dead-lettered (FWD-26).
    fn dead_letter_source(&self) -> Option<&str> {
        Overlay::source_of(self.changes.iter())
    }
}

impl Plan {
    /// What a message adds to the stored size: one content per copy (TOP-10).
    pub(super) fn size_bytes(&self, message: &InboundMessage) -> u64 {
        let size = u64::from(message.envelope.size);
        match self {
            Self::Schedule(_) => size,
            Self::Publish(selection) => {
                selection.copies.iter().map(|copy| size + overlay_bytes(copy)).sum()
            }
        }
    }

    /// What its copies need in the store beside the content.
    fn record_bytes(&self) -> u64 {
        match self {
            Self::Schedule(_) => 0,
            Self::Publish(selection) => staged_bytes(selection, false),
        }
    }
}

/// What the copies of one message need in the store beside its content.
pub(super) fn staged_bytes(selection: &Selection, may_be_in_sessions: bool) -> u64 {
    let count = selection.copies.len();
    let records = copies_bytes(count, if may_be_in_sessions { count } else { 0 });
    records.saturating_add(selection.copies.iter().map(overlay_bytes).sum())
}

/// Refuses what would be too much for one atomic step: what no rule may cause is nobody's fault who sends,
/// so the error names the limit.
pub(super) fn refuse_excess(plans: &[Plan], ctx: &Ctx<'_>) -> Result<(), Rejection> {
    let limits = ctx.limits;
    let selections = plans.iter().filter_map(|plan| match plan {
        Plan::Publish(selection) => Some(selection),
        Plan::Schedule(_) => None,
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
            Some(Excess::Bytes) => {
                return Err(Rejection::quota_exceeded(format!(
                    "the changes of the copies need more than {} bytes beside the content, the limit \
                     for one atomic step, `atomic_bytes_max`",
                    limits.atomic_bytes_max
                )));
            }
            Some(Excess::Copies) => count = usize::MAX,
            None => {}
        }
    }
    if count > limits.publish_copy_count_max {
        return Err(Rejection::quota_exceeded(format!(
            "this would become more than {} copies in the subscriptions at once, the limit \
             `publish_copy_count_max`; send fewer messages at a time",
            limits.publish_copy_count_max
        )));
    }
    Ok(())
}

fn overlay_bytes(copy: &Copy) -> u64 {
    let changed = copy.changed.as_ref().map_or(0, |changed| changed.overlay.size_bytes());
    let verdict = copy.refusal.as_ref().and_then(|refusal| refusal.overlay());
    u64::from(changed) + u64::from(verdict.map_or(0, |verdict| verdict.size_bytes()))
}

/// DLQ-20: what a transfer brings may make a header too large. It fits if all that was ever set fits beside
/// it, as in a queue; what it has really become is only then looked at.
fn header_refusal(
    content: &Content,
    changes: Option<&Overlay>,
    slot: &Slot,
    ctx: &Ctx<'_>,
) -> Option<Box<Refusal>> {
    let bytes_max = ctx.limits.header_bytes_max;
    let changes = changes.filter(|_| u64::from(slot.header_size) > bytes_max)?;
    // Where it was dead-lettered is no property of the message, and counts in full.
    let source = Overlay::source_of([changes].into_iter()).map(Overlay::dead_letter_source);
    let source_bytes = source.map_or(0, |source| source.size_bytes());
    let bytes = content.header_size_with(changes).saturating_add(source_bytes);
    Refusal::of_header(u64::from(bytes), bytes_max)
}

const fn cause(cause: Cause) -> DeadLetterCause {
    match cause {
        Cause::Filter | Cause::Action => DeadLetterCause::Rule,
        Cause::HeaderSize => DeadLetterCause::HeaderSize,
        Cause::NoSession => DeadLetterCause::NoSession,
    }
}
