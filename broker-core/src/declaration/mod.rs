//! Declarations: the entities and rules of a namespace as they shall be, and the plan that makes them so (file 27 of the
//! specification).
//!
//! ```text
//!  Declaration ──┐
//!                ├──► plan (pure) ──► Plan: steps, digest ──► carry out, step by step, by the same door
//!  Snapshot ─────┘                                            as every management operation
//! ```
//!
//! `judge` says what no namespace could make so, `planner` what one has to do, `rules` what of the rules of a
//! subscription, `order` in which order, `weight` what that takes in memory; all of them by way of `breather`, for
//! connections live on the same thread. What is asked of the broker, and what is done, is in `access/declare.rs`.
//! Absent on purpose: deletion of entities. What is not named stays as it is.

pub(crate) mod breather;
mod judge;
mod order;
mod plan;
pub(crate) mod planner;
pub(crate) mod rules;
#[cfg(test)]
mod tests;
mod told;
mod weight;

pub use judge::{ENTITY_COUNT_MAX, Misdeclared, RULE_COUNT_MAX};
pub use plan::{Change, Digest, Plan, Step, StepKind};

use crate::description::{Cleared, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::BrokerError;
use crate::rule::RuleDescription;

/// The steps that a remote caller has done at once, at most: it hears of progress, and a broken connection leaves little
/// unsaid (DEC-10).
pub const STEP_COUNT_MAX: usize = 100;

/// What a plan has at most of rules that are there, and change or go: they are as many as somebody has created, and the
/// declaration need not say anything of them. Each counts with what it takes beside its text.
pub const TOLD_BYTES_MAX: usize = 8 << 20;

/// Queues, topics, subscriptions and rules as they shall be (DEC-01).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Declaration {
    /// The queues, in any order.
    pub queues: Vec<DeclaredQueue>,
    /// The topics with what is below them, in any order.
    pub topics: Vec<DeclaredTopic>,
    /// What becomes of entities that exist and differ.
    pub existing: Existing,
}

/// What becomes of an entity that exists and differs from what is declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// It is updated.
    #[default]
    IsUpdated,
    /// It is left as it is, and the plan says how it differs ([`Plan::kept`]).
    IsKept,
}

/// A queue as it shall be.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclaredQueue {
    /// Its path.
    pub path: Box<str>,
    /// The properties named; any other one has its default at creation and is kept afterwards (DEC-02).
    pub properties: QueueUpdate,
    /// Properties that shall have no value, whatever they have now.
    pub cleared: Cleared,
}

/// A topic as it shall be.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclaredTopic {
    /// Its path.
    pub path: Box<str>,
    /// As [`DeclaredQueue::properties`].
    pub properties: TopicUpdate,
    /// As [`DeclaredQueue::cleared`].
    pub cleared: Cleared,
    /// The subscriptions; others that it has stay as they are.
    pub subscriptions: Vec<DeclaredSubscription>,
}

/// A subscription as it shall be.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclaredSubscription {
    /// Its name.
    pub name: Box<str>,
    /// As [`DeclaredQueue::properties`].
    pub properties: SubscriptionUpdate,
    /// As [`DeclaredQueue::cleared`].
    pub cleared: Cleared,
    /// Exactly the rules that it has; without a list `$Default` at creation, and afterwards those it has (DEC-03).
    pub rules: Option<Vec<RuleDescription>>,
    /// What becomes of rules that are not among them.
    pub other_rules: OtherRules,
}

/// What becomes of rules of a subscription that declares some and not these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OtherRules {
    /// They are removed.
    #[default]
    AreRemoved,
    /// They stay, but for `$Default` (ADM-64).
    AreKept,
}

/// What became of the steps that were asked for (DEC-10, DEC-11).
#[derive(Debug)]
pub struct CarriedOut {
    /// So many of the first steps are done.
    pub done: usize,
    /// The steps that are left, with the digest by which they are carried out.
    pub rest: Plan,
    /// Why the first of them failed, if it was tried.
    pub failure: Option<BrokerError>,
}

impl Declaration {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this queue, too.
    #[must_use]
    pub fn with_queue(mut self, queue: DeclaredQueue) -> Self {
        self.queues.push(queue);
        self
    }

    /// With this topic, too.
    #[must_use]
    pub fn with_topic(mut self, topic: DeclaredTopic) -> Self {
        self.topics.push(topic);
        self
    }

    /// The same, for entities that exist and differ.
    #[must_use]
    pub const fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
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
    /// A queue of which only the path is named.
    #[must_use]
    pub fn new(path: impl Into<Box<str>>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// With these properties.
    #[must_use]
    pub fn with(mut self, properties: QueueUpdate) -> Self {
        self.properties = properties;
        self
    }
}

impl DeclaredTopic {
    /// A topic of which only the path is named.
    #[must_use]
    pub fn new(path: impl Into<Box<str>>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// With these properties.
    #[must_use]
    pub fn with(mut self, properties: TopicUpdate) -> Self {
        self.properties = properties;
        self
    }

    /// With this subscription, too.
    #[must_use]
    pub fn with_subscription(mut self, subscription: DeclaredSubscription) -> Self {
        self.subscriptions.push(subscription);
        self
    }
}

impl DeclaredSubscription {
    /// A subscription of which only the name is named.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// With these properties.
    #[must_use]
    pub fn with(mut self, properties: SubscriptionUpdate) -> Self {
        self.properties = properties;
        self
    }

    /// With exactly these rules.
    #[must_use]
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = RuleDescription>) -> Self {
        self.rules = Some(rules.into_iter().collect());
        self
    }
}
