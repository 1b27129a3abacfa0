//! What is wrong with a declaration whatever the namespace has (DEC-04).

use std::collections::BTreeSet;
use std::fmt;

use super::{Declaration, DeclaredSubscription, DeclaredTopic};
use crate::description::Settings;
use crate::error::{Quoted, Rejection};
use crate::path::{PathKey, validate_entity_path, validate_subscription_name};
use crate::rule::Rule;

/// Queues, topics and subscriptions of one declaration.
pub const ENTITY_COUNT_MAX: usize = 10_000;
/// Rules of one declaration.
pub const RULE_COUNT_MAX: usize = 20_000;

/// Why a declaration is refused, and the place in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misdeclared {
    /// Such as `topics[1].subscriptions[0].rules[2]`; empty for the whole.
    pub place: String,
    /// What is wrong there.
    pub rejection: Rejection,
}

impl Misdeclared {
    pub(super) fn at(place: impl Into<String>) -> impl FnOnce(Rejection) -> Self {
        let place = place.into();
        |rejection| Self { place, rejection }
    }

    /// The refusal, with the place in its text.
    #[must_use]
    pub fn into_rejection(self) -> Rejection {
        match self.place.as_str() {
            "" => self.rejection,
            place => Rejection::new(
                self.rejection.condition(),
                format!("{place}: {}", self.rejection.detail()),
            ),
        }
    }
}

impl fmt::Display for Misdeclared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.clone().into_rejection().detail())
    }
}

pub(super) fn place_of_queue(index: usize) -> String {
    format!("queues[{index}]")
}

pub(super) fn place_of_topic(index: usize) -> String {
    format!("topics[{index}]")
}

pub(super) fn place_of_subscription(topic: usize, index: usize) -> String {
    format!("topics[{topic}].subscriptions[{index}]")
}

impl Declaration {
    /// Judges everything by itself: names, values and what is declared twice.
    ///
    /// # Errors
    /// With what is refused first, as the operation that creates it would refuse it.
    pub fn judge(&self, settings: &Settings) -> Result<(), Misdeclared> {
        self.judge_counts()?;
        let (roots, most) =
            (self.queues.len() + self.topics.len(), settings.limits.entity_count_max);
        if roots > most {
            let detail =
                format!("{roots} queues and topics are more than limits.entity_count_max = {most}");
            return Err(Misdeclared::at("queues")(Rejection::quota_exceeded(detail)));
        }
        let mut paths = BTreeSet::new();
        for (index, queue) in self.queues.iter().enumerate() {
            let judged = validate_entity_path(&queue.path, &settings.limits).and_then(|name| {
                queue.properties.clone().create(name.path(), settings)?;
                only_once(&mut paths, name.key(), "path", &queue.path)
            });
            judged.map_err(Misdeclared::at(place_of_queue(index)))?;
        }
        for (index, topic) in self.topics.iter().enumerate() {
            let judged = validate_entity_path(&topic.path, &settings.limits).and_then(|name| {
                topic.properties.clone().create(name.path(), settings)?;
                only_once(&mut paths, name.key(), "path", &topic.path)
            });
            judged.map_err(Misdeclared::at(place_of_topic(index)))?;
            judge_subscriptions(index, topic, settings)?;
        }
        Ok(())
    }

    /// Judges how much there is of everything, which whoever carries it out in parts has to do for the whole.
    ///
    /// # Errors
    /// `QuotaExceeded` for more than [`ENTITY_COUNT_MAX`] entities or [`RULE_COUNT_MAX`] rules.
    pub fn judge_counts(&self) -> Result<(), Misdeclared> {
        let subscriptions = || self.topics.iter().flat_map(|topic| &topic.subscriptions);
        let entities = self.queues.len() + self.topics.len() + subscriptions().count();
        let rules = subscriptions().filter_map(|it| it.rules.as_ref()).map(Vec::len).sum();
        let counts = [
            (entities, ENTITY_COUNT_MAX, "queues, topics and subscriptions"),
            (rules, RULE_COUNT_MAX, "rules"),
        ];
        for (count, most, what) in counts {
            if count > most {
                let detail = format!(
                    "the declaration has {count} {what}, more than {most}; declare them in several"
                );
                return Err(Misdeclared::at("")(Rejection::quota_exceeded(detail)));
            }
        }
        Ok(())
    }
}

fn judge_subscriptions(
    index: usize,
    topic: &DeclaredTopic,
    settings: &Settings,
) -> Result<(), Misdeclared> {
    let mut names = BTreeSet::new();
    for (below, subscription) in topic.subscriptions.iter().enumerate() {
        let place = place_of_subscription(index, below);
        let DeclaredSubscription { name, properties, rules, .. } = subscription;
        let judged = validate_subscription_name(name, &settings.limits).and_then(|()| {
            properties.clone().create(&*topic.path, &**name, settings)?;
            only_once(&mut names, PathKey::fold(name), "subscription", name)
        });
        judged.map_err(Misdeclared::at(&*place))?;
        let mut rule_names = BTreeSet::new();
        for (at, rule) in rules.iter().flatten().enumerate() {
            let judged = Rule::create(rule.clone(), &settings.limits).and_then(|_| {
                only_once(&mut rule_names, PathKey::fold(&rule.name), "rule", &rule.name)
            });
            judged.map_err(Misdeclared::at(format!("{place}.rules[{at}]")))?;
        }
    }
    Ok(())
}

fn only_once(
    known: &mut BTreeSet<PathKey>,
    key: PathKey,
    what: &str,
    name: &str,
) -> Result<(), Rejection> {
    if known.insert(key) {
        return Ok(());
    }
    let detail = format!("the {what} {} is declared twice; keep one", Quoted(name));
    Err(Rejection::argument(detail))
}
