//! Management requests and their answers: entities, rules, policies and declarations, once for all
//! transports.
//!
//! ```text
//!  route, call ──► Management ──► Access::manage: rights, forwarding, broker ──► Managed
//! ```
//!
//! A transport maps its own form to [`Management`] and [`Managed`] back to its own form. The enums
//! stand next to declarations and policies, of which they are made, and not among the commands of
//! entities.

use std::sync::Arc;

use crate::checks::report::MuteChange;
use crate::command::{
    ActedMessage, Described, DescribedSubscription, DescribedTopic, InboundMessage,
    OperatorCommand, SessionFilter,
};
use crate::contract::action::Action;
use crate::declaration::{Declaration, Digest, Plan, PlanResult};
use crate::description::{EntityKind, Patch, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::findings::{ClientId, Findings, Question};
use crate::ids::{JobId, SequenceNumber};
use crate::jobs::{JobControl, JobDraft};
use crate::message::Message;
use crate::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};
use crate::rule::{Explanation, RuleDescription};
use crate::shared::Namespace;
use crate::time::Timestamp;

/// A request about the entity of a path; without a path, about the namespace. A request that reads
/// is named like its answer (`Queue`, `Queues`, `PolicyKeys`); any other starts with its verb.
#[derive(Clone, Debug)]
pub enum Management {
    /// Reads name, tier and instants of the namespace (CNT-10). Answer: [`Managed::Namespace`].
    Namespace,
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
    /// Reads paths of entities of a kind: of the namespace, or of subscriptions of the topic
    /// (ENT-30). Answer: [`Managed::Paths`].
    Paths(EntityKind, Page),
    /// Adds a rule to the subscription (TOP-13). Answer: [`Managed::Rule`].
    CreateRule(Box<RuleDescription>),
    /// Replaces filter and action of a rule (TOP-24). Answer: [`Managed::Rule`].
    UpdateRule(Box<RuleDescription>),
    /// Removes a rule (TOP-13). Answer: [`Managed::Done`].
    DeleteRule(Box<str>),
    /// Adds a rule as a receiver of the subscription, with the right Listen (SEC-06). Answer:
    /// [`Managed::Rule`].
    CreateOwnRule(Box<RuleDescription>),
    /// Removes a rule as a receiver of the subscription, with the right Listen (SEC-06). Answer:
    /// [`Managed::Done`].
    DeleteOwnRule(Box<str>),
    /// Reads one rule. Answer: [`Managed::Rule`].
    Rule(Box<str>),
    /// Reads rules of the subscription (ENT-30). Answer: [`Managed::Rules`].
    Rules(Page),
    /// Explains which rules of the subscription select a message (MAT-01). Answer:
    /// [`Managed::Explained`].
    Explain(Box<SampleMessage>),
    /// Reads ids of sessions (SES-29). Answer: [`Managed::Sessions`].
    Sessions(SessionFilter, Page),
    /// Removes one deferred message (DEL-09). Answer: [`Managed::Done`].
    DeleteDeferred(SequenceNumber),
    /// Removes available messages of all sessions that are not held. Without a count, up to the
    /// limit of a request (DEL-07). Answer: [`Managed::Deleted`].
    DeleteUnlocked {
        /// At most this many.
        count_max: Option<u32>,
        /// Only messages enqueued before this instant; `None` is now.
        enqueued_before: Option<Timestamp>,
    },
    /// Reads the policies of the queue or topic, without one of the namespace (SEC-02). Answer:
    /// [`Managed::Policies`].
    Policies,
    /// Reads one policy. Answer: [`Managed::Policy`].
    Policy(Box<str>),
    /// Creates a policy. Answer: [`Managed::Policy`].
    CreatePolicy(Box<str>, PolicyUpdate),
    /// Changes a policy. Answer: [`Managed::Policy`].
    UpdatePolicy(Box<str>, PolicyUpdate),
    /// Replaces all policies (ADM-39). Answer: [`Managed::KeysOfPolicies`], to the principal that
    /// set them, with any right it keeps.
    ReplacePolicies(Vec<(Box<str>, PolicyUpdate)>),
    /// Deletes a policy. Answer: [`Managed::Done`].
    DeletePolicy(Box<str>),
    /// Reads the keys of a policy. Answer: [`Managed::PolicyKeys`].
    PolicyKeys(Box<str>),
    /// Replaces one key, by a generated one if none is given (SEC-09). Answer:
    /// [`Managed::PolicyKeys`].
    RegenerateKey(Box<str>, WhichKey, Option<KeyText>),
    /// Plans the steps that make the namespace as declared (DEC-06). Answer: [`Managed::Plan`].
    Plan(Box<Declaration>),
    /// Carries out the first steps of the plan of a digest (DEC-10). Answer:
    /// [`Managed::CarriedOut`].
    CarryOut {
        /// The declaration that was planned.
        declaration: Box<Declaration>,
        /// The digest of its plan.
        digest: Digest,
        /// At most this many steps, and no more than
        /// [`STEP_COUNT_MAX`](crate::declaration::STEP_COUNT_MAX).
        steps_max: Option<usize>,
    },
    /// Answers a question of an operator about the entity, or without a path about the namespace
    /// (CON-01). Answer: [`Managed::Findings`].
    Inspect(Box<Question>),
    /// Breaks locks, sets the state of a session that nobody holds, or acts on messages (CON-12,
    /// CON-26, CON-27). Answer: [`Managed::LocksBroken`], [`Managed::Acted`] or [`Managed::Done`].
    Operate(OperatorCommand),
    /// Makes a job on messages of the entity (CON-12). Answer: [`Managed::Findings`] with the job.
    CreateJob(Box<JobDraft>),
    /// Starts, pauses, resumes, cancels or undoes a job (CON-19, CON-20). Answer:
    /// [`Managed::Findings`] with the job.
    ControlJob(JobId, JobControl),
    /// Closes the connection of a client, wherever its links are (CON-24). Answer:
    /// [`Managed::Done`].
    CloseClient(ClientId),
    /// Mutes a finding of the checks about the entity, or without a path about the broker (CON-39).
    /// Answer: [`Managed::Done`].
    Mute(MuteChange),
}

