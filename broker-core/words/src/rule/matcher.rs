//! All rules of a topic: which copies a published message becomes (TOP-01 to TOP-06).
//!
//! Rules are kept in one list, and beside it in an index by what has to be done for a message:
//!
//! ```text
//!  true filter          nothing to do, it matches
//!  false filter         in no index
//!  correlation filter   properties constrained -> hash of their values -> rules   (TOP-23)
//!  SQL filter           evaluated, one after another
//! ```

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::action::{self, Changed};
use super::correlation::{Property, hash_values};
use super::properties::Published;
use super::sql::{EvaluationError, Operand, Random, Unobserved};
use super::{Compiled, Rule, RuleDescription};
use crate::condition::Condition;
use crate::error::{Quoted, Rejection};
use crate::ids::EntityId;
use crate::limits::Limits;
use crate::message::{Content, Overlay};

/// DLQ-16, "header too large".
const HEADER_SIZE_EXCEEDED: &str = "HeaderSizeExceeded";
/// DLQ-16, "null session id".
const SESSION_ID_IS_NULL: &str = "Session ID is null.";

/// What of a subscription's description decides about its copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionSettings {
    /// EnableDeadLetteringOnFilterEvaluationExceptions (DLQ-23, DLQ-24).
    pub dead_lettering_on_filter_errors: bool,
    /// RequiresSession (DLQ-21).
    pub requires_session: bool,
}

/// The rules of all subscriptions of one topic.
#[derive(Debug, Default)]
pub struct Matcher {
    subscriptions: BTreeMap<EntityId, Subscription>,
    /// Rules by their place, free places in between.
    rules: Vec<Option<Entry>>,
    free: Vec<Place>,
    always: BTreeSet<(EntityId, Place)>,
    sql: BTreeSet<(EntityId, Place)>,
    correlation: BTreeMap<Box<[Property]>, Group>,
    /// How many rules have other filters than SQL.
    plain_count: usize,
}

type Place = u32;

#[derive(Debug)]
struct Subscription {
    settings: SubscriptionSettings,
    /// By name in lower case (TOP-05).
    rules: BTreeMap<Box<str>, Place>,
}

#[derive(Debug)]
struct Entry {
    subscription: EntityId,
    rule: Rule,
}

/// The rules that constrain the same properties, by the hash of the values they ask for.
#[derive(Debug, Default)]
struct Group {
    by_hash: BTreeMap<u64, Vec<Place>>,
}

/// What a published message becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// In the order of subscriptions; in each of them the one without changes first, then those
    /// of actions in the order of rule names (TOP-05), then a dead letter of a failed rule.
    pub copies: Vec<Copy>,
    /// What it took.
    pub counted: Counted,
}

/// One copy that is to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Where.
    pub subscription: EntityId,
    /// How it differs from the message published.
    pub changed: Option<Box<Changed>>,
    /// Why it goes into the dead-letter queue of the subscription.
    pub refusal: Option<Box<Refusal>>,
}

/// Why a copy goes straight into the dead-letter queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What for.
    pub cause: Cause,
    /// The text that explains it.
    pub description: Box<str>,
}

/// Causes of such dead letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A filter failed (DLQ-23).
    Filter,
    /// An action failed (DLQ-23).
    Action,
    /// The action made the header too large (DLQ-20, ACT-11).
    HeaderSize,
    /// The subscription requires a session and the copy has none (DLQ-21).
    NoSession,
}

/// What one match took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Look-ups in the index of correlation filters (TOP-23).
    pub lookups: usize,
    /// Correlation filters that were compared with the message.
    pub comparisons: usize,
    /// SQL filters that were evaluated.
    pub evaluations: usize,
}

/// A rule that selects the message, or fails on it.
struct Hit {
    subscription: EntityId,
    place: Place,
    failure: Option<EvaluationError>,
}

impl Matcher {
    /// A topic without subscriptions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The rules of a new subscription, ready to be evaluated: these, or `$Default` if there are none
    /// (TOP-12). Changes nothing; [`Matcher::restore_rule`] adds them.
    ///
    /// # Errors
    /// Those of [`Matcher::judge`] (TOP-17).
    pub fn judge_subscription(
        &self,
        rules: Vec<RuleDescription>,
        default: RuleDescription,
        limits: &Limits,
    ) -> Result<Vec<Rule>, Rejection> {
        let rules = if rules.is_empty() { vec![default] } else { rules };
        let mut judged = BTreeMap::new();
        let mut taken = Taken::of(self);
        for description in rules {
            let rule = Rule::create(description, limits)?;
            let key = rule.description().key();
            if judged.contains_key(&key) {
                return Err(exists(&rule));
            }
            taken.check(&rule, limits)?;
            taken.add(&rule);
            judged.insert(key, rule);
        }
        Ok(judged.into_values().collect())
    }

