//! Faults of a declaration that do not depend on the namespace (DEC-04). `access/declare.rs` calls
//! it before a plan is made, and the configuration at start. The rejection names the place of the
//! fault.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::Enumerate;
use std::slice::Iter;

use super::yielder::Yielder;
use super::{Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic, Unnamed};
use crate::description::Settings;
use crate::error::{Quoted, Rejection};
use crate::path::{PathKey, validate_entity_path, validate_subscription_name};
use crate::rule::{Rule, RuleDescription};

/// Maximum number of queues, topics and subscriptions in one declaration.
pub const ENTITY_COUNT_MAX: usize = 10_000;
/// Maximum number of rules in one declaration.
pub const RULE_COUNT_MAX: usize = 20_000;

/// Reason for refusing a declaration, and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclarationError {
    /// Place, for example `topics[1].subscriptions[0].rules[2]`; empty for the whole declaration.
    pub place: String,
    /// Fault at that place.
    pub rejection: Rejection,
}

impl DeclarationError {
    pub(super) fn at(place: impl Into<String>) -> impl FnOnce(Rejection) -> Self {
        let place = place.into();
        |rejection| Self { place, rejection }
    }

    /// Converts it to a rejection with the place in its text.
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

impl fmt::Display for DeclarationError {
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
    /// Judges names, values and duplicates, independent of the namespace.
    ///
    /// # Errors
    /// The first fault, with the error of the operation that would create the entity or rule.
    pub fn judge(&self, settings: &Settings) -> Result<(), DeclarationError> {
        Judge::begin(self, settings)?.collect()
    }

    /// As [`Declaration::judge`], but yields to other tasks of the thread.
    ///
    /// # Errors
    /// As for [`Declaration::judge`].
    pub(crate) async fn judge_in_parts(
        &self,
        settings: &Settings,
        yielder: &mut Yielder,
    ) -> Result<(), DeclarationError> {
        for judged in Judge::begin(self, settings)? {
            judged?;
            yielder.part().await;
        }
        Ok(())
    }

    /// Judges the number of entities and rules. Callers that carry a declaration out in parts must
    /// call it for the whole.
    ///
    /// # Errors
    /// `QuotaExceeded` for more than [`ENTITY_COUNT_MAX`] entities or [`RULE_COUNT_MAX`] rules.
    pub fn judge_counts(&self) -> Result<(), DeclarationError> {
        let subscriptions = || self.topics.iter().flat_map(|topic| &topic.subscriptions);
        let entities = self.queues.len() + self.topics.len() + subscriptions().count();
        let rules = subscriptions().filter_map(|it| it.rules.as_ref()).map(Vec::len).sum();
        let counts = [
            (entities, ENTITY_COUNT_MAX, "queues, topics and subscriptions"),
            (rules, RULE_COUNT_MAX, "rules"),
        ];
        for (count, most, kind) in counts {
            if count > most {
                let detail = format!(
                    "the declaration has {count} {kind}, more than {most}; declare them in several"
                );
                return Err(DeclarationError::at("")(Rejection::quota_exceeded(detail)));
            }
        }
        Ok(())
    }
}

impl Declaration {
    /// Refuses a declaration that names nothing and would therefore delete all entities (DEC-18).
    fn judge_deletion(&self) -> Result<(), DeclarationError> {
        let names_nothing = self.queues.is_empty() && self.topics.is_empty();
        if self.unnamed == Unnamed::Delete && names_nothing {
            let detail = "the declaration names no entity, so all would be deleted; name at least \
                          one, or keep entities that are not named";
            return Err(DeclarationError::at("")(Rejection::argument(detail)));
        }
        Ok(())
    }
}

/// Judges one item after the other: queues, then each topic, each of its subscriptions, and each of
/// their rules.
struct Judge<'a> {
    settings: &'a Settings,
    queues: Enumerate<Iter<'a, DeclaredQueue>>,
    topics: Enumerate<Iter<'a, DeclaredTopic>>,
    /// Place and path of the topic whose subscriptions are judged.
    topic: (usize, &'a str),
    subscriptions: Enumerate<Iter<'a, DeclaredSubscription>>,
    /// Place of the subscription whose rules are judged.
    subscription: usize,
    rules: Enumerate<Iter<'a, RuleDescription>>,
    /// Keys already declared: queues and topics, subscriptions of the topic, rules of the
    /// subscription.
    paths: BTreeSet<PathKey>,
    names: BTreeSet<PathKey>,
    rule_names: BTreeSet<PathKey>,
}

impl<'a> Judge<'a> {
    /// Refuses too many entities or rules at once.
    fn begin(
        declaration: &'a Declaration,
        settings: &'a Settings,
    ) -> Result<Self, DeclarationError> {
        declaration.judge_counts()?;
        declaration.judge_deletion()?;
        let (roots, most) =
            (declaration.queues.len() + declaration.topics.len(), settings.limits.entity_count_max);
        if roots > most {
            let detail = format!(
                "{roots} queues and topics are more than limits.entity_count_max = {most}; declare \
                 fewer"
            );
            return Err(DeclarationError::at("queues")(Rejection::quota_exceeded(detail)));
        }
        Ok(Self {
            settings,
            queues: declaration.queues.iter().enumerate(),
            topics: declaration.topics.iter().enumerate(),
            topic: (0, ""),
            subscriptions: Enumerate::default(),
            subscription: 0,
            rules: Enumerate::default(),
            paths: BTreeSet::new(),
            names: BTreeSet::new(),
            rule_names: BTreeSet::new(),
        })
    }

