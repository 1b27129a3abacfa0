//! Questions about the rules of a topic and its samples, and their answers.

use std::sync::Arc;

use crate::ids::SequenceNumber;
use crate::message::Message;
use crate::rule::{Explanation, RuleChange};
use crate::time::Timestamp;

/// Maximum number of messages of subscriptions on which changes of rules are tried (CON-37).
pub const TRIED_COUNT_MAX: u32 = 1_000;
/// Maximum number of changes of rules that are tried at once.
pub const CHANGE_COUNT_MAX: usize = 100;

/// Number of samples to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SamplesQuery {
    /// Maximum number, the newest first.
    pub count_max: u32,
}

/// The last published messages of a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicSamples {
    /// The messages, the newest first.
    pub samples: Vec<TopicSample>,
    /// Number of all samples of the topic.
    pub total: u64,
}

/// A message without its body, on which rules can be tried.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicSample {
    /// Its number: in the topic, or in the subscription that has it.
    pub sequence: SequenceNumber,
    /// The subscription that has it; `None` for a sample of the topic.
    pub subscription: Option<Arc<str>>,
    /// Instant at which the topic, or the subscription, accepted it.
    pub enqueued_at: Timestamp,
    /// Its size in bytes, with the body.
    pub size: u32,
    /// Number of its copies; `None` unless it is a sample of the topic.
    pub copy_count: Option<u32>,
    /// Its properties, without the body.
    pub message: Message,
}

/// Question for the results of all rules of a topic.
#[derive(Clone, PartialEq, Debug)]
pub enum ExplainQuery {
    /// For a message, as if it was sent now.
    Message(Box<Message>),
    /// For a message that is stored, or that is a sample.
    Stored {
        /// The entity that has it; by default the topic, whose samples have priority.
        path: Option<Box<str>>,
        /// Its number there.
        sequence: SequenceNumber,
    },
}

/// Results of all rules of a topic for one message.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicExplanation {
    /// The message, without its body.
    pub message: Message,
    /// The subscriptions that the reader may read, in the order of their names.
    pub subscriptions: Vec<SubscriptionExplanation>,
    /// Reason for which the topic would refuse the message; then no subscription gets a copy.
    pub refused: Option<Box<str>>,
    /// Number of subscriptions that the reader may not read.
    pub hidden_count: u64,
    /// Whether rules and copies are left out, since the answer is full: the rest of the last
    /// subscription, and all later subscriptions.
    pub is_cut: bool,
}

/// Results of the rules of a subscription for one message.
#[derive(Clone, PartialEq, Debug)]
pub struct SubscriptionExplanation {
    /// Name of the subscription.
    pub name: Arc<str>,
    /// Each rule, in the order of the names.
    pub rules: Vec<Explanation>,
    /// The copies that the subscription would get.
    pub copies: Vec<CopyPreview>,
}

/// A copy that a subscription would get.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyPreview {
    /// Name of the rule that makes it.
    pub rule: Option<Box<str>>,
    /// Its properties, as the action changes them.
    pub message: Message,
    /// Reason and description, if it goes into the dead-letter queue.
    pub dead_letter: Option<(Box<str>, Box<str>)>,
}

/// Question for the effects of changes of the rules of a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIfQuery {
    /// The changes, in their order, at most [`CHANGE_COUNT_MAX`].
    pub changes: Vec<RuleChange>,
    /// Maximum number of messages of subscriptions, at most [`TRIED_COUNT_MAX`].
    pub message_count_max: u32,
    /// Maximum number of differing messages in the answer.
    pub difference_count_max: u32,
}

/// Effects of changes of the rules of a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIf {
    /// Number of samples that were tried.
    pub sample_count: u64,
    /// Number of messages of subscriptions that were tried.
    pub message_count: u64,
    /// The subscriptions that the reader may read, in the order of their names.
    pub subscriptions: Vec<WhatIfCounts>,
    /// Number of messages that differ.
    pub difference_count: u64,
    /// Messages that differ, up to a number and 4 MiB of names: samples, then messages of
    /// subscriptions, each the newest first.
    pub differences: Vec<WhatIfDifference>,
    /// Number of subscriptions that the reader may not read.
    pub hidden_count: u64,
    /// Whether messages, or differences, were left out, since the memory or the time was used up.
    pub is_cut: bool,
}

/// Number of tried messages that a subscription gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WhatIfCounts {
    /// Name of the subscription.
    pub name: Arc<str>,
    /// With the rules of the topic.
    pub before: u64,
    /// With the changes.
    pub after: u64,
    /// Only with the changes.
    pub gained: u64,
    /// Only without the changes.
    pub lost: u64,
    /// In both cases, as different copies.
    pub changed: u64,
}

/// A message that differs.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIfDifference {
    /// The message.
    pub sample: TopicSample,
    /// Subscriptions that get it only with the changes.
    pub gained: Vec<Arc<str>>,
    /// Subscriptions that get it only without the changes.
    pub lost: Vec<Arc<str>>,
    /// Subscriptions that get different copies.
    pub changed: Vec<Arc<str>>,
}