    /// A new subscription with these rules, as [`Matcher::judge_subscription`] judges them.
    ///
    /// # Errors
    /// Those of [`Matcher::judge`], with nothing changed (TOP-17).
    pub fn create_subscription(
        &mut self,
        subscription: EntityId,
        settings: SubscriptionSettings,
        rules: Vec<RuleDescription>,
        default: RuleDescription,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let rules = self.judge_subscription(rules, default, limits)?;
        self.restore_subscription(subscription, settings);
        for rule in rules {
            self.restore_rule(subscription, rule);
        }
        Ok(())
    }

    /// A subscription without rules, whose rules follow (TOP-06), or new settings of a known one.
    pub fn restore_subscription(&mut self, subscription: EntityId, settings: SubscriptionSettings) {
        self.subscriptions
            .entry(subscription)
            .and_modify(|known| known.settings = settings)
            .or_insert_with(|| Subscription { settings, rules: BTreeMap::new() });
    }

    /// Forgets a subscription and its rules.
    pub fn remove_subscription(&mut self, subscription: EntityId) {
        if let Some(removed) = self.subscriptions.remove(&subscription) {
            removed.rules.into_values().for_each(|place| self.take_out(place));
        }
    }

    /// A new rule of a subscription, ready to be evaluated (TOP-13). Changes nothing;
    /// [`Matcher::restore_rule`] adds it.
    ///
    /// # Errors
    /// Those of [`Rule::create`], `EntityAlreadyExists` for a name that is taken (ENT-13),
    /// `QuotaExceeded` if the topic has as many rules of its kind as it may (QUO-01).
    pub fn judge(
        &self,
        subscription: EntityId,
        description: RuleDescription,
        limits: &Limits,
    ) -> Result<Rule, Rejection> {
        let rule = Rule::create(description, limits)?;
        if self.place(subscription, rule.name()).is_some() {
            return Err(exists(&rule));
        }
        Taken::of(self).check(&rule, limits)?;
        Ok(rule)
    }

    /// A rule with another filter and action (TOP-24), ready to be evaluated; name and creation stay as they
    /// were. Changes nothing; [`Matcher::restore_rule`] replaces it.
    ///
    /// # Errors
    /// Those of [`Rule::create`], `QuotaExceeded` as for a new one, and `EntityNotFound`.
    pub fn judge_update(
        &self,
        subscription: EntityId,
        mut description: RuleDescription,
        limits: &Limits,
    ) -> Result<Rule, Rejection> {
        let Some(current) = self.rule(subscription, &description.name) else {
            return Err(not_found(&description.name));
        };
        description.name = current.description().name.clone();
        description.created_at = current.description().created_at;
        let rule = Rule::create(description, limits)?;
        let mut taken = Taken::of(self);
        taken.remove(current);
        taken.check(&rule, limits)?;
        Ok(rule)
    }

    /// Adds a rule as [`Matcher::judge`] judges it.
    ///
    /// # Errors
    /// Those of [`Matcher::judge`], with nothing changed.
    pub fn create_rule(
        &mut self,
        subscription: EntityId,
        description: RuleDescription,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let rule = self.judge(subscription, description, limits)?;
        self.restore_rule(subscription, rule);
        Ok(())
    }

    /// Replaces a rule as [`Matcher::judge_update`] judges it.
    ///
    /// # Errors
    /// Those of [`Matcher::judge_update`], with nothing changed.
    pub fn update_rule(
        &mut self,
        subscription: EntityId,
        description: RuleDescription,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let rule = self.judge_update(subscription, description, limits)?;
        self.restore_rule(subscription, rule);
        Ok(())
    }

    /// Removes a rule (TOP-13).
    ///
    /// # Errors
    /// `EntityNotFound`
    pub fn remove_rule(&mut self, subscription: EntityId, name: &str) -> Result<(), Rejection> {
        if self.forget_rule(subscription, name) { Ok(()) } else { Err(not_found(name)) }
    }