    fn queue(&mut self, index: usize, queue: &DeclaredQueue) -> Result<(), DeclarationError> {
        let judged = validate_entity_path(&queue.path, &self.settings.limits).and_then(|name| {
            queue.properties.clone().create(name.path(), self.settings)?;
            only_once(&mut self.paths, name.key(), "path", &queue.path)
        });
        judged.map_err(DeclarationError::at(place_of_queue(index)))
    }

    fn topic(&mut self, index: usize, topic: &'a DeclaredTopic) -> Result<(), DeclarationError> {
        self.topic = (index, &topic.path);
        self.subscriptions = topic.subscriptions.iter().enumerate();
        self.names.clear();
        let judged = validate_entity_path(&topic.path, &self.settings.limits).and_then(|name| {
            topic.properties.clone().create(name.path(), self.settings)?;
            only_once(&mut self.paths, name.key(), "path", &topic.path)
        });
        judged.map_err(DeclarationError::at(place_of_topic(index)))
    }

    fn subscription(
        &mut self,
        index: usize,
        subscription: &'a DeclaredSubscription,
    ) -> Result<(), DeclarationError> {
        let DeclaredSubscription { name, properties, rules, .. } = subscription;
        self.subscription = index;
        self.rules = rules.as_deref().unwrap_or_default().iter().enumerate();
        self.rule_names.clear();
        let (place, topic) = self.topic;
        let judged = validate_subscription_name(name, &self.settings.limits).and_then(|()| {
            properties.clone().create(topic, &**name, self.settings)?;
            only_once(&mut self.names, PathKey::fold(name), "subscription", name)
        });
        judged.map_err(DeclarationError::at(place_of_subscription(place, index)))
    }

    fn rule(&mut self, index: usize, rule: &RuleDescription) -> Result<(), DeclarationError> {
        let judged = Rule::create(rule.clone(), &self.settings.limits).and_then(|_| {
            only_once(&mut self.rule_names, PathKey::fold(&rule.name), "rule", &rule.name)
        });
        judged.map_err(|rejection| {
            let place = place_of_subscription(self.topic.0, self.subscription);
            DeclarationError { place: format!("{place}.rules[{index}]"), rejection }
        })
    }
}

impl Iterator for Judge<'_> {
    type Item = Result<(), DeclarationError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((index, rule)) = self.rules.next() {
            return Some(self.rule(index, rule));
        }
        if let Some((index, subscription)) = self.subscriptions.next() {
            return Some(self.subscription(index, subscription));
        }
        if let Some((index, queue)) = self.queues.next() {
            return Some(self.queue(index, queue));
        }
        let (index, topic) = self.topics.next()?;
        Some(self.topic(index, topic))
    }
}

fn only_once(
    known: &mut BTreeSet<PathKey>,
    key: PathKey,
    kind: &str,
    name: &str,
) -> Result<(), Rejection> {
    if known.insert(key) {
        return Ok(());
    }
    let detail = format!("the {kind} {} is declared twice; keep one", Quoted(name));
    Err(Rejection::argument(detail))
}
