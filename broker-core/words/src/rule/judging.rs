//! Which copies a published message becomes, judged in one go or in slices (TOP-01 to TOP-06).
//!
//! ```text
//!  begin ──► true filters ──► correlation filters ──► SQL filters ──► copies, subscription by subscription
//!         ▲                       └──────────── a slice may end behind any of them ────────────┤
//!         └──────── once more with the rules of catch-alls, if nobody selects the message ─────┘
//! ```
//!
//! To judge alters nothing, so it does not matter how often it is interrupted, as long as the rules stay as
//! they are: who asks takes no command in between. What comes of it is carried out as one change.

use std::ops::Bound;

use smallvec::SmallVec;

use super::action::{self, Changed};
use super::correlation::{
    CorrelationFilter, Property, ValuesHash, condition_steps, refuse_too_many_steps,
};
use super::matcher::{
    Group, Matcher, PlacedRule, Round, RulePlace, Subscription, SubscriptionSettings,
};
use super::properties::Published;
use super::selection::{Cause, Copy, Counted, Excess, Refusal, Selection};
use super::sql::{EvaluationError, Observer, Operand, Random, Statement};
use super::{Compiled, Rule};
use crate::error::Quoted;
use crate::ids::EntityId;
use crate::limits::Limits;
use crate::message::{Content, HeaderSizes};

/// What one match of a rule takes beside its evaluation.
const MATCH_STEPS: u64 = 32;
/// By no more than so many bytes what is set makes a header larger than it is as an overlay: sections that begin,
/// fields without a value before others, longer names of annotations.
const SECTIONS_BYTES: u64 = 512;

/// A message that is being judged.
pub struct Judging {
    round: Round,
    stage: Stage,
    hits: SmallVec<[Hit; 16]>,
    copies: Vec<Copy>,
    selected_by: Option<EntityId>,
    counted: Counted,
    /// What the changes of the copies need in the store.
    changed_bytes: u64,
    /// The subscription whose hits are being looked at.
    open: Option<Open>,
    steps: u64,
    excess: Option<Excess>,
}

/// What comes next.
enum Stage {
    Always,
    Correlation(LookedUp),
    /// Behind this rule.
    Sql(Option<(EntityId, RulePlace)>),
    /// From this hit on.
    Copies(usize),
    Done,
}

/// How far the look-ups are. A slice may end between any two properties, and any two conditions of a rule.
#[derive(Default)]
struct LookedUp {
    /// The group that was looked into last.
    group: Option<Box<[Property]>>,
    within: Within,
}

/// How far the look-ups of one group are.
#[derive(Default)]
enum Within {
    /// So many of its properties are there, with values of this hash.
    Values { found: usize, hash: ValuesHash },
    /// Of the rules that ask for values of this hash, those up to one are compared with the message, and so many
    /// conditions of the next one.
    Rules { hash: u64, behind: Option<RulePlace>, held: usize },
    /// Its rules fail, for they ask for too much; those up to one are noted.
    Failing { behind: Option<(u64, RulePlace)>, error: EvaluationError },
    #[default]
    Over,
}

/// A rule that selects the message, or fails on it.
struct Hit {
    subscription: EntityId,
    place: RulePlace,
    failure: Option<EvaluationError>,
}

/// What the rules of one subscription make of the message.
struct Open {
    subscription: EntityId,
    settings: SubscriptionSettings,
    /// Behind its last hit.
    end: usize,
    plain: bool,
    changed: SmallVec<[Changed; 2]>,
    failed: Option<Refusal>,
}

impl Open {
    /// Whether some rule selects the message.
    fn selects(&self) -> bool {
        self.plain || !self.changed.is_empty()
    }
}

/// A message as a publish looks at it.
pub struct Judged<'m, 'a> {
    /// All of it.
    pub content: &'m Content,
    /// What the rules see.
    pub published: &'m Published<'a>,
    /// The limits in force.
    pub limits: &'m Limits,
}

/// Counts the steps of an evaluation.
struct Meter<'s>(&'s mut u64);

impl Observer for Meter<'_> {
    fn took(&mut self, steps: u64) {
        *self.0 = self.0.saturating_add(steps);
    }
}

impl Default for Judging {
    fn default() -> Self {
        Self {
            round: Round::Ordinary,
            stage: Stage::Always,
            hits: SmallVec::new(),
            copies: Vec::new(),
            selected_by: None,
            counted: Counted::default(),
            changed_bytes: 0,
            open: None,
            steps: 0,
            excess: None,
        }
    }
}

impl Judging {
    /// Steps taken so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// What rules have set on copies so far.
    #[must_use]
    pub const fn changed_bytes(&self) -> u64 {
        self.changed_bytes
    }

    /// What came of it, when it is over.
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
    /// How the steps of a publish grow with the size of what this rule reads: an estimate, on the high side.
    pub(super) fn weight(&self) -> u64 {
        let filter = match &self.filter {
            Compiled::Always | Compiled::Never => 1,
            // Each property is looked up, and then compared.
            Compiled::Correlation => {
                2 * self.correlation().map_or(0, CorrelationFilter::len) as u64
            }
            Compiled::Sql(program) => program.weight(),
        };
        let statements = self.action.as_deref().unwrap_or_default();
        filter.saturating_add(action_weight(statements))
    }
}

