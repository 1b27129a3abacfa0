//! Declarations: the desired entities and rules of a namespace, and the plan that creates them
//! (file 27 of the specification).
//!
//! ```text
//!  Declaration ──┐
//!                ├──► plan (pure) ──► Plan: steps, digest ──► carry out, step by step, with the
//!  Snapshot ─────┘                                            checks of every management operation
//! ```
//!
//! `judge` finds faults that do not depend on the namespace, `planner` the missing work, and
//! `rules` the differences between rules. `order` orders the steps, `property_text` describes properties as
//! text, and `weight` computes the memory. Long ones yield through `yielder`, since connections
//! use the same thread. Queries and changes of the broker are in `access/declare.rs`;
//! `access/unnamed.rs` finds entities to delete. By default, entities that are not named stay.

mod judge;
mod order;
mod plan;
pub(crate) mod planner;
mod property_text;
pub(crate) mod rules;
#[cfg(test)]
mod tests;
mod weight;
pub(crate) mod yielder;

pub use judge::{DeclarationError, ENTITY_COUNT_MAX, RULE_COUNT_MAX};
pub use plan::{Change, Digest, Plan, Step, StepKind};
pub(crate) use property_text::{changes, named, rule_text};

use crate::description::{Cleared, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::BrokerError;
use crate::rule::RuleDescription;

/// Maximum number of steps that one request of a remote caller carries out: the caller sees
/// progress, and a broken connection leaves few results unknown (DEC-10).
pub const STEP_COUNT_MAX: usize = 100;

/// Maximum number of entities that one plan deletes, since their number is not bounded by the
/// declaration.
pub const PLAN_DELETE_COUNT_MAX: usize = 10_000;

/// Maximum bytes in a plan of existing rules that change or are removed, since their number is not
/// bounded by the declaration. Each rule counts with its overhead.
pub const PLAN_RULE_BYTES_MAX: usize = 8 << 20;

/// Desired queues, topics, subscriptions and rules (DEC-01).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Declaration {
    /// The queues, in any order.
    pub queues: Vec<DeclaredQueue>,
    /// The topics with their subscriptions, in any order.
    pub topics: Vec<DeclaredTopic>,
    /// Treatment of existing entities that differ.
    pub existing: Existing,
    /// Treatment of existing entities that are not named.
    pub unnamed: Unnamed,
    /// Paths of entities that this declaration never deletes, ignoring case. A plan that would
    /// delete one, or the topic of a subscription among them, is refused (DEC-19).
    pub protected: Vec<Box<str>>,
}

/// Treatment of an existing entity that differs from the declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// The entity is updated.
    #[default]
    Update,
    /// The entity stays unchanged, and the plan lists the differences ([`Plan::kept`]).
    Keep,
}

/// Treatment of existing queues, topics, and subscriptions of declared topics that a declaration
/// does not name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unnamed {
    /// They stay unchanged.
    #[default]
    Keep,
    /// They are deleted with their messages after all other steps (DEC-18). This needs Manage on
    /// the namespace.
    Delete,
}

/// A desired queue.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclaredQueue {
    /// Its path.
    pub path: Box<str>,
    /// Named properties. Others have their defaults at creation and are kept afterwards (DEC-02).
    pub properties: QueueUpdate,
    /// Properties whose current values are removed.
    pub cleared: Cleared,
}

/// A desired topic.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclaredTopic {
    /// Its path.
    pub path: Box<str>,
    /// As [`DeclaredQueue::properties`].
    pub properties: TopicUpdate,
    /// As [`DeclaredQueue::cleared`].
    pub cleared: Cleared,
    /// Declared subscriptions; other existing ones stay unchanged.
    pub subscriptions: Vec<DeclaredSubscription>,
}

/// A desired subscription.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclaredSubscription {
    /// Its name.
    pub name: Box<str>,
    /// As [`DeclaredQueue::properties`].
    pub properties: SubscriptionUpdate,
    /// As [`DeclaredQueue::cleared`].
    pub cleared: Cleared,
    /// The complete list of its rules. Without a list, it has `$Default` at creation and keeps
    /// existing rules afterwards (DEC-03).
    pub rules: Option<Vec<RuleDescription>>,
    /// Treatment of rules that are not in the list.
    pub other_rules: OtherRules,
}

/// Treatment of existing rules that are not in the list of their subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OtherRules {
    /// They are removed.
    #[default]
    Remove,
    /// They are kept, except `$Default` (ADM-64).
    Keep,
}

/// Result of carrying steps out (DEC-10, DEC-11).
#[derive(Debug)]
pub struct PlanResult {
    /// Number of completed steps from the start.
    pub done: usize,
    /// Remaining steps, with the digest to carry them out.
    pub rest: Plan,
    /// Error of the first remaining step, if it was tried.
    pub failure: Option<BrokerError>,
}

impl Declaration {
    /// Creates an empty declaration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a queue.
    #[must_use]
    pub fn with_queue(mut self, queue: DeclaredQueue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Adds a topic.
    #[must_use]
    pub fn with_topic(mut self, topic: DeclaredTopic) -> Self {
        self.topics.push(topic);
        self
    }

    /// Sets the treatment of existing entities that differ.
    #[must_use]
    pub const fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Sets the treatment of existing entities that are not named.
    #[must_use]
    pub const fn unnamed(mut self, unnamed: Unnamed) -> Self {
        self.unnamed = unnamed;
        self
    }
}

impl From<&Self> for Declaration {
    fn from(declaration: &Self) -> Self {
        declaration.clone()
    }
}

impl From<DeclaredQueue> for Declaration {
    fn from(queue: DeclaredQueue) -> Self {
        Self::new().with_queue(queue)
    }
}

impl From<DeclaredTopic> for Declaration {
    fn from(topic: DeclaredTopic) -> Self {
        Self::new().with_topic(topic)
    }
}

impl DeclaredQueue {
    /// Creates a queue with only a path.
    #[must_use]
    pub fn new(path: impl Into<Box<str>>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Sets the properties.
    #[must_use]
    pub fn with(mut self, properties: QueueUpdate) -> Self {
        self.properties = properties;
        self
    }
}

impl DeclaredTopic {
    /// Creates a topic with only a path.
    #[must_use]
    pub fn new(path: impl Into<Box<str>>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Sets the properties.
    #[must_use]
    pub fn with(mut self, properties: TopicUpdate) -> Self {
        self.properties = properties;
        self
    }

    /// Adds a subscription.
    #[must_use]
    pub fn with_subscription(mut self, subscription: DeclaredSubscription) -> Self {
        self.subscriptions.push(subscription);
        self
    }
}

impl DeclaredSubscription {
    /// Creates a subscription with only a name.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the properties.
    #[must_use]
    pub fn with(mut self, properties: SubscriptionUpdate) -> Self {
        self.properties = properties;
        self
    }

    /// Sets the complete list of rules.
    #[must_use]
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = RuleDescription>) -> Self {
        self.rules = Some(rules.into_iter().collect());
        self
    }
}
