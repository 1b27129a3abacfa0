//! Judging: selects the copies that a published message becomes, at once or in slices (TOP-01 to
//! TOP-06).
//!
//! ```text
//!  begin ──► true filters ──► correlation filters ──► SQL filters ──► copies, subscription by subscription
//!             ▲                       └──────────── a slice may end after any of them ─────────────┤
//!             └──────── again with the rules of catch-alls, if no subscription selects the message ┘
//! ```
//!
//! Topics call it. Judging alters no state, so interruptions do not change the result, provided the
//! rules stay the same: the topic must run no command in between. The result is applied as one
//! change.

use std::ops::Bound;

use smallvec::SmallVec;

use super::action::{self, CopyChanges};
use super::correlation::{
    CorrelationFilter, Property, ValuesHash, condition_steps, refuse_too_many_steps,
};
use super::matcher::{
    Group, Matcher, PlacedRule, Round, RulePlace, Subscription, SubscriptionSettings,
};
use super::properties::PublishedMessage;
use super::selection::{Cause, Copy, Excess, Refusal, Selection, WorkCounts};
use super::sql::{EvaluationError, Observer, Operand, Random, Statement};
use super::{CompiledFilter, Rule};
use crate::error::Quoted;
use crate::ids::EntityId;
use crate::limits::Limits;
use crate::message::{Content, HeaderSizes};

/// Steps of a match, without its evaluation.
const MATCH_STEPS: u64 = 32;
/// Maximum number of bytes by which changes enlarge a header beyond the size of their overlay:
/// starts of sections, null fields before others, longer names of annotations.
const SECTIONS_BYTES: u64 = 512;

/// The state of judging a message, between slices.
pub struct RuleEvaluation {
    round: Round,
    stage: Stage,
    hits: SmallVec<[Hit; 16]>,
    copies: Vec<Copy>,
    selected_by: Option<EntityId>,
    counted: WorkCounts,
    /// Bytes that the changes of the copies need in the store.
    changed_bytes: u64,
    /// The subscription whose hits are being evaluated.
    open: Option<OpenSubscription>,
    steps: u64,
    excess: Option<Excess>,
}

/// The next step.
enum Stage {
    Always,
    Correlation(LookupProgress),
    /// SQL filters after this rule.
    Sql(Option<(EntityId, RulePlace)>),
    /// Copies from this hit on.
    Copies(usize),
    Done,
}

/// Position in the look-ups of correlation filters. A slice may end between any two properties, and
/// between any two conditions of a rule.
#[derive(Default)]
struct LookupProgress {
    /// The current group, or the last finished one.
    group: Option<Box<[Property]>>,
    progress: GroupProgress,
}

/// Position in the look-ups of a group.
#[derive(Default)]
enum GroupProgress {
    /// `found` properties are present, and their values have this hash.
    Values { found: usize, hash: ValuesHash },
    /// The rules for values of this hash are compared up to `after`, and `held` conditions of the
    /// next one hold.
    Rules { hash: u64, after: Option<RulePlace>, held: usize },
    /// All rules of the group fail, because they take too many steps. The rules up to `after` are
    /// recorded.
    Failing { after: Option<(u64, RulePlace)>, error: EvaluationError },
    #[default]
    Done,
}

/// A rule that selects the message, or whose filter fails.
struct Hit {
    subscription: EntityId,
    place: RulePlace,
    failure: Option<EvaluationError>,
}

/// The effects of the rules of a subscription on the message.
struct OpenSubscription {
    subscription: EntityId,
    settings: SubscriptionSettings,
    /// Position after its last hit.
    end: usize,
    /// The first rule without action that selects the message.
    plain: Option<RulePlace>,
    changed: SmallVec<[(RulePlace, CopyChanges); 2]>,
    failed: Option<(RulePlace, Refusal)>,
}

impl OpenSubscription {
    /// Whether a rule selects the message.
    fn selects(&self) -> bool {
        self.plain.is_some() || !self.changed.is_empty()
    }
}

/// A message with all inputs of judging it.
pub struct EvaluatedMessage<'m, 'a> {
    /// The content.
    pub content: &'m Content,
    /// The properties that rules can read.
    pub published: &'m PublishedMessage<'a>,
    /// The limits in force.
    pub limits: &'m Limits,
}

/// Counts the steps of an evaluation.
struct Meter<'s>(&'s mut u64);