/// A part of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Number of entries left out at the start.
    pub skip: usize,
    /// At most this many; if none, as many as the broker returns at once.
    pub top: Option<usize>,
}

/// A message to which rules are applied without storing it.
#[derive(Clone, Debug)]
pub enum SampleMessage {
    /// Its properties and body.
    Plain(Message),
    /// Already checked and encoded by the transport.
    Inbound(InboundMessage),
}

/// The answer to a management request.
#[derive(Debug)]
pub enum Managed {
    /// The request is carried out; there is nothing to report.
    Done,
    /// Name, tier and instants of the namespace.
    Namespace(Box<Namespace>),
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
    /// A rule.
    Rule(Box<RuleDescription>),
    /// Rules, in the order of their names.
    Rules(Vec<RuleDescription>),
    /// The effect of each rule on a message.
    Explained(Vec<Explanation>),
    /// Ids of sessions, ascending.
    Sessions(Vec<Arc<str>>),
    /// Number of messages removed.
    Deleted(u64),
    /// Number of locks of messages, or of sessions, that were ended.
    LocksBroken(u64),
    /// Results for each message that an operator acted on, in the order of the request.
    Acted(Vec<ActedMessage>),
    /// A policy.
    Policy(Box<PolicyDescription>),
    /// Policies, in the order of their names.
    Policies(Vec<PolicyDescription>),
    /// A policy with its keys.
    PolicyKeys(Box<PolicyKeys>),
    /// Policies with their keys.
    KeysOfPolicies(Vec<PolicyKeys>),
    /// The steps of a declaration.
    Plan(Box<Plan>),
    /// The outcome of steps of a declaration.
    CarriedOut(Box<PlanResult>),
    /// The answer to a question of an operator.
    Findings(Box<Findings>),
}

