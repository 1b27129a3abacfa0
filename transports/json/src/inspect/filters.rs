//! Samples of a topic, results of its rules for a message, and trials of changed rules.

use std::sync::Arc;

use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    CopyPreview, ExplainQuery, SamplesQuery, SubscriptionExplanation, TRIED_COUNT_MAX,
    TopicExplanation, TopicSample, TopicSamples, WhatIf, WhatIfCounts, WhatIfDifference,
    WhatIfQuery,
};
use peeklock_core::message::Message;
use peeklock_core::rule::{RuleChange, RuleEdit};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::is_false;
use super::message::is_zero;
use super::question::rows;
use crate::message::{MessageView, NewMessage};
use crate::rule::{ExplanationView, RuleForm};
use crate::text::Instant;

/// A message in a form of this file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageForm(Message);

impl Serialize for MessageForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        MessageView::new(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MessageForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let message = NewMessage::deserialize(deserializer)?;
        message.into_message().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Number of samples to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SamplesForm {
    /// Maximum number, 1 to 500; by default 100. The newest come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
}

/// A message for which to explain all rules of a topic: `message`, or `sequenceNumber`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExplainForm {
    /// A message that would be sent now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<NewMessage>))]
    message: Option<MessageForm>,
    /// Number of a stored message, or of a sample of the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_number: Option<u64>,
    /// Entity that has the stored message; by default the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Changes of the rules of a topic, to try on its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhatIfForm {
    /// The changes, in their order, 1 to 100.
    changes: Vec<RuleChangeForm>,
    /// Maximum number of messages of subscriptions, 0 to 1,000; by default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_count: Option<u32>,
    /// Maximum number of differing messages in the answer, 1 to 500; by default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    top: Option<u32>,
}

/// A change of a rule: `rule`, or `remove`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleChangeForm {
    /// Name of the subscription.
    subscription: String,
    /// A rule to add. It replaces the rule of the same name.
    // Boxed, so that a list that grows copies little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<Box<RuleForm>>,
    /// Name of a rule to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remove: Option<String>,
}

/// The last published messages of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicSamplesView {
    /// The messages, the newest first.
    samples: Vec<TopicSampleView>,
    /// Number of all samples of the topic.
    total: u64,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A message without its body, on which rules can be tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicSampleView {
    /// Its number: in the topic, or in the subscription that has it.
    sequence_number: u64,
    /// Subscription that has it; left out for a sample of the topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    enqueued_time_utc: Instant,
    /// Size in bytes, with the body.
    size: u32,
    /// Number of its copies; only of a sample of the topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copy_count: Option<u32>,
    /// Its properties, with an empty body.
    #[cfg_attr(feature = "schema", schema(value_type = NewMessage))]
    message: MessageForm,
}

/// Results of all rules of a topic for one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicExplanationView {
    /// Properties of the message, with an empty body.
    #[cfg_attr(feature = "schema", schema(value_type = NewMessage))]
    message: MessageForm,
    /// The subscriptions that you may read, in the order of their names.
    subscriptions: Vec<SubscriptionExplanationView>,
    /// Reason for which the topic would refuse the message; then no subscription gets a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// Number of subscriptions that you may not read.
    #[serde(default, skip_serializing_if = "is_zero")]
    hidden_count: u64,
    /// Whether rules and copies are left out, since the answer is full.
    #[serde(default, skip_serializing_if = "is_false")]
    is_cut: bool,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// Results of the rules of a subscription for one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionExplanationView {
    subscription: String,
    /// Each rule, in the order of the names.
    rules: Vec<ExplanationView>,
    /// The copies that the subscription would get.
    copies: Vec<CopyPreviewView>,
}

/// A copy that a subscription would get.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CopyPreviewView {
    /// Name of the rule that makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Its properties, as the action changes them.
    #[cfg_attr(feature = "schema", schema(value_type = NewMessage))]
    message: MessageForm,
    /// Reason for which it would go into the dead-letter queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dead_letter_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dead_letter_error_description: Option<String>,
}

/// Effects of changes of the rules of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WhatIfView {
    /// Number of samples of the topic that were tried.
    sample_count: u64,
    /// Number of messages of subscriptions that were tried.
    message_count: u64,
    /// The subscriptions that you may read, in the order of their names.
    subscriptions: Vec<WhatIfCountsView>,
    /// Number of messages that differ.
    difference_count: u64,
    /// Messages that differ: samples, then messages of subscriptions, each the newest first.
    differences: Vec<WhatIfDifferenceView>,
    /// Number of subscriptions that you may not read.
    #[serde(default, skip_serializing_if = "is_zero")]
    hidden_count: u64,
    /// Whether messages were left out, since the memory or the time was used up.
    #[serde(default, skip_serializing_if = "is_false")]
    is_cut: bool,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// Number of tried messages that a subscription gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WhatIfCountsView {
    subscription: String,
    /// With the rules of the topic.
    before: u64,
    /// With the changes.
    after: u64,
    /// Only with the changes.
    gained: u64,
    /// Only without the changes.
    lost: u64,
    /// In both cases, as different copies.
    changed: u64,
}