    /// Adds a rule that was judged before; one of the same name is replaced. A subscription that
    /// is not known gets nothing.
    pub fn restore_rule(&mut self, subscription: EntityId, rule: Rule) {
        self.forget_rule(subscription, rule.name());
        let Some(owner) = self.subscriptions.get_mut(&subscription) else { return };
        let place = self.free.pop().or_else(|| Place::try_from(self.rules.len()).ok());
        let Some(place) = place else { return };
        owner.rules.insert(rule.description().key(), place);
        let key = (subscription, place);
        match &rule.filter {
            Compiled::Always => drop(self.always.insert(key)),
            Compiled::Never => {}
            Compiled::Sql(_) => drop(self.sql.insert(key)),
            Compiled::Correlation(_) => {
                let (properties, hash) = index_key(&rule);
                let group = self.correlation.entry(properties).or_default();
                group.by_hash.entry(hash).or_default().push(place);
            }
        }
        self.plain_count += usize::from(!rule.is_sql());
        let entry = Some(Entry { subscription, rule });
        match self.rules.get_mut(index(place)) {
            Some(free) => *free = entry,
            None => self.rules.push(entry),
        }
    }

    /// The settings of a subscription, if it is known.
    #[must_use]
    pub fn settings(&self, subscription: EntityId) -> Option<SubscriptionSettings> {
        self.subscriptions.get(&subscription).map(|known| known.settings)
    }

    /// How many subscriptions are known.
    #[must_use]
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// The rule of that name, in any case.
    #[must_use]
    pub fn rule(&self, subscription: EntityId, name: &str) -> Option<&Rule> {
        self.entry(self.place(subscription, name)?).map(|entry| &entry.rule)
    }

    /// The rules of a subscription in the order of their names (ENT-30).
    pub fn rules(&self, subscription: EntityId) -> impl Iterator<Item = &Rule> {
        let places = self.subscriptions.get(&subscription).into_iter();
        places
            .flat_map(|subscription| subscription.rules.values())
            .filter_map(|place| Some(&self.entry(*place)?.rule))
    }

    /// The copies that a message becomes. The outcome is never an error for the sender (DLQ-27).
    #[must_use]
    pub fn publish(
        &self,
        content: &Content,
        published: &Published<'_>,
        limits: &Limits,
        random: &mut Random<'_>,
    ) -> Selection {
        let mut counted = Counted::default();
        let mut hits = SmallVec::<[Hit; 16]>::new();
        hits.extend(self.always.iter().map(|&(subscription, place)| Hit {
            subscription,
            place,
            failure: None,
        }));
        self.correlate(published, &mut hits, &mut counted);
        self.evaluate(published, random, &mut hits, &mut counted);
        // Rules of one subscription are put in order of their names when they are looked at.
        hits.sort_by_key(|hit| hit.subscription);
        let mut publish = Publish { matcher: self, content, published, limits, random };
        let mut copies = Vec::with_capacity(hits.len());
        for hits in hits.chunk_by_mut(|left, right| left.subscription == right.subscription) {
            publish.subscription(hits, &mut copies);
        }
        Selection { copies, counted }
    }

    /// TOP-23: one look-up for each set of properties that some filter constrains.
    fn correlate(
        &self,
        published: &Published<'_>,
        hits: &mut SmallVec<[Hit; 16]>,
        counted: &mut Counted,
    ) {
        for (properties, group) in &self.correlation {
            let values: SmallVec<[Operand<'_>; 4]> =
                properties.iter().map(|property| property.of(published)).collect();
            // An absent property never matches (TOP-21).
            if values.contains(&Operand::Unknown) {
                continue;
            }
            counted.lookups += 1;
            let hash = hash_values(values.into_iter());
            for &place in group.by_hash.get(&hash).into_iter().flatten() {
                let Some(Entry { subscription, rule }) = self.entry(place) else { continue };
                counted.comparisons += 1;
                // Different values may have one hash.
                if rule.test(published, &mut || 0, &mut Unobserved) == Ok(Some(true)) {
                    hits.push(Hit { subscription: *subscription, place, failure: None });
                }
            }
        }
    }

    fn evaluate(
        &self,
        published: &Published<'_>,
        random: &mut Random<'_>,
        hits: &mut SmallVec<[Hit; 16]>,
        counted: &mut Counted,
    ) {
        for &(subscription, place) in &self.sql {
            let Some(entry) = self.entry(place) else { continue };
            counted.evaluations += 1;
            let failure = match entry.rule.test(published, random, &mut Unobserved) {
                Ok(Some(true)) => None,
                Ok(Some(false) | None) => continue,
                Err(error) => Some(error),
            };
            hits.push(Hit { subscription, place, failure });
        }
    }

    fn entry(&self, place: Place) -> Option<&Entry> {
        self.rules.get(index(place))?.as_ref()
    }

    fn place(&self, subscription: EntityId, name: &str) -> Option<Place> {
        let subscription = self.subscriptions.get(&subscription)?;
        subscription.rules.get(name.to_ascii_lowercase().as_str()).copied()
    }

    /// Says whether there was one.
    fn forget_rule(&mut self, subscription: EntityId, name: &str) -> bool {
        let Some(owner) = self.subscriptions.get_mut(&subscription) else { return false };
        let Some(place) = owner.rules.remove(name.to_ascii_lowercase().as_str()) else {
            return false;
        };
        self.take_out(place);
        true
    }

    fn take_out(&mut self, place: Place) {
        let Some(entry) = self.rules.get_mut(index(place)).and_then(Option::take) else { return };
        self.free.push(place);
        self.plain_count -= usize::from(!entry.rule.is_sql());
        let key = (entry.subscription, place);
        match &entry.rule.filter {
            Compiled::Always => drop(self.always.remove(&key)),
            Compiled::Never => {}
            Compiled::Sql(_) => drop(self.sql.remove(&key)),
            Compiled::Correlation(_) => self.take_out_of_group(&entry.rule, place),
        }
    }

    fn take_out_of_group(&mut self, rule: &Rule, place: Place) {
        let (properties, hash) = index_key(rule);
        let Some(group) = self.correlation.get_mut(&properties) else { return };
        if let Some(places) = group.by_hash.get_mut(&hash) {
            places.retain(|known| *known != place);
            if places.is_empty() {
                group.by_hash.remove(&hash);
            }
        }
        if group.by_hash.is_empty() {
            self.correlation.remove(&properties);
        }
    }
}

/// How many rules of each kind a topic has, over all its subscriptions.
struct Taken {
    sql: usize,
    plain: usize,
}

impl Taken {
    fn of(matcher: &Matcher) -> Self {
        Self { sql: matcher.sql.len(), plain: matcher.plain_count }
    }

