//! All rules of a topic, and an index for the copies that a published message becomes (TOP-01 to
//! TOP-06).
//!
//! Topics change rules here and [judge](super::RuleEvaluation) messages with them. The rules are in one
//! list. An index next to it has them by the work that they take for a message:
//!
//! ```text
//!  true filter          nothing to do, it matches
//!  false filter         in no index
//!  correlation filter   properties constrained -> hash of their values -> rules   (TOP-23)
//!  SQL filter           evaluated one after the other
//! ```
//!
//! Catch-alls have a second index of the same form. It is read only if no ordinary subscription
//! selects the message (TOP-25).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::correlation::{CorrelationFilter, Property, hash_wanted};
use super::{CompiledFilter, DEFAULT_RULE, Filter, Rule, RuleDescription};
use crate::condition::Condition;
use crate::error::{Quoted, Rejection};
use crate::ids::EntityId;
use crate::limits::Limits;

/// The properties of a subscription that affect its copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionSettings {
    /// EnableDeadLetteringOnFilterEvaluationExceptions (DLQ-23, DLQ-24).
    pub dead_lettering_on_filter_errors: bool,
    /// RequiresSession (DLQ-21).
    pub requires_session: bool,
    /// CatchAll (TOP-25).
    pub catch_all: bool,
}

impl SubscriptionSettings {
    const fn round(self) -> Round {
        if self.catch_all { Round::CatchAll } else { Round::Ordinary }
    }
}

/// The rules of all subscriptions of a topic.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    subscriptions: BTreeMap<EntityId, Subscription>,
    /// Rules by position, with free positions in between.
    rules: Vec<Option<PlacedRule>>,
    free: Vec<RulePlace>,
    ordinary: Index,
    catch_all: Index,
    /// Number of rules with filters other than SQL.
    plain_count: usize,
    /// Number of rules with a correlation filter.
    correlation_count: usize,
    /// The factor by which the steps of a publish grow with the size of the properties.
    weight: u64,
    /// Bytes of memory of all rules.
    memory_bytes: u64,
    /// Number of rules with an action.
    action_count: usize,
    /// Grows with each change of a rule.
    version: u64,
}

/// Position of a rule in a matcher.
pub type RulePlace = u32;

/// The subscriptions whose rules are evaluated: ordinary ones first, then catch-alls, if no
/// ordinary one selects the message (TOP-25).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Round {
    Ordinary,
    CatchAll,
}

/// The rules of a round, by the work that they take for a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    always: BTreeSet<(EntityId, RulePlace)>,
    sql: BTreeSet<(EntityId, RulePlace)>,
    correlation: BTreeMap<Box<[Property]>, Group>,
}

#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) settings: SubscriptionSettings,
    /// By name in lower case (TOP-05).
    rules: BTreeMap<Box<str>, RulePlace>,
}

#[derive(Clone, Debug)]
pub(super) struct PlacedRule {
    pub(super) subscription: EntityId,
    pub(super) rule: Rule,
}

/// The rules that constrain the same properties, by the hash of the required values.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    by_hash: BTreeSet<(u64, RulePlace)>,
}

impl Index {
    /// Whether no rule in this index can select a message.
    pub(super) fn is_empty(&self) -> bool {
        self.always.is_empty() && self.sql.is_empty() && self.correlation.is_empty()
    }

    /// Rules that select every message.
    pub(super) fn always(&self) -> impl Iterator<Item = (EntityId, RulePlace)> {
        self.always.iter().copied()
    }

    pub(super) const fn correlation(&self) -> &BTreeMap<Box<[Property]>, Group> {
        &self.correlation
    }

    pub(super) fn sql_from(
        &self,
        from: Bound<(EntityId, RulePlace)>,
    ) -> impl Iterator<Item = (EntityId, RulePlace)> {
        self.sql.range((from, Bound::Unbounded)).copied()
    }

    fn add(&mut self, subscription: EntityId, place: RulePlace, rule: &Rule) {
        let key = (subscription, place);
        match &rule.filter {
            CompiledFilter::Always => drop(self.always.insert(key)),
            CompiledFilter::Never => {}
            CompiledFilter::Sql(_) => drop(self.sql.insert(key)),
            CompiledFilter::Correlation => {
                let (properties, hash) = index_key(rule);
                let group = self.correlation.entry(properties).or_default();
                group.by_hash.insert((hash, place));
            }
        }
    }

