//! What only topics are asked: about themselves, their subscriptions, and the rules of those.

use super::{Command, InboundMessage};
use crate::description::{SubscriptionDescription, TopicDescription};
use crate::ids::EntityId;
use crate::rule::RuleDescription;
use crate::time::Timestamp;

/// What only topics are asked: about themselves, and about their subscriptions.
#[derive(Clone, Debug)]
pub enum TopicCommand {
    /// Replaces the description of the topic; it was validated before (ENT-17). Answer: [`super::Outcome::Done`].
    Update {
        /// The new description.
        description: Box<TopicDescription>,
        /// Fails with `UpdateConflict` unless the description is of this instant (ENT-17).
        read_at: Option<Timestamp>,
    },
    /// Stores a new subscription with its rules, which are judged here (TOP-17); for the namespace, which
    /// has given it its identity. Answer: [`super::Outcome::Done`].
    CreateSubscription {
        /// Its identity.
        id: EntityId,
        /// Its description, validated before.
        description: Box<SubscriptionDescription>,
        /// Its rules; with none it gets `$Default` (TOP-12).
        rules: Vec<RuleDescription>,
    },
    /// Removes a subscription with everything in it (ENT-14); for the namespace, which has retired it.
    /// Answer: [`super::Outcome::Done`].
    RemoveSubscription {
        /// Its identity.
        id: EntityId,
    },
    /// Asked about the rules of one of its subscriptions.
    InSubscription {
        /// The subscription.
        subscription: EntityId,
        /// What is asked.
        command: RuleCommand,
    },
}

impl From<TopicCommand> for Command {
    fn from(command: TopicCommand) -> Self {
        Self::OfTopic(command)
    }
}

/// What can be asked about the rules of a subscription.
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
        /// So many of the first are left out.
        skip: usize,
        /// At most this many, and never more than [`RuleCommand::LISTED_MAX`]; fewer where they are more than
        /// [`RuleCommand::LISTED_BYTES_MAX`], none only behind the last.
        top: usize,
    },
    /// Tells which rules select a message, and why; nothing is stored. Answer: [`super::Outcome::Explained`].
    Explain(Box<InboundMessage>),
}

impl RuleCommand {
    /// Rules that are read at once.
    pub const LISTED_MAX: usize = 1_000;
    /// Their bytes at most, unless the first alone has more.
    pub const LISTED_BYTES_MAX: u64 = 1 << 20;
}