    const fn count_of(&mut self, rule: &Rule) -> &mut usize {
        if rule.is_sql() { &mut self.sql } else { &mut self.plain }
    }

    const fn add(&mut self, rule: &Rule) {
        *self.count_of(rule) += 1;
    }

    const fn remove(&mut self, rule: &Rule) {
        let count = self.count_of(rule);
        *count = count.saturating_sub(1);
    }

    /// Refuses one more than there may be (QUO-01).
    fn check(&mut self, rule: &Rule, limits: &Limits) -> Result<(), Rejection> {
        let (limit, what) = if rule.is_sql() {
            (limits.rule_sql_count_max, "SQL rules")
        } else {
            (limits.rule_correlation_count_max, "correlation rules")
        };
        if *self.count_of(rule) < limit {
            return Ok(());
        }
        Err(Rejection::quota_exceeded(format!(
            "rule {} is one more than the {limit} {what} that a topic can have; remove others",
            Quoted(rule.name())
        )))
    }
}

/// One message on its way into the subscriptions that select it.
struct Publish<'m, 'a, 'r, 'x> {
    matcher: &'m Matcher,
    content: &'m Content,
    published: &'m Published<'a>,
    limits: &'m Limits,
    random: &'r mut Random<'x>,
}

impl Publish<'_, '_, '_, '_> {
    /// The copies for one subscription from its rules that match or fail (TOP-02 to TOP-05).
    fn subscription(&mut self, hits: &mut [Hit], copies: &mut Vec<Copy>) {
        let Some(first) = hits.first() else { return };
        let id = first.subscription;
        let Some(Subscription { settings, .. }) = self.matcher.subscriptions.get(&id) else {
            return;
        };
        if hits.len() > 1 {
            hits.sort_by_cached_key(|hit| {
                self.matcher.entry(hit.place).map(|entry| entry.rule.description().key())
            });
        }
        let mut plain = false;
        let mut changed = SmallVec::<[Changed; 2]>::new();
        let mut failed: Option<Refusal> = None;
        for hit in &*hits {
            let Some(Entry { rule, .. }) = self.matcher.entry(hit.place) else { continue };
            let failure = match (hit.failure, &rule.action) {
                (Some(error), _) => (Cause::Filter, error),
                (None, None) => {
                    plain = true;
                    continue;
                }
                (None, Some(statements)) => {
                    let (published, limits) = (self.published, self.limits);
                    match action::run(rule.name(), statements, published, limits, self.random) {
                        Ok(copy) => {
                            changed.push(copy);
                            continue;
                        }
                        Err(error) => (Cause::Action, error),
                    }
                }
            };
            // The first in rule-name order is told (DLQ-25).
            let (cause, error) = failure;
            failed.get_or_insert_with(|| Refusal::of_rule(rule, cause, &error));
        }
        if plain {
            let refusal = self.session_refusal(*settings, self.published.view().session_id());
            copies.push(Copy { subscription: id, changed: None, refusal });
        }
        for changed in changed {
            let refusal = self
                .header_refusal(&changed)
                .or_else(|| self.session_refusal(*settings, changed.session_id.as_deref()));
            let changed = Some(Box::new(changed));
            copies.push(Copy { subscription: id, changed, refusal });
        }
        if let Some(refusal) = failed.filter(|_| settings.dead_lettering_on_filter_errors) {
            let refusal = Some(Box::new(refusal));
            copies.push(Copy { subscription: id, changed: None, refusal });
        }
    }