    fn remove(&mut self, subscription: EntityId, place: RulePlace, rule: &Rule) {
        let key = (subscription, place);
        match &rule.filter {
            CompiledFilter::Always => drop(self.always.remove(&key)),
            CompiledFilter::Never => {}
            CompiledFilter::Sql(_) => drop(self.sql.remove(&key)),
            CompiledFilter::Correlation => self.remove_from_group(rule, place),
        }
    }

    fn remove_from_group(&mut self, rule: &Rule, place: RulePlace) {
        let (properties, hash) = index_key(rule);
        let Some(group) = self.correlation.get_mut(&properties) else { return };
        group.by_hash.remove(&(hash, place));
        if group.by_hash.is_empty() {
            self.correlation.remove(&properties);
        }
    }
}

impl Group {
    /// The rules that require values of this hash, after `after`.
    pub(super) fn places(
        &self,
        hash: u64,
        after: Option<RulePlace>,
    ) -> impl Iterator<Item = RulePlace> {
        let from =
            after.map_or(Bound::Included((hash, RulePlace::MIN)), |it| Bound::Excluded((hash, it)));
        let to = Bound::Included((hash, RulePlace::MAX));
        self.by_hash.range((from, to)).map(|(_, place)| *place)
    }

    /// All rules with their hashes, after `after`.
    pub(super) fn all(
        &self,
        after: Option<(u64, RulePlace)>,
    ) -> impl Iterator<Item = (u64, RulePlace)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_hash.range((from, Bound::Unbounded)).copied()
    }
}

impl Matcher {
    /// A topic without subscriptions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the rules of a new subscription and returns them in the order of their names. Changes
    /// nothing; [`Matcher::restore_rule`] adds them.
    ///
    /// # Errors
    /// As [`Matcher::check_rule`] (TOP-17).
    pub fn check_subscription(
        &self,
        rules: Vec<Rule>,
        limits: &Limits,
    ) -> Result<Vec<Rule>, Rejection> {
        let mut judged = BTreeMap::new();
        let mut counts = RuleCounts::of(self);
        for rule in rules {
            let key = rule.description().key();
            if judged.contains_key(&key) {
                return Err(exists(&rule));
            }
            counts.check(&rule, limits)?;
            counts.add(&rule);
            judged.insert(key, rule);
        }
        Ok(judged.into_values().collect())
    }

    /// Adds a subscription with these rules, or with `default` if there are none (TOP-12).
    /// [`Matcher::check_subscription`] checks them.
    ///
    /// # Errors
    /// As [`Matcher::check_rule`], with nothing changed (TOP-17).
    pub fn create_subscription(
        &mut self,
        subscription: EntityId,
        settings: SubscriptionSettings,
        rules: Vec<RuleDescription>,
        default: RuleDescription,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let rules = if rules.is_empty() { vec![default] } else { rules };
        let rules = rules.into_iter().map(|rule| Rule::create(rule, limits));
        let rules = self.check_subscription(rules.collect::<Result<_, _>>()?, limits)?;
        self.restore_subscription(subscription, settings);
        for rule in rules {
            self.restore_rule(subscription, rule);
        }
        Ok(())
    }

    /// Adds a subscription without rules, which the caller adds (TOP-06), or changes the settings
    /// of a known one.
    pub fn restore_subscription(&mut self, subscription: EntityId, settings: SubscriptionSettings) {
        let known = self
            .subscriptions
            .entry(subscription)
            .or_insert_with(|| Subscription { settings, rules: BTreeMap::new() });
        let before = std::mem::replace(&mut known.settings, settings);
        if before.catch_all == settings.catch_all {
            return;
        }
        let (from, to) = match settings.round() {
            Round::Ordinary => (&mut self.catch_all, &mut self.ordinary),
            Round::CatchAll => (&mut self.ordinary, &mut self.catch_all),
        };
        for place in known.rules.values() {
            if let Some(PlacedRule { rule, .. }) =
                self.rules.get(index(*place)).and_then(Option::as_ref)
            {
                from.remove(subscription, *place, rule);
                to.add(subscription, *place, rule);
            }
        }
    }

