//! What is asked about entities, and answered.

use std::sync::Arc;

use peeklock_core::command::{Described, DescribedSubscription, DescribedTopic, SessionFilter};
use peeklock_core::declaration::{CarriedOut, Declaration, Digest, Plan};
use peeklock_core::description::{EntityKind, Patch, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};
use peeklock_core::rule::{Explanation, RuleDescription};
use peeklock_core::time::Timestamp;

/// What is asked about the entity of a path, or without one about the namespace.
#[derive(Clone, Debug)]
pub enum Management {
    /// Creates a queue (ENT-03). Answer: [`Managed::Queue`].
    CreateQueue(Box<QueueUpdate>),
    /// Reads a queue (ENT-31). Answer: [`Managed::Queue`].
    Queue,
    /// Changes a queue. Answer: [`Managed::Queue`].
    UpdateQueue(Box<QueueUpdate>, Patch),
    /// Reads queues of the namespace (ENT-30). Answer: [`Managed::Queues`].
    Queues(Page),
    /// Creates a topic (ENT-03). Answer: [`Managed::Topic`].
    CreateTopic(Box<TopicUpdate>),
    /// Reads a topic (ENT-31). Answer: [`Managed::Topic`].
    Topic,
    /// Changes a topic. Answer: [`Managed::Topic`].
    UpdateTopic(Box<TopicUpdate>, Patch),
    /// Reads topics of the namespace (ENT-30). Answer: [`Managed::Topics`].
    Topics(Page),
    /// Creates a subscription of the topic, with these rules or with `$Default` (TOP-12). Answer:
    /// [`Managed::Subscription`].
    CreateSubscription {
        /// Its name.
        name: Box<str>,
        /// Its properties.
        properties: Box<SubscriptionUpdate>,
        /// Its rules.
        rules: Vec<RuleDescription>,
    },
    /// Reads a subscription (ENT-31). Answer: [`Managed::Subscription`].
    Subscription,
    /// Changes a subscription. Answer: [`Managed::Subscription`].
    UpdateSubscription(Box<SubscriptionUpdate>, Patch),
    /// Reads subscriptions of the topic (ENT-30). Answer: [`Managed::Subscriptions`].
    Subscriptions(Page),
    /// Deletes the entity, if it is of this kind (ENT-14). Answer: [`Managed::Done`].
    Delete(EntityKind),
    /// The paths of entities of a kind: of the namespace, or of subscriptions of the topic (ENT-30).
    /// Answer: [`Managed::Paths`].
    Paths(EntityKind, Page),
    /// Adds a rule to the subscription (TOP-13). Answer: [`Managed::Rules`] with one.
    CreateRule(Box<RuleDescription>),
    /// Replaces filter and action of a rule (TOP-24). Answer: [`Managed::Rules`] with one.
    UpdateRule(Box<RuleDescription>),
    /// Removes a rule (TOP-13). Answer: [`Managed::Done`].
    DeleteRule(Box<str>),
    /// Reads one rule. Answer: [`Managed::Rules`] with one.
    Rule(Box<str>),
    /// Reads rules of the subscription (ENT-30). Answer: [`Managed::Rules`].
    Rules(Page),
    /// Tells which rules of the subscription select a message. Answer: [`Managed::Explained`].
    Explain(Box<Message>),
    /// Names sessions (SES-29). Answer: [`Managed::Sessions`].
    Sessions(SessionFilter, Page),
    /// Removes one deferred message (DEL-09). Answer: [`Managed::Done`].
    DeleteDeferred(SequenceNumber),
    /// Removes available messages of all sessions that nobody holds, as many as the broker allows at once
    /// if no count is given (DEL-07). Answer: [`Managed::Deleted`].
    DeleteUnlocked {
        /// At most this many.
        count_max: Option<u32>,
        /// Only messages enqueued before this instant; `None` is now.
        enqueued_before: Option<Timestamp>,
    },
    /// Reads the policies of the queue or topic, without one of the namespace (SEC-02). Answer:
    /// [`Managed::Policies`].
    Policies,
    /// Reads one of them. Answer: [`Managed::Policies`] with one.
    Policy(Box<str>),
    /// Creates a policy. Answer: [`Managed::Policies`] with one.
    CreatePolicy(Box<str>, PolicyUpdate),
    /// Changes a policy. Answer: [`Managed::Policies`] with one.
    UpdatePolicy(Box<str>, PolicyUpdate),
    /// Deletes a policy. Answer: [`Managed::Done`].
    DeletePolicy(Box<str>),
    /// Reads the keys of a policy. Answer: [`Managed::PolicyKeys`].
    PolicyKeys(Box<str>),
    /// Puts another key in the place of one, or the one given (SEC-09). Answer: [`Managed::PolicyKeys`].
    RegenerateKey(Box<str>, WhichKey, Option<KeyText>),
    /// Tells the steps that make the namespace as declared (DEC-06). Answer: [`Managed::Plan`].
    Plan(Box<Declaration>),
    /// Carries out the first steps of the plan of that digest (DEC-10). Answer: [`Managed::CarriedOut`].
    CarryOut(Box<Declaration>, Digest),
}

/// A part of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// So many of the first are left out.
    pub skip: usize,
    /// At most this many; as many as the broker gives at once if there is none.
    pub top: Option<usize>,
}

/// What is answered.
#[derive(Debug)]
pub enum Managed {
    /// It is done.
    Done,
    /// A queue.
    Queue(Box<Described>),
    /// Queues, in case-insensitive order of their paths.
    Queues(Vec<Described>),
    /// A topic.
    Topic(Box<DescribedTopic>),
    /// Topics, in case-insensitive order of their paths.
    Topics(Vec<DescribedTopic>),
    /// A subscription.
    Subscription(Box<DescribedSubscription>),
    /// Subscriptions, in case-insensitive order of their names.
    Subscriptions(Vec<DescribedSubscription>),
    /// Paths, in case-insensitive order.
    Paths(Vec<Arc<str>>),
    /// Rules, in the order of their names.
    Rules(Vec<RuleDescription>),
    /// What each rule makes of a message.
    Explained(Vec<Explanation>),
    /// Ids of sessions, ascending.
    Sessions(Vec<Arc<str>>),
    /// How many messages were removed.
    Deleted(u64),
    /// Policies, in the order of their names.
    Policies(Vec<PolicyDescription>),
    /// A policy with its keys.
    PolicyKeys(Box<PolicyKeys>),
    /// The steps of a declaration.
    Plan(Box<Plan>),
    /// What became of them; boxed, since most answers are small.
    CarriedOut(Box<CarriedOut>),
}