    /// DLQ-20, ACT-11
    fn header_refusal(&self, changed: &Changed) -> Option<Box<Refusal>> {
        let size = self.content.header_size_with(&changed.overlay);
        if u64::from(size) <= self.limits.header_bytes_max {
            return None;
        }
        let description = format!(
            "the size quota of the stream (header) was exceeded: rule {} makes it {size} bytes, the \
             maximum is {}",
            Quoted(&changed.rule),
            self.limits.header_bytes_max
        );
        Some(Box::new(Refusal { cause: Cause::HeaderSize, description: description.into() }))
    }

    /// DLQ-21; an empty id counts as none.
    fn session_refusal(
        &self,
        settings: SubscriptionSettings,
        session_id: Option<&str>,
    ) -> Option<Box<Refusal>> {
        if !settings.requires_session || session_id.is_some_and(|id| !id.is_empty()) {
            return None;
        }
        Some(Box::new(Refusal::of_session()))
    }
}

impl Refusal {
    /// DLQ-20: a header of that size, if it is over the maximum.
    #[must_use]
    pub fn of_header(bytes: u64, bytes_max: u64) -> Option<Box<Self>> {
        (bytes > bytes_max).then(|| {
            let description =
                format!("the header of {bytes} bytes exceeded the size quota of {bytes_max}");
            Box::new(Self { cause: Cause::HeaderSize, description: description.into() })
        })
    }

    /// DLQ-21: a message without session id, where one is required.
    #[must_use]
    pub fn of_session() -> Self {
        let description = "an entity that requires sessions takes no message without session id";
        Self { cause: Cause::NoSession, description: description.into() }
    }

    /// DLQ-23: the text of the error with the name of the rule.
    fn of_rule(rule: &Rule, cause: Cause, error: &EvaluationError) -> Self {
        let description = format!("rule {}: {}", Quoted(rule.name()), rule.describe(cause, error));
        Self { cause, description: description.into() }
    }

    /// The code that dead letters carry (DLQ-16).
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.cause {
            Cause::Filter => Condition::FilterException.name(),
            Cause::Action => Condition::RuleActionException.name(),
            Cause::HeaderSize => HEADER_SIZE_EXCEEDED,
            Cause::NoSession => SESSION_ID_IS_NULL,
        }
    }

    /// Reason and description as properties of the dead letter (DLQ-14); texts of this length
    /// always fit.
    #[must_use]
    pub fn overlay(&self) -> Option<Overlay> {
        Overlay::dead_letter(Some(self.reason()), Some(&self.description), &[]).ok()
    }
}

impl Rule {
    /// An error with the part of the text that it happened in.
    #[must_use]
    pub fn describe(&self, cause: Cause, error: &EvaluationError) -> String {
        let text = match (cause, &self.description.filter, &self.description.action) {
            (Cause::Filter, super::Filter::Sql(sql), _) => &sql.text,
            (Cause::Action, _, Some(sql)) => &sql.text,
            _ => "",
        };
        error.describe(text)
    }
}

/// Where a correlation filter is found.
fn index_key(rule: &Rule) -> (Box<[Property]>, u64) {
    let conditions = match &rule.filter {
        Compiled::Correlation(conditions) => conditions.as_slice(),
        Compiled::Always | Compiled::Never | Compiled::Sql(_) => &[],
    };
    let properties = conditions.iter().map(|condition| condition.property.clone()).collect();
    let hash = hash_values(conditions.iter().map(|condition| condition.value.borrow().into()));
    (properties, hash)
}

fn exists(rule: &Rule) -> Rejection {
    let detail = format!("rule {} exists already", Quoted(rule.name()));
    Rejection::new(Condition::EntityAlreadyExists, detail)
}

fn not_found(name: &str) -> Rejection {
    Rejection::new(Condition::EntityNotFound, format!("there is no rule {}", Quoted(name)))
}

fn index(place: Place) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}