    /// Removes a subscription and its rules.
    pub fn remove_subscription(&mut self, subscription: EntityId) {
        if let Some(removed) = self.subscriptions.remove(&subscription) {
            let round = removed.settings.round();
            removed.rules.into_values().for_each(|place| self.take_out(round, place));
        }
    }

    /// Checks and compiles a new rule of a subscription (TOP-13). Changes nothing;
    /// [`Matcher::restore_rule`] adds it.
    ///
    /// # Errors
    /// As [`Rule::create`]; `EntityAlreadyExists` if the name is in use (ENT-13); `QuotaExceeded`
    /// if the topic has reached its number of rules of this kind (QUO-01).
    pub fn check_rule(
        &self,
        subscription: EntityId,
        description: RuleDescription,
        limits: &Limits,
    ) -> Result<Rule, Rejection> {
        let rule = Rule::create(description, limits)?;
        if self.place(subscription, rule.name()).is_some() {
            return Err(exists(&rule));
        }
        RuleCounts::of(self).check(&rule, limits)?;
        Ok(rule)
    }

    /// Checks and compiles a rule with another filter and action (TOP-24). It keeps its name and
    /// the instant of its creation. Changes nothing; [`Matcher::restore_rule`] replaces it.
    ///
    /// # Errors
    /// As [`Rule::create`]; `QuotaExceeded` as for a new rule; `EntityNotFound`.
    pub fn check_update(
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
        let mut counts = RuleCounts::of(self);
        counts.remove(current);
        counts.check(&rule, limits)?;
        Ok(rule)
    }

    /// Adds a rule after [`Matcher::check_rule`].
    ///
    /// # Errors
    /// As [`Matcher::check_rule`], with nothing changed.
    pub fn create_rule(
        &mut self,
        subscription: EntityId,
        description: RuleDescription,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let rule = self.check_rule(subscription, description, limits)?;
        self.restore_rule(subscription, rule);
        Ok(())
    }

    /// Replaces a rule after [`Matcher::check_update`].
    ///
    /// # Errors
    /// As [`Matcher::check_update`], with nothing changed.
    pub fn update_rule(
        &mut self,
        subscription: EntityId,
        description: RuleDescription,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let rule = self.check_update(subscription, description, limits)?;
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

    /// Adds a checked rule, and replaces a rule of the same name. Does nothing for an unknown
    /// subscription.
    pub fn restore_rule(&mut self, subscription: EntityId, rule: Rule) {
        self.forget_rule(subscription, rule.name());
        let Some(owner) = self.subscriptions.get_mut(&subscription) else { return };
        let place = self.free.pop().or_else(|| RulePlace::try_from(self.rules.len()).ok());
        let Some(place) = place else { return };
        self.version += 1;
        owner.rules.insert(rule.description().key(), place);
        let round = owner.settings.round();
        self.index_mut(round).add(subscription, place, &rule);
        self.plain_count += usize::from(!rule.is_sql());
        self.correlation_count += usize::from(rule.is_correlation());
        self.weight = self.weight.saturating_add(rule.weight());
        self.memory_bytes = self.memory_bytes.saturating_add(rule.memory_bytes());
        self.action_count += usize::from(rule.has_action());
        let entry = Some(PlacedRule { subscription, rule });
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

    /// Number of rules of all subscriptions.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.rules.len() - self.free.len()
    }

    /// Number of rules of a subscription.
    #[must_use]
    pub fn rule_count_of(&self, subscription: EntityId) -> usize {
        self.subscriptions.get(&subscription).map_or(0, |known| known.rules.len())
    }

    /// Number that grows with each change of a rule.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Subscriptions whose rule `$Default` selects every message, next to other rules, which then
    /// select no further message (TOP-12).
    pub fn defaults_among_others(&self) -> impl Iterator<Item = EntityId> {
        let has_default = |id: EntityId, known: &Subscription| {
            let default = (known.rules.len() > 1).then(|| self.rule(id, DEFAULT_RULE)).flatten();
            default.is_some_and(|rule| rule.description().filter == Filter::True)
        };
        let found = self.subscriptions.iter().filter(move |(id, known)| has_default(**id, known));
        found.map(|(id, _)| *id)
    }

    /// Bytes of memory of all rules: an estimate, on the high side.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Number of rules with an action.
    #[must_use]
    pub const fn action_count(&self) -> usize {
        self.action_count
    }

    /// Number of rules with an SQL filter, for their limit (QUO-01).
    #[must_use]
    pub fn sql_rule_count(&self) -> usize {
        self.ordinary.sql.len() + self.catch_all.sql.len()
    }

    /// Number of rules with a correlation filter. True and false filters count as SQL here
    /// (ADM-47).
    #[must_use]
    pub const fn correlation_rule_count(&self) -> usize {
        self.correlation_count
    }

    /// Number of subscriptions.
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

    pub(super) const fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) const fn index(&self, round: Round) -> &Index {
        match round {
            Round::Ordinary => &self.ordinary,
            Round::CatchAll => &self.catch_all,
        }
    }