/// A statement looks at what those before it have changed.
fn action_weight(statements: &[Statement]) -> u64 {
    let programs = statements.iter().filter_map(|statement| statement.expression.as_ref());
    let weight = programs.fold(1u64, |sum, program| sum.saturating_add(program.weight()));
    weight.saturating_mul(statements.len() as u64)
}

impl Matcher {
    /// The copies that a message becomes. The outcome is never an error for the sender (DLQ-27).
    #[must_use]
    pub fn publish(
        &self,
        content: &Content,
        published: &Published<'_>,
        limits: &Limits,
        random: &mut Random<'_>,
    ) -> Selection {
        let mut judging = Judging::default();
        self.go_on(&mut judging, &Judged { content, published, limits }, u64::MAX, random);
        judging.into_selection()
    }

    /// About how many steps a publish takes at most, of a message whose properties have so many bytes.
    #[must_use]
    pub fn steps_of(&self, property_bytes: u64) -> u64 {
        // Texts of the rules count too.
        self.weight().saturating_mul(property_bytes.saturating_add(1_024))
    }

    /// Goes on for so many steps; returns whether it is over.
    pub fn go_on(
        &self,
        judging: &mut Judging,
        message: &Judged<'_, '_>,
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
                    judging.stage = Stage::Correlation(LookedUp::default());
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

    /// TOP-23: one look-up for each set of properties that some filter constrains.
    fn correlate(&self, judging: &mut Judging, published: &Published<'_>, until: u64) {
        let Stage::Correlation(looked_up) = &mut judging.stage else { return };
        let LookedUp { group, mut within } = std::mem::take(looked_up);
        let from = match (&group, &within) {
            (None, _) => Bound::Unbounded,
            (Some(group), Within::Over) => Bound::Excluded(group),
            (Some(group), _) => Bound::Included(group),
        };
        let groups = self.index(judging.round).correlation();
        for (properties, group) in
            groups.range::<Box<[Property]>, _>((from, Bound::<&Box<[Property]>>::Unbounded))
        {
            if matches!(within, Within::Over) {
                within = match refuse_too_many_steps(properties.len(), published) {
                    Ok(()) => Within::Values { found: 0, hash: ValuesHash::new() },
                    Err(error) => Within::Failing { behind: None, error },
                };
            }
            within = self.look_up(judging, within, (properties, group), published, until);
            if judging.steps >= until {
                let group = Some(properties.clone());
                judging.stage = Stage::Correlation(LookedUp { group, within });
                return;
            }
        }
        judging.stage = Stage::Sql(None);
    }

    /// Goes on with one group, until it is over or there are no steps left.
    fn look_up(
        &self,
        judging: &mut Judging,
        mut within: Within,
        (properties, group): (&[Property], &Group),
        published: &Published<'_>,
        until: u64,
    ) -> Within {
        let each = condition_steps(published);
        if let Within::Values { mut found, mut hash } = within {
            while let Some(property) = properties.get(found) {
                if judging.steps >= until {
                    return Within::Values { found, hash };
                }
                judging.steps = judging.steps.saturating_add(each);
                let value = property.of(published);
                // An absent property never matches (TOP-21).
                if value == Operand::Unknown {
                    return Within::Over;
                }
                judging.steps = judging.steps.saturating_add(value.length());
                hash.add(&value);
                found += 1;
            }
            judging.counted.lookups += 1;
            within = Within::Rules { hash: hash.finish(), behind: None, held: 0 };
        }
        match within {
            Within::Rules { hash, behind, held } => {
                self.compare(judging, group.places(hash, behind), held, published, until).map_or(
                    Within::Over,
                    |(last, held)| Within::Rules { hash, behind: last.or(behind), held },
                )
            }
            Within::Failing { mut behind, error } => {
                for (hash, place) in group.all(behind) {
                    if judging.steps >= until {
                        return Within::Failing { behind, error };
                    }
                    judging.steps = judging.steps.saturating_add(MATCH_STEPS);
                    if let Some(PlacedRule { subscription, .. }) = self.entry(place) {
                        let subscription = *subscription;
                        judging.hits.push(Hit { subscription, place, failure: Some(error) });
                    }
                    behind = Some((hash, place));
                }
                Within::Over
            }
            Within::Values { .. } | Within::Over => within,
        }
    }

    /// Compares the message with rules, of the first of which so many conditions hold: different values may have
    /// one hash. If there are no steps left it says which rule was the last, and how many conditions of the next
    /// one hold.
    fn compare(
        &self,
        judging: &mut Judging,
        places: impl Iterator<Item = RulePlace>,
        mut held: usize,
        published: &Published<'_>,
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
        judging: &mut Judging,
        published: &Published<'_>,
        until: u64,
        random: &mut Random<'_>,
    ) {
        let Stage::Sql(behind) = &judging.stage else { return };
        let from = behind.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(*key));
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
        // Rules of one subscription are put in order of their names when they are looked at.
        judging.hits.sort_by_key(|hit| hit.subscription);
        judging.stage = Stage::Copies(0);
    }