/// A message that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WhatIfDifferenceView {
    sample: TopicSampleView,
    /// Subscriptions that get it only with the changes.
    gained: Vec<String>,
    /// Subscriptions that get it only without the changes.
    lost: Vec<String>,
    /// Subscriptions that get different copies.
    changed: Vec<String>,
}

impl SamplesForm {
    pub(super) fn to_query(&self) -> Result<SamplesQuery, Rejection> {
        Ok(SamplesQuery { count_max: rows("top", self.top)? })
    }
}

impl From<&SamplesQuery> for SamplesForm {
    fn from(query: &SamplesQuery) -> Self {
        Self { top: Some(query.count_max) }
    }
}

impl ExplainForm {
    pub(super) fn to_query(&self) -> Result<ExplainQuery, Rejection> {
        match (&self.message, self.sequence_number, &self.path) {
            (Some(MessageForm(message)), None, None) => {
                Ok(ExplainQuery::Message(Box::new(message.clone())))
            }
            (None, Some(sequence), path) => Ok(ExplainQuery::Stored {
                path: path.as_deref().map(Into::into),
                sequence: SequenceNumber(sequence),
            }),
            _ => {
                let detail =
                    "give message, or sequenceNumber with or without the path of its entity";
                Err(Rejection::argument(detail))
            }
        }
    }
}

impl From<&ExplainQuery> for ExplainForm {
    fn from(query: &ExplainQuery) -> Self {
        match query {
            ExplainQuery::Message(message) => {
                Self { message: Some(MessageForm((**message).clone())), ..Self::default() }
            }
            ExplainQuery::Stored { path, sequence } => Self {
                message: None,
                sequence_number: Some(sequence.0),
                path: path.as_deref().map(str::to_owned),
            },
        }
    }
}

impl WhatIfForm {
    pub(super) fn to_query(&self) -> Result<WhatIfQuery, Rejection> {
        let changes = self.changes.iter().map(RuleChangeForm::to_change);
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        if changes.is_empty() {
            return Err(Rejection::argument("changes is empty; give at least one rule"));
        }
        Ok(WhatIfQuery {
            changes,
            message_count_max: self.message_count.unwrap_or(TRIED_COUNT_MAX),
            difference_count_max: rows("top", self.top)?,
        })
    }
}

impl From<&WhatIfQuery> for WhatIfForm {
    fn from(query: &WhatIfQuery) -> Self {
        Self {
            changes: query.changes.iter().map(Into::into).collect(),
            message_count: Some(query.message_count_max),
            top: Some(query.difference_count_max),
        }
    }
}

impl RuleChangeForm {
    fn to_change(&self) -> Result<RuleChange, Rejection> {
        let edit = match (&self.rule, &self.remove) {
            (Some(rule), None) => RuleEdit::Set(Box::new(rule.to_description()?)),
            (None, Some(name)) => RuleEdit::Remove(name.as_str().into()),
            _ => return Err(Rejection::argument("a change has one of rule and remove")),
        };
        Ok(RuleChange { subscription: self.subscription.as_str().into(), edit })
    }
}

impl From<&RuleChange> for RuleChangeForm {
    fn from(change: &RuleChange) -> Self {
        let (rule, remove) = match &change.edit {
            RuleEdit::Set(rule) => (Some(Box::new(RuleForm::from(&**rule))), None),
            RuleEdit::Remove(name) => (None, Some(name.to_string())),
        };
        Self { subscription: change.subscription.to_string(), rule, remove }
    }
}