impl Observer for Meter<'_> {
    fn count_steps(&mut self, steps: u64) {
        *self.0 = self.0.saturating_add(steps);
    }
}

impl Default for RuleEvaluation {
    fn default() -> Self {
        Self {
            round: Round::Ordinary,
            stage: Stage::Always,
            hits: SmallVec::new(),
            copies: Vec::new(),
            selected_by: None,
            counted: WorkCounts::default(),
            changed_bytes: 0,
            open: None,
            steps: 0,
            excess: None,
        }
    }
}

impl RuleEvaluation {
    /// Number of steps taken.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes of the changes that rules have made.
    #[must_use]
    pub const fn changed_bytes(&self) -> u64 {
        self.changed_bytes
    }

    /// The result. Complete only after [`Matcher::advance`] returned true.
    #[must_use]
    pub fn into_selection(self) -> Selection {
        let Self { copies, selected_by, counted, excess, .. } = self;
        Selection { copies, selected_by, counted, excess }
    }

    fn exceed(&mut self, excess: Excess) {
        self.excess = Some(excess);
        self.stage = Stage::Done;
    }
}

impl Rule {
    /// The factor by which the steps of a publish grow with the size of the properties: an
    /// estimate, on the high side.
    pub(super) fn weight(&self) -> u64 {
        let filter = match &self.filter {
            CompiledFilter::Always | CompiledFilter::Never => 1,
            // Each property is looked up and then compared.
            CompiledFilter::Correlation => {
                2 * self.correlation().map_or(0, CorrelationFilter::len) as u64
            }
            CompiledFilter::Sql(program) => program.weight(),
        };
        let statements = self.action.as_deref().unwrap_or_default();
        filter.saturating_add(action_weight(statements))
    }
}

/// Each statement may search the changes of all earlier ones.
fn action_weight(statements: &[Statement]) -> u64 {
    let programs = statements.iter().filter_map(|statement| statement.expression.as_ref());
    let weight = programs.fold(1u64, |sum, program| sum.saturating_add(program.weight()));
    weight.saturating_mul(statements.len() as u64)
}

impl Matcher {
    /// The copies that a message becomes. The sender never gets an error from rules (DLQ-27).
    #[must_use]
    pub fn publish(
        &self,
        content: &Content,
        published: &PublishedMessage<'_>,
        limits: &Limits,
        random: &mut Random<'_>,
    ) -> Selection {
        let mut judging = RuleEvaluation::default();
        self.advance(
            &mut judging,
            &EvaluatedMessage { content, published, limits },
            u64::MAX,
            random,
        );
        judging.into_selection()
    }

    /// Upper bound on the steps of publishing a message with `property_bytes` of properties, about.
    #[must_use]
    pub fn predicted_steps(&self, property_bytes: u64) -> u64 {
        // The constant covers the texts of the rules.
        self.weight().saturating_mul(property_bytes.saturating_add(1_024))
    }

    /// Continues for about `steps` steps, and returns whether judging is complete.
    pub fn advance(
        &self,
        judging: &mut RuleEvaluation,
        message: &EvaluatedMessage<'_, '_>,
        steps: u64,
        random: &mut Random<'_>,
    ) -> bool {
        let until = judging.steps.saturating_add(steps);
        loop {
            match &judging.stage {
                Stage::Always => {
                    let always = self
                        .index(judging.round)
                        .always()
                        .map(|(subscription, place)| Hit { subscription, place, failure: None });
                    judging.hits.extend(always);
                    judging.stage = Stage::Correlation(LookupProgress::default());
                }
                Stage::Correlation(_) => self.correlate(judging, message.published, until),
                Stage::Sql(_) => self.evaluate(judging, message.published, until, random),
                Stage::Copies(from) => {
                    let from = *from;
                    self.copy(judging, message, from, until, random);
                }
                Stage::Done => return true,
            }
            if judging.steps > message.limits.publish_step_count_max {
                judging.exceed(Excess::Steps);
            }
            if judging.steps >= until && !matches!(judging.stage, Stage::Done) {
                return false;
            }
        }
    }