    const fn index_mut(&mut self, round: Round) -> &mut Index {
        match round {
            Round::Ordinary => &mut self.ordinary,
            Round::CatchAll => &mut self.catch_all,
        }
    }

    pub(super) fn subscription(&self, id: EntityId) -> Option<&Subscription> {
        self.subscriptions.get(&id)
    }

    /// Returns the name of the rule at a place.
    #[must_use]
    pub fn name_at(&self, place: RulePlace) -> Option<&str> {
        Some(self.entry(place)?.rule.name())
    }

    pub(super) fn entry(&self, place: RulePlace) -> Option<&PlacedRule> {
        self.rules.get(index(place))?.as_ref()
    }

    fn place(&self, subscription: EntityId, name: &str) -> Option<RulePlace> {
        let subscription = self.subscriptions.get(&subscription)?;
        subscription.rules.get(name.to_ascii_lowercase().as_str()).copied()
    }

    /// Removes a rule and returns whether it existed.
    fn forget_rule(&mut self, subscription: EntityId, name: &str) -> bool {
        let Some(owner) = self.subscriptions.get_mut(&subscription) else { return false };
        let Some(place) = owner.rules.remove(name.to_ascii_lowercase().as_str()) else {
            return false;
        };
        let round = owner.settings.round();
        self.take_out(round, place);
        true
    }

    fn take_out(&mut self, round: Round, place: RulePlace) {
        let Some(entry) = self.rules.get_mut(index(place)).and_then(Option::take) else { return };
        self.free.push(place);
        self.version += 1;
        self.plain_count -= usize::from(!entry.rule.is_sql());
        self.correlation_count -= usize::from(entry.rule.is_correlation());
        self.weight = self.weight.saturating_sub(entry.rule.weight());
        self.memory_bytes = self.memory_bytes.saturating_sub(entry.rule.memory_bytes());
        self.action_count -= usize::from(entry.rule.has_action());
        self.index_mut(round).remove(entry.subscription, place, &entry.rule);
    }
}

/// Number of rules of a topic by kind, over all subscriptions.
struct RuleCounts {
    sql: usize,
    plain: usize,
}

impl RuleCounts {
    fn of(matcher: &Matcher) -> Self {
        Self { sql: matcher.sql_rule_count(), plain: matcher.plain_count }
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

    /// Refuses a rule beyond the limit of its kind (QUO-01).
    fn check(&mut self, rule: &Rule, limits: &Limits) -> Result<(), Rejection> {
        let (limit, kind) = if rule.is_sql() {
            (limits.rule_sql_count_max, "SQL rules")
        } else {
            (limits.rule_correlation_count_max, "correlation rules")
        };
        if *self.count_of(rule) < limit {
            return Ok(());
        }
        Err(Rejection::quota_exceeded(format!(
            "rule {} is one more than the {limit} {kind} that a topic can have; delete others first",
            Quoted(rule.name())
        )))
    }
}

/// The key of a correlation filter in the index.
fn index_key(rule: &Rule) -> (Box<[Property]>, u64) {
    let conditions =
        rule.correlation().map(CorrelationFilter::ordered_conditions).unwrap_or_default();
    let properties = conditions.iter().map(|condition| condition.property()).collect();
    (properties, hash_wanted(&conditions))
}

fn exists(rule: &Rule) -> Rejection {
    let detail = format!("rule {} already exists", Quoted(rule.name()));
    Rejection::new(Condition::EntityAlreadyExists, detail)
}

fn not_found(name: &str) -> Rejection {
    Rejection::new(Condition::EntityNotFound, format!("there is no rule {}", Quoted(name)))
}

fn index(place: RulePlace) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}