    /// The copies for one subscription after another from its rules that match or fail (TOP-02 to TOP-05).
    fn copy(
        &self,
        judging: &mut Judging,
        message: &Judged<'_, '_>,
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
                // A subscription that is gone: none of its rules is there.
                at += 1;
                continue;
            };
            while at < open.end && judging.steps < until {
                if let Some(hit) = judging.hits.get(at) {
                    let (changed, steps) = self.look_at(hit, &mut open, message, random);
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
            // A rule that fails counts as not matching, whether its message is kept or not (DLQ-24).
            if judging.round == Round::Ordinary && open.selects() {
                judging.selected_by.get_or_insert(open.subscription);
            }
            let steps = close(open, message, &mut judging.copies, &mut sizes);
            judging.steps = judging.steps.saturating_add(steps);
            if judging.copies.len() > message.limits.publish_copy_count_max {
                judging.exceed(Excess::Copies);
                return;
            }
        }
        judging.stage =
            if at < judging.hits.len() { Stage::Copies(at) } else { self.after_copies(judging) };
    }

    /// Catch-alls are asked about what nobody else selects (TOP-25).
    fn after_copies(&self, judging: &mut Judging) -> Stage {
        match judging.round {
            Round::CatchAll => {
                // There may be dead letters of other subscriptions before theirs.
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

    /// Begins with the hits of the subscription that the one at `from` is of.
    fn open(&self, hits: &mut [Hit], from: usize) -> Option<Open> {
        let id = hits.get(from)?.subscription;
        let Subscription { settings, .. } = self.subscription(id)?;
        let hits = hits.get_mut(from..)?;
        let count = hits.iter().take_while(|hit| hit.subscription == id).count();
        if count > 1 {
            hits.get_mut(..count)?.sort_by_cached_key(|hit| {
                self.entry(hit.place).map(|entry| entry.rule.description().key())
            });
        }
        Some(Open {
            subscription: id,
            settings: *settings,
            end: from + count,
            plain: false,
            changed: SmallVec::new(),
            failed: None,
        })
    }

    /// Takes one hit in; returns the bytes of what it changes, and the steps that it took.
    fn look_at(
        &self,
        hit: &Hit,
        open: &mut Open,
        message: &Judged<'_, '_>,
        random: &mut Random<'_>,
    ) -> (u64, u64) {
        let Some(PlacedRule { rule, .. }) = self.entry(hit.place) else { return (0, MATCH_STEPS) };
        let (cause, error) = match (hit.failure, &rule.action) {
            (Some(error), _) => (Cause::Filter, error),
            (None, None) => {
                open.plain = true;
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
                        open.changed.push(copy);
                        // What is changed is written twice, as a value and as a record.
                        return (bytes, steps.saturating_add(2 * bytes));
                    }
                    Err(error) => (Cause::Action, error),
                }
            }
        };
        // The first in rule-name order is told (DLQ-25).
        open.failed.get_or_insert_with(|| Refusal::of_rule(rule, cause, &error));
        (0, MATCH_STEPS)
    }
}

/// What is found out about the header of a message when a copy first comes near the limit, at most once a slice. None
/// within if no message can have its properties.
type Sizes = Option<Option<HeaderSizes>>;

/// Makes the copies of a subscription all of whose hits were looked at; returns the steps that it took.
fn close(open: Open, message: &Judged<'_, '_>, copies: &mut Vec<Copy>, sizes: &mut Sizes) -> u64 {
    let Open { subscription, settings, plain, changed, failed, .. } = open;
    let mut steps = 0u64;
    if plain {
        let refusal = session_refusal(settings, message.published.view().session_id());
        copies.push(Copy { subscription, changed: None, refusal });
    }
    for changed in changed {
        let (refusal, taken) = header_refusal(message, &changed, sizes);
        steps = steps.saturating_add(taken);
        let refusal = refusal.or_else(|| session_refusal(settings, changed.session_id.as_deref()));
        copies.push(Copy { subscription, changed: Some(Box::new(changed)), refusal });
    }
    if let Some(refusal) = failed.filter(|_| settings.dead_lettering_on_filter_errors) {
        copies.push(Copy { subscription, changed: None, refusal: Some(Box::new(refusal)) });
    }
    steps
}

/// DLQ-20, ACT-11: why a copy is a dead letter, and the steps that it took to find out. It is measured only if what is
/// set might not fit beside what there is, which nearly always it does.
fn header_refusal(
    message: &Judged<'_, '_>,
    changed: &Changed,
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
    // What is not set by the rule is copied at most.
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

/// DLQ-21; an empty id is one (SES-03).
fn session_refusal(
    settings: SubscriptionSettings,
    session_id: Option<&str>,
) -> Option<Box<Refusal>> {
    if !settings.requires_session || session_id.is_some() {
        return None;
    }
    Some(Box::new(Refusal::of_session()))
}