    /// TOP-23: one look-up for each set of properties that filters constrain.
    fn correlate(
        &self,
        judging: &mut RuleEvaluation,
        published: &PublishedMessage<'_>,
        until: u64,
    ) {
        let Stage::Correlation(lookup) = &mut judging.stage else { return };
        let LookupProgress { group, mut progress } = std::mem::take(lookup);
        let from = match (&group, &progress) {
            (None, _) => Bound::Unbounded,
            (Some(group), GroupProgress::Done) => Bound::Excluded(group),
            (Some(group), _) => Bound::Included(group),
        };
        let groups = self.index(judging.round).correlation();
        for (properties, group) in
            groups.range::<Box<[Property]>, _>((from, Bound::<&Box<[Property]>>::Unbounded))
        {
            if matches!(progress, GroupProgress::Done) {
                progress = match refuse_too_many_steps(properties.len(), published) {
                    Ok(()) => GroupProgress::Values { found: 0, hash: ValuesHash::new() },
                    Err(error) => GroupProgress::Failing { after: None, error },
                };
            }
            progress = self.look_up(judging, progress, (properties, group), published, until);
            if judging.steps >= until {
                let group = Some(properties.clone());
                judging.stage = Stage::Correlation(LookupProgress { group, progress });
                return;
            }
        }
        judging.stage = Stage::Sql(None);
    }

    /// Continues with a group until it is finished or no steps are left.
    fn look_up(
        &self,
        judging: &mut RuleEvaluation,
        mut progress: GroupProgress,
        (properties, group): (&[Property], &Group),
        published: &PublishedMessage<'_>,
        until: u64,
    ) -> GroupProgress {
        let each = condition_steps(published);
        if let GroupProgress::Values { mut found, mut hash } = progress {
            while let Some(property) = properties.get(found) {
                if judging.steps >= until {
                    return GroupProgress::Values { found, hash };
                }
                judging.steps = judging.steps.saturating_add(each);
                let value = property.of(published);
                // An absent property never matches (TOP-21).
                if value == Operand::Unknown {
                    return GroupProgress::Done;
                }
                judging.steps = judging.steps.saturating_add(value.length());
                hash.add(&value);
                found += 1;
            }
            judging.counted.lookups += 1;
            progress = GroupProgress::Rules { hash: hash.finish(), after: None, held: 0 };
        }
        match progress {
            GroupProgress::Rules { hash, after, held } => {
                self.compare(judging, group.places(hash, after), held, published, until).map_or(
                    GroupProgress::Done,
                    |(last, held)| GroupProgress::Rules { hash, after: last.or(after), held },
                )
            }
            GroupProgress::Failing { mut after, error } => {
                for (hash, place) in group.all(after) {
                    if judging.steps >= until {
                        return GroupProgress::Failing { after, error };
                    }
                    judging.steps = judging.steps.saturating_add(MATCH_STEPS);
                    if let Some(PlacedRule { subscription, .. }) = self.entry(place) {
                        let subscription = *subscription;
                        judging.hits.push(Hit { subscription, place, failure: Some(error) });
                    }
                    after = Some((hash, place));
                }
                GroupProgress::Done
            }
            GroupProgress::Values { .. } | GroupProgress::Done => progress,
        }
    }

    /// Compares the message with candidate rules, because different values may have one hash. The
    /// first `held` conditions of the first rule hold already. If no steps are left, returns the
    /// last finished rule, and the number of conditions of the next one that hold.
    fn compare(
        &self,
        judging: &mut RuleEvaluation,
        places: impl Iterator<Item = RulePlace>,
        mut held: usize,
        published: &PublishedMessage<'_>,
        until: u64,
    ) -> Option<(Option<RulePlace>, usize)> {
        let each = condition_steps(published);
        let mut last = None;
        for place in places {
            let Some(PlacedRule { subscription, rule }) = self.entry(place) else { continue };
            let Some(filter) = rule.correlation() else { continue };
            let mut holds = true;
            for condition in filter.conditions().skip(held) {
                if judging.steps >= until {
                    return Some((last, held));
                }
                let steps = each.saturating_add(condition.wanted().length());
                judging.steps = judging.steps.saturating_add(steps);
                holds = condition.holds(published);
                if !holds {
                    break;
                }
                held += 1;
            }
            judging.counted.comparisons += 1;
            if holds {
                let subscription = *subscription;
                judging.hits.push(Hit { subscription, place, failure: None });
            }
            (last, held) = (Some(place), 0);
        }
        None
    }

