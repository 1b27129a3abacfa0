//! Copies of a published message in the subscriptions: their numbers and slots, and their need of
//! storage (TOP-05, EXP-07, FWD-33).

use std::sync::Arc;

use super::Topic;
use super::publish::Journey;
use crate::Ctx;
use crate::allowance::Allowance;
use crate::change::{DeadLetterCause, SubscriptionCopy};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::limits::Limits;
use crate::message::{Content, Envelope, HeaderSizes, IndexedOverlay, Overlay};
use crate::path::SubQueue;
use crate::rule::{Cause, Copy, Refusal, Selection};
use crate::slot::Slot;
use crate::time::{TimeSpan, Timestamp};

/// Bytes of the record of a copy in the store.
const COPY_RECORD_BYTES: u64 = 128;
/// Additional bytes for the reason of a refusal, if a rule fails or makes the header too large.
const REFUSAL_BYTES: u64 = 640;
/// Additional bytes for a copy in a session: a session id of maximum length, or the reason of its
/// absence.
const SESSION_TEXT_BYTES: u64 = 160;

/// Bytes of the records of `count` copies, `in_session_count` of which are in sessions.
pub(super) fn copies_bytes(count: usize, in_session_count: usize) -> u64 {
    let in_sessions = SESSION_TEXT_BYTES.saturating_mul(in_session_count as u64);
    COPY_RECORD_BYTES.saturating_mul(count as u64).saturating_add(in_sessions)
}

/// Properties that copies inherit from the published message, with all changes made on its way.
pub(super) struct InheritedProperties {
    time_to_live: Option<TimeSpan>,
    session: Option<Arc<str>>,
}

impl InheritedProperties {
    /// Returns the properties as the sender set them.
    pub(super) fn of_content(content: &Content) -> Self {
        let view = content.property_view();
        Self { time_to_live: view.time_to_live(), session: view.session_id().map(Arc::from) }
    }

    /// Returns the properties in the envelope of an arriving message.
    pub(super) fn of_envelope(envelope: &Envelope) -> Self {
        let session = envelope.session_id.as_deref().map(Arc::from);
        Self { time_to_live: envelope.time_to_live, session }
    }
}

impl Topic {
    /// Maximum bytes that the copies of a message need in the store in addition to its content
    /// and to properties set by rules. A subscription gets at most one copy more than it has
    /// actions, and at most one copy of all has the reason of a failed rule.
    pub(super) fn overhead_bytes(&self) -> u64 {
        let rules = self.matcher.sql_rule_count() + self.matcher.action_count();
        let refused = rules.min(self.subscriptions.len()) + self.matcher.action_count();
        let copies = self.subscriptions.len() + self.matcher.action_count();
        copies_bytes(copies, self.session_subscription_count)
            .saturating_add(REFUSAL_BYTES.saturating_mul(refused as u64))
    }