impl Management {
    /// Whether the answer may be large, so that it is built in a turn
    /// ([`Access::turn_at`](crate::Access::turn_at)).
    #[must_use]
    pub const fn is_large(&self) -> bool {
        match self {
            Self::Inspect(question) => question.is_large(),
            Self::Queues(_)
            | Self::Topics(_)
            | Self::Subscriptions(_)
            | Self::Rules(_)
            | Self::Explain(_)
            | Self::Plan(_)
            | Self::CarryOut { .. } => true,
            Self::Namespace
            | Self::CreateQueue(_)
            | Self::Queue
            | Self::UpdateQueue(..)
            | Self::CreateTopic(_)
            | Self::Topic
            | Self::UpdateTopic(..)
            | Self::CreateSubscription { .. }
            | Self::Subscription
            | Self::UpdateSubscription(..)
            | Self::Delete(_)
            | Self::Paths(..)
            | Self::CreateRule(_)
            | Self::UpdateRule(_)
            | Self::DeleteRule(_)
            | Self::CreateOwnRule(_)
            | Self::DeleteOwnRule(_)
            | Self::Rule(_)
            | Self::Sessions(..)
            | Self::DeleteDeferred(_)
            | Self::DeleteUnlocked { .. }
            | Self::Operate(_)
            | Self::CreateJob(_)
            | Self::ControlJob(..)
            | Self::CloseClient(_)
            | Self::Mute(_)
            | Self::Policies
            | Self::Policy(_)
            | Self::CreatePolicy(..)
            | Self::UpdatePolicy(..)
            | Self::ReplacePolicies(_)
            | Self::DeletePolicy(_)
            | Self::PolicyKeys(_)
            | Self::RegenerateKey(..) => false,
        }
    }

    /// The action that the request needs on its path; [`Action::needs`] names the right for it.
    #[must_use]
    pub const fn action(&self) -> Action {
        match self {
            Self::CreateQueue(_) | Self::CreateTopic(_) | Self::CreateSubscription { .. } => {
                Action::Create
            }
            Self::Namespace | Self::Queue | Self::Topic | Self::Subscription => Action::Describe,
            Self::UpdateQueue(..) | Self::UpdateTopic(..) | Self::UpdateSubscription(..) => {
                Action::Update
            }
            Self::Delete(_) => Action::Delete,
            Self::Queues(_) | Self::Topics(_) | Self::Subscriptions(_) | Self::Paths(..) => {
                Action::List
            }
            Self::CreateRule(_) | Self::UpdateRule(_) | Self::DeleteRule(_) => Action::ChangeRules,
            Self::CreateOwnRule(_) | Self::DeleteOwnRule(_) => Action::ChangeOwnRules,
            Self::Rule(_) | Self::Rules(_) | Self::Explain(_) => Action::ReadRules,
            Self::Sessions(..) => Action::ListSessions,
            Self::DeleteDeferred(_) => Action::DeleteDeferred,
            Self::DeleteUnlocked { .. } => Action::DeleteUnlocked,
            Self::Operate(_) | Self::CreateJob(_) | Self::ControlJob(..) | Self::Mute(_) => {
                Action::Operate
            }
            Self::CloseClient(_) => Action::CloseClients,
            Self::Policies | Self::Policy(_) => Action::ReadPolicies,
            Self::CreatePolicy(..)
            | Self::UpdatePolicy(..)
            | Self::ReplacePolicies(_)
            | Self::DeletePolicy(_)
            | Self::RegenerateKey(..) => Action::ChangePolicies,
            Self::PolicyKeys(_) => Action::ReadKeys,
            Self::Plan(_) | Self::CarryOut { .. } => Action::Plan,
            Self::Inspect(question) => question.action(),
        }
    }
}