    fn evaluate(
        &self,
        judging: &mut RuleEvaluation,
        published: &PublishedMessage<'_>,
        until: u64,
        random: &mut Random<'_>,
    ) {
        let Stage::Sql(after) = &judging.stage else { return };
        let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(*key));
        for (subscription, place) in self.index(judging.round).sql_from(from) {
            let Some(entry) = self.entry(place) else { continue };
            judging.counted.evaluations += 1;
            let failure = match entry.rule.test(published, random, &mut Meter(&mut judging.steps)) {
                Ok(Some(true)) => Some(None),
                Ok(Some(false) | None) => None,
                Err(error) => Some(Some(error)),
            };
            if let Some(failure) = failure {
                judging.hits.push(Hit { subscription, place, failure });
            }
            if judging.steps >= until {
                judging.stage = Stage::Sql(Some((subscription, place)));
                return;
            }
        }
        // The rules of a subscription are ordered by name when it is opened.
        judging.hits.sort_by_key(|hit| hit.subscription);
        judging.stage = Stage::Copies(0);
    }

    /// Makes the copies of each subscription from its rules that match or fail (TOP-02 to TOP-05).
    fn copy(
        &self,
        judging: &mut RuleEvaluation,
        message: &EvaluatedMessage<'_, '_>,
        from: usize,
        until: u64,
        random: &mut Random<'_>,
    ) {
        let mut at = from;
        let mut sizes = None;
        while at < judging.hits.len() && judging.steps < until {
            if judging.open.is_none() {
                judging.open = self.open(&mut judging.hits, at);
            }
            let Some(mut open) = judging.open.take() else {
                // The subscription was removed, so none of its rules exists.
                at += 1;
                continue;
            };
            while at < open.end && judging.steps < until {
                if let Some(hit) = judging.hits.get(at) {
                    let (changed, steps) = self.evaluate_hit(hit, &mut open, message, random);
                    judging.steps = judging.steps.saturating_add(steps);
                    judging.changed_bytes = judging.changed_bytes.saturating_add(changed);
                }
                at += 1;
                if judging.changed_bytes > message.limits.atomic_bytes_max {
                    judging.exceed(Excess::Bytes);
                    return;
                }
            }
            if at < open.end {
                judging.open = Some(open);
                break;
            }
            // A rule that fails counts as not matching, even if its message is dead-lettered
            // (DLQ-24).
            if judging.round == Round::Ordinary && open.selects() {
                judging.selected_by.get_or_insert(open.subscription);
            }
            let steps = make_copies(open, message, &mut judging.copies, &mut sizes);
            judging.steps = judging.steps.saturating_add(steps);
            if judging.copies.len() > message.limits.publish_copy_count_max {
                judging.exceed(Excess::Copies);
                return;
            }
        }
        judging.stage =
            if at < judging.hits.len() { Stage::Copies(at) } else { self.after_copies(judging) };
    }

    /// Decides whether the rules of catch-alls follow: only if no other subscription selects the
    /// message (TOP-25).
    fn after_copies(&self, judging: &mut RuleEvaluation) -> Stage {
        match judging.round {
            Round::CatchAll => {
                // Dead letters of other subscriptions may precede.
                judging.copies.sort_by_key(|copy| copy.subscription);
                return Stage::Done;
            }
            Round::Ordinary if judging.selected_by.is_some() => return Stage::Done,
            Round::Ordinary => {}
        }
        if self.index(Round::CatchAll).is_empty() {
            return Stage::Done;
        }
        judging.round = Round::CatchAll;
        judging.hits.clear();
        Stage::Always
    }

    /// Starts with the hits of the subscription to which the hit at `from` belongs.
    fn open(&self, hits: &mut [Hit], from: usize) -> Option<OpenSubscription> {
        let id = hits.get(from)?.subscription;
        let Subscription { settings, .. } = self.subscription(id)?;
        let hits = hits.get_mut(from..)?;
        let count = hits.iter().take_while(|hit| hit.subscription == id).count();
        if count > 1 {
            hits.get_mut(..count)?.sort_by_cached_key(|hit| {
                self.entry(hit.place).map(|entry| entry.rule.description().key())
            });
        }
        Some(OpenSubscription {
            subscription: id,
            settings: *settings,
            end: from + count,
            plain: None,
            changed: SmallVec::new(),
            failed: None,
        })
    }

    /// Evaluates a hit. Returns the bytes of its changes, and the steps that it took.
    fn evaluate_hit(
        &self,
        hit: &Hit,
        open: &mut OpenSubscription,
        message: &EvaluatedMessage<'_, '_>,
        random: &mut Random<'_>,
    ) -> (u64, u64) {
        let Some(PlacedRule { rule, .. }) = self.entry(hit.place) else { return (0, MATCH_STEPS) };
        let (cause, error) = match (hit.failure, &rule.action) {
            (Some(error), _) => (Cause::Filter, error),
            (None, None) => {
                open.plain.get_or_insert(hit.place);
                return (0, MATCH_STEPS);
            }
            (None, Some(statements)) => {
                let mut steps = MATCH_STEPS;
                let made = action::run(
                    rule.name(),
                    statements,
                    (message.published, message.limits),
                    random,
                    &mut Meter(&mut steps),
                );
                match made {
                    Ok(copy) => {
                        let bytes = u64::from(copy.overlay.size_bytes());
                        open.changed.push((hit.place, copy));
                        // Changes are written twice, as a value and as a record.
                        return (bytes, steps.saturating_add(2 * bytes));
                    }
                    Err(error) => (Cause::Action, error),
                }
            }
        };
        // The description has the first failure in the order of rule names (DLQ-25).
        open.failed.get_or_insert_with(|| (hit.place, Refusal::of_rule(rule, cause, &error)));
        (0, MATCH_STEPS)
    }
}

