//! Commands that only topics accept: about the topic, its subscriptions, and the rules of its
//! subscriptions. The topic machine applies them; queues refuse them.

use super::{Command, InboundMessage};
use crate::description::{SubscriptionDescription, TopicDescription};
use crate::ids::EntityId;
use crate::rule::RuleDescription;
use crate::time::Timestamp;

/// A command that only topics accept.
#[derive(Clone, Debug)]
pub enum TopicCommand {
    /// Replaces the description of the topic; it was validated before (ENT-17). Answer:
    /// [`super::Outcome::Done`].
    Update {
        /// The new description.
        description: Box<TopicDescription>,
        /// Fails with `UpdateConflict` unless the current description was written at this instant
        /// (ENT-17).
        read_at: Option<Timestamp>,
    },
    /// Stores a new subscription and compiles its rules (TOP-17). Issued by the namespace, which
    /// gave the subscription its id. Answer: [`super::Outcome::Done`].
    CreateSubscription {
        /// Its identity.
        id: EntityId,
        /// Its validated description.
        description: Box<SubscriptionDescription>,
        /// Its rules; with none it gets `$Default` (TOP-12).
        rules: Vec<RuleDescription>,
    },
    /// Removes a subscription with all its messages (ENT-14). Issued by the namespace, which has
    /// retired the subscription. Answer: [`super::Outcome::Done`].
    RemoveSubscription {
        /// Its identity.
        id: EntityId,
    },
    /// A command about the rules of a subscription.
    InSubscription {
        /// The subscription.
        subscription: EntityId,
        /// The command.
        command: RuleCommand,
    },
}

impl From<TopicCommand> for Command {
    fn from(command: TopicCommand) -> Self {
        Self::OfTopic(command)
    }
}

/// A command about the rules of a subscription.
#[derive(Clone, Debug)]
pub enum RuleCommand {
    /// Adds a rule (TOP-13). Answer: [`super::Outcome::Done`].
    Create(Box<RuleDescription>),
    /// Replaces filter and action of a rule (TOP-24). Answer: [`super::Outcome::Done`].
    Update(Box<RuleDescription>),
    /// Removes a rule (TOP-13). Answer: [`super::Outcome::Done`].
    Delete(Box<str>),
    /// Reads one rule. Answer: [`super::Outcome::Rules`] with one.
    Get(Box<str>),
    /// Reads rules in the order of their names (ENT-30). Answer: [`super::Outcome::Rules`].
    List {
        /// Number of rules to skip at the start.
        skip: usize,
        /// Maximum number of rules, at most [`RuleCommand::LISTED_MAX`]. The list ends earlier at
        /// [`RuleCommand::LISTED_BYTES_MAX`]; it is empty only after the last rule.
        top: usize,
    },
    /// Explains which rules select a message; stores nothing. Answer:
    /// [`super::Outcome::Explained`].
    Explain(Box<InboundMessage>),
}

impl RuleCommand {
    /// Maximum number of rules in one list.
    pub const LISTED_MAX: usize = 1_000;
    /// Maximum bytes of the rules in one list; a larger first rule is listed by itself.
    pub const LISTED_BYTES_MAX: u64 = 1 << 20;
}