impl TopicSamplesView {
    pub(super) fn new(page: TopicSamples, at: Timestamp) -> Self {
        let samples = page.samples.into_iter().map(Into::into).collect();
        Self { samples, total: page.total, now_utc: Instant(at) }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn samples(self) -> TopicSamples {
        let samples = self.samples.into_iter().map(Into::into).collect();
        TopicSamples { samples, total: self.total }
    }
}

impl From<TopicSample> for TopicSampleView {
    fn from(sample: TopicSample) -> Self {
        Self {
            sequence_number: sample.sequence.0,
            subscription: sample.subscription.map(|name| (*name).to_owned()),
            enqueued_time_utc: Instant(sample.enqueued_at),
            size: sample.size,
            copy_count: sample.copy_count,
            message: MessageForm(sample.message),
        }
    }
}

impl From<TopicSampleView> for TopicSample {
    fn from(view: TopicSampleView) -> Self {
        Self {
            sequence: SequenceNumber(view.sequence_number),
            subscription: view.subscription.map(Arc::from),
            enqueued_at: view.enqueued_time_utc.0,
            size: view.size,
            copy_count: view.copy_count,
            message: view.message.0,
        }
    }
}

impl TopicExplanationView {
    pub(super) fn new(explanation: TopicExplanation, at: Timestamp) -> Self {
        Self {
            message: MessageForm(explanation.message),
            subscriptions: explanation.subscriptions.into_iter().map(Into::into).collect(),
            refused: explanation.refused.map(String::from),
            hidden_count: explanation.hidden_count,
            is_cut: explanation.is_cut,
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn explanation(self) -> TopicExplanation {
        TopicExplanation {
            message: self.message.0,
            subscriptions: self.subscriptions.into_iter().map(Into::into).collect(),
            refused: self.refused.map(String::into_boxed_str),
            hidden_count: self.hidden_count,
            is_cut: self.is_cut,
        }
    }
}

impl From<SubscriptionExplanation> for SubscriptionExplanationView {
    fn from(explanation: SubscriptionExplanation) -> Self {
        Self {
            subscription: (*explanation.name).to_owned(),
            rules: explanation.rules.iter().map(Into::into).collect(),
            copies: explanation.copies.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<SubscriptionExplanationView> for SubscriptionExplanation {
    fn from(view: SubscriptionExplanationView) -> Self {
        Self {
            name: view.subscription.into(),
            rules: view.rules.into_iter().map(Into::into).collect(),
            copies: view.copies.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<CopyPreview> for CopyPreviewView {
    fn from(copy: CopyPreview) -> Self {
        let (reason, description) = copy.dead_letter.unzip();
        Self {
            rule: copy.rule.map(String::from),
            message: MessageForm(copy.message),
            dead_letter_reason: reason.map(String::from),
            dead_letter_error_description: description.map(String::from),
        }
    }
}

impl From<CopyPreviewView> for CopyPreview {
    fn from(view: CopyPreviewView) -> Self {
        let description = view.dead_letter_error_description.unwrap_or_default();
        Self {
            rule: view.rule.map(Into::into),
            message: view.message.0,
            dead_letter: view.dead_letter_reason.map(|reason| (reason.into(), description.into())),
        }
    }
}

impl WhatIfView {
    pub(super) fn new(found: WhatIf, at: Timestamp) -> Self {
        Self {
            sample_count: found.sample_count,
            message_count: found.message_count,
            subscriptions: found.subscriptions.into_iter().map(Into::into).collect(),
            difference_count: found.difference_count,
            differences: found.differences.into_iter().map(Into::into).collect(),
            hidden_count: found.hidden_count,
            is_cut: found.is_cut,
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn what_if(self) -> WhatIf {
        WhatIf {
            sample_count: self.sample_count,
            message_count: self.message_count,
            subscriptions: self.subscriptions.into_iter().map(Into::into).collect(),
            difference_count: self.difference_count,
            differences: self.differences.into_iter().map(Into::into).collect(),
            hidden_count: self.hidden_count,
            is_cut: self.is_cut,
        }
    }
}

impl From<WhatIfCounts> for WhatIfCountsView {
    fn from(counts: WhatIfCounts) -> Self {
        let WhatIfCounts { name, before, after, gained, lost, changed } = counts;
        Self { subscription: (*name).to_owned(), before, after, gained, lost, changed }
    }
}

impl From<WhatIfCountsView> for WhatIfCounts {
    fn from(view: WhatIfCountsView) -> Self {
        let WhatIfCountsView { subscription, before, after, gained, lost, changed } = view;
        Self { name: subscription.into(), before, after, gained, lost, changed }
    }
}

impl From<WhatIfDifference> for WhatIfDifferenceView {
    fn from(difference: WhatIfDifference) -> Self {
        let names = |names: Vec<Arc<str>>| names.iter().map(|name| (**name).to_owned()).collect();
        Self {
            sample: difference.sample.into(),
            gained: names(difference.gained),
            lost: names(difference.lost),
            changed: names(difference.changed),
        }
    }
}

impl From<WhatIfDifferenceView> for WhatIfDifference {
    fn from(view: WhatIfDifferenceView) -> Self {
        let names = |names: Vec<String>| names.into_iter().map(Arc::from).collect();
        Self {
            sample: view.sample.into(),
            gained: names(view.gained),
            lost: names(view.lost),
            changed: names(view.changed),
        }
    }
}