/// Header sizes of the message, measured at most once per slice, when a copy first comes near the
/// limit. The inner `None` means that [`Message`](crate::message::Message) cannot hold the
/// properties.
type Sizes = Option<Option<HeaderSizes>>;

/// Makes the copies of a subscription after all its hits were evaluated. Returns the steps that it
/// took.
fn make_copies(
    open: OpenSubscription,
    message: &EvaluatedMessage<'_, '_>,
    copies: &mut Vec<Copy>,
    sizes: &mut Sizes,
) -> u64 {
    let OpenSubscription { subscription, settings, plain, changed, failed, .. } = open;
    let mut steps = 0u64;
    if plain.is_some() {
        let refusal = session_refusal(settings, message.published.view().session_id());
        copies.push(Copy { subscription, rule: plain, changed: None, refusal });
    }
    for (place, changed) in changed {
        let (refusal, steps_taken) = header_refusal(message, &changed, sizes);
        steps = steps.saturating_add(steps_taken);
        let refusal = refusal.or_else(|| session_refusal(settings, changed.session_id.as_deref()));
        let rule = Some(place);
        copies.push(Copy { subscription, rule, changed: Some(Box::new(changed)), refusal });
    }
    if let Some((place, refusal)) = failed.filter(|_| settings.dead_lettering_on_filter_errors) {
        let refusal = Some(Box::new(refusal));
        copies.push(Copy { subscription, rule: Some(place), changed: None, refusal });
    }
    steps
}

/// DLQ-20, ACT-11: the refusal of a copy whose header is too large, and the steps of the check. The
/// header is measured only if the changes might not fit, which is rare.
fn header_refusal(
    message: &EvaluatedMessage<'_, '_>,
    changed: &CopyChanges,
    sizes: &mut Sizes,
) -> (Option<Box<Refusal>>, u64) {
    let bytes_max = message.limits.header_bytes_max;
    let (own, set) = (message.content.header_size(), changed.overlay.size_bytes());
    if u64::from(own) + u64::from(set) + SECTIONS_BYTES <= bytes_max {
        return (None, 0);
    }
    let sizes = sizes.get_or_insert_with(|| message.content.header_sizes(None));
    let size = sizes
        .as_ref()
        .map_or_else(|| own.saturating_add(set), |sizes| sizes.with(&changed.overlay));
    // At most, the rest of the header is copied.
    let steps = u64::from(own / 16);
    if u64::from(size) <= bytes_max {
        return (None, steps);
    }
    let description = format!(
        "the size quota of the stream (header) was exceeded: rule {} makes it {size} bytes, the \
        maximum is {bytes_max}",
        Quoted(&changed.rule)
    );
    (Some(Box::new(Refusal { cause: Cause::HeaderSize, description: description.into() })), steps)
}

/// DLQ-21. An empty id counts as a session id (SES-03).
fn session_refusal(
    settings: SubscriptionSettings,
    session_id: Option<&str>,
) -> Option<Box<Refusal>> {
    if !settings.requires_session || session_id.is_some() {
        return None;
    }
    Some(Box::new(Refusal::of_session()))
}