    /// Numbers the copies by subscription (TOP-05), and creates their slots.
    pub(super) fn copies(
        &self,
        (content, inherited): (&Content, &InheritedProperties),
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
        let mut before = EarlierOverlays::of(content, journey);
        for Copy { subscription: id, rule, changed, refusal } in selection.copies {
            let Some(subscription) = self.subscriptions.get(&id) else { continue };
            let previous = copies.last().filter(|last| last.subscription == id);
            let last = previous.map_or(subscription.last_sequence, |last| last.sequence);
            let (own, session, set) = match changed {
                Some(changed) => {
                    let session = changed.session_id.map(Arc::from);
                    (changed.time_to_live, session, Some(changed.overlay))
                }
                None => (inherited.time_to_live, inherited.session.clone(), None),
            };
            let changes = before.with(set.as_ref());
            let settings = subscription.settings;
            let ceiling = settings
                .default_message_time_to_live
                .min(self.description.default_message_time_to_live);
            let mut slot = Slot {
                // The shortest of the three, from the enqueueing in the subscription (EXP-07).
                expires_at: own.map_or(Timestamp::NEVER, |own| ctx.now.plus(own.min(ceiling))),
                enqueued_sequence: first,
                hops: journey.hops,
                marks: journey.marks,
                // Marks a copy that goes on; `divide_allowance` below sets the number.
                copies_spent: u16::from(settings.forwards),
                ..Slot::arriving(ctx.now, content.size(), content.header_size())
            };
            slot.add_overlay(changes.as_ref());
            // The rule that changed the copy has checked its own properties.
            let refusal = refusal.or_else(|| {
                let changes = changes.as_ref().filter(|_| journey.changes.is_some())?;
                before.header_refusal((set.as_ref(), changes), &slot, ctx)
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
                rule,
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

    /// Divides the remaining allowance among the copies (FWD-33). On entry, `copies_spent` of a
    /// copy is only a mark: 1 if the copy goes on, 0 if it stays. On return, it is the number of
    /// copies spent.
    fn divide_allowance(&self, copies: &mut [SubscriptionCopy], journey: &Journey) {
        let going_on = copies.iter().filter(|copy| copy.slot.copies_spent > 0).count();
        let shares = self.allowance(journey).divide(going_on, copies.len() - going_on);
        for copy in copies {
            let goes_on = copy.slot.copies_spent > 0;
            copy.slot.copies_spent = if goes_on { shares.going_on } else { shares.staying };
        }
    }

    pub(super) fn allowance(&self, journey: &Journey) -> Allowance {
        Allowance::of(self.config.forwarding.copy_count_max, journey.copies_spent)
    }

    /// Whether the message's remaining allowance of copies suffices for all these (FWD-33).
    pub(super) fn has_allowance_for(&self, selection: &Selection, journey: &Journey) -> bool {
        self.allowance(journey).suffices(selection.copies.len())
    }
}

/// Bytes that the copies of a message need in the store in addition to its content. `set_bytes`
/// were set on the message before, and are written for each copy.
pub(super) fn staged_bytes(selection: &Selection, set_bytes: u64, may_be_in_sessions: bool) -> u64 {
    let count = selection.copies.len();
    let records = copies_bytes(count, if may_be_in_sessions { count } else { 0 });
    let set = set_bytes.saturating_mul(count as u64);
    records.saturating_add(set).saturating_add(selection.copies.iter().map(overlay_bytes).sum())
}

/// Copies of some messages in one atomic step.
#[derive(Clone, Copy, Default)]
pub(super) struct StagedCopies {
    copy_count: usize,
    /// Bytes in the store in addition to the contents.
    bytes: u64,
}

/// Limit of an atomic step that is exceeded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    Copies,
    Bytes,
}

impl StagedCopies {
    /// Returns the copies of a message.
    pub(super) fn of(selection: &Selection, journey: &Journey) -> Self {
        Self {
            copy_count: selection.copies.len(),
            bytes: staged_bytes(selection, journey.set_bytes(), false),
        }
    }

    /// Returns the sum of both.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            copy_count: self.copy_count.saturating_add(other.copy_count),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub(super) const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Returns the limit that is exceeded, if any.
    pub(super) const fn exceeded_limit(self, limits: &Limits) -> Option<ExceededLimit> {
        if self.copy_count > limits.publish_copy_count_max {
            return Some(ExceededLimit::Copies);
        }
        if self.bytes > limits.atomic_bytes_max {
            return Some(ExceededLimit::Bytes);
        }
        None
    }
}

impl ExceededLimit {
    /// Returns the rejection, which names the limit: the sender did not cause it, but the rules of
    /// the topic.
    pub(super) fn rejection(self, limits: &Limits) -> Rejection {
        Rejection::quota_exceeded(match self {
            Self::Copies => format!(
                "the publish would become more than {} copies in the subscriptions at once, the \
                 limit `publish_copy_count_max`; send fewer messages at a time",
                limits.publish_copy_count_max
            ),
            Self::Bytes => format!(
                "the copies would need more than {} bytes in addition to the contents, the limit for an atomic step, `atomic_bytes_max`; send fewer messages at a time",
                limits.atomic_bytes_max
            ),
        })
    }
}

pub(super) fn overlay_bytes(copy: &Copy) -> u64 {
    let changed = copy.changed.as_ref().map_or(0, |changed| changed.overlay.size_bytes());
    let verdict = copy.refusal.as_ref().and_then(|refusal| refusal.overlay());
    u64::from(changed) + u64::from(verdict.map_or(0, |verdict| verdict.size_bytes()))
}

/// Shared state of all copies of a message with earlier overlays. The merge of overlays and the
/// measurement of the header are prepared for the first copy that needs them, and reused for
/// thousands.
struct EarlierOverlays<'m> {
    content: &'m Content,
    set: Option<&'m Overlay>,
    beneath: Option<IndexedOverlay<'m>>,
    measurement: Option<HeaderMeasurement>,
}

/// Size of the header with the earlier overlays.
struct HeaderMeasurement {
    /// `None` if no message can have these properties.
    sizes: Option<HeaderSizes>,
    /// The entity where it was dead-lettered is not a property of the message, so it counts in
    /// full.
    source_bytes: u32,
}

impl<'m> EarlierOverlays<'m> {
    const fn of(content: &'m Content, journey: &'m Journey) -> Self {
        Self { content, set: journey.changes.as_ref(), beneath: None, measurement: None }
    }

    /// Returns all overlays of a copy as one, with `set` from a rule on top.
    fn with(&mut self, set: Option<&Overlay>) -> Option<Overlay> {
        let (Some(set), Some(before)) = (set, self.set) else {
            return set.or(self.set).cloned();
        };
        Some(self.beneath.get_or_insert_with(|| before.indexed()).combined_with(set))
    }

    /// DLQ-20: the overlays of a transfer may make the header too large. As in a queue, the header
    /// fits if the sum of all overlays fits; only otherwise the real size is computed.
    fn header_refusal(
        &mut self,
        (set, all): (Option<&Overlay>, &Overlay),
        slot: &Slot,
        ctx: &Ctx<'_>,
    ) -> Option<Box<Refusal>> {
        let bytes_max = ctx.limits.header_bytes_max;
        if u64::from(slot.header_size) <= bytes_max {
            return None;
        }
        let (content, before) = (self.content, self.set);
        let HeaderMeasurement { sizes, source_bytes } = self.measurement.get_or_insert_with(|| {
            let source =
                Overlay::dead_letter_source_of(before.into_iter()).map(Overlay::dead_letter_source);
            let source_bytes = source.map_or(0, |source| source.size_bytes());
            HeaderMeasurement { sizes: content.header_sizes(before), source_bytes }
        });
        let bytes = match (sizes, set) {
            (Some(sizes), Some(set)) => sizes.with(set),
            (Some(sizes), None) => sizes.plain(),
            (None, _) => content.header_size().saturating_add(all.size_bytes()),
        };
        Refusal::of_header(u64::from(bytes.saturating_add(*source_bytes)), bytes_max)
    }
}

const fn cause(cause: Cause) -> DeadLetterCause {
    match cause {
        Cause::Filter | Cause::Action => DeadLetterCause::Rule,
        Cause::HeaderSize => DeadLetterCause::HeaderSize,
        Cause::NoSession => DeadLetterCause::NoSession,
    }
}
