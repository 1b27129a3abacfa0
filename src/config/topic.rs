//! A declaration `[[topics]]`: a topic as it shall be, with its subscriptions.

use peeklock::declaration::DeclaredTopic;
use peeklock::description::{EntityStatus, TopicDescription, TopicUpdate};
use peeklock::time::TimeSpan;
use serde::{Deserialize, Serialize};

use super::declared::{Usual, bare, cleared, some, some_text, text};
use super::subscription::SubscriptionDeclaration;
use super::text::Scalar;

/// A topic and the properties that are named (DEC-02).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table with the properties of a topic")]
pub struct TopicDeclaration {
    /// The path of the topic.
    pub name: String,
    max_size_in_megabytes: Option<Scalar<u64>>,
    requires_duplicate_detection: Option<Scalar<bool>>,
    duplicate_detection_history_time_window: Option<Scalar<TimeSpan>>,
    default_message_time_to_live: Option<Scalar<TimeSpan>>,
    enable_batched_operations: Option<Scalar<bool>>,
    status: Option<Scalar<EntityStatus>>,
    auto_delete_on_idle: Option<Scalar<TimeSpan>>,
    enable_partitioning: Option<Scalar<bool>>,
    enable_express: Option<Scalar<bool>>,
    support_ordering: Option<Scalar<bool>>,
    max_message_size_in_kilobytes: Option<Scalar<u64>>,
    user_metadata: Option<Scalar<String>>,
    /// `[[topics.subscriptions]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionDeclaration>,
}

impl TopicDeclaration {
    /// What the broker is asked for.
    ///
    /// # Errors
    /// With what is wrong with a rule, and its place in the topic.
    pub fn declared(&self) -> Result<DeclaredTopic, (String, String)> {
        let properties = TopicUpdate {
            max_size_in_megabytes: bare(self.max_size_in_megabytes),
            requires_duplicate_detection: bare(self.requires_duplicate_detection),
            duplicate_detection_history_time_window: bare(
                self.duplicate_detection_history_time_window,
            ),
            default_message_time_to_live: bare(self.default_message_time_to_live),
            enable_batched_operations: bare(self.enable_batched_operations),
            status: bare(self.status),
            auto_delete_on_idle: bare(self.auto_delete_on_idle),
            enable_partitioning: bare(self.enable_partitioning),
            enable_express: bare(self.enable_express),
            support_ordering: bare(self.support_ordering),
            max_message_size_in_kilobytes: bare(self.max_message_size_in_kilobytes),
            user_metadata: text(&self.user_metadata),
            extensions: None,
        };
        let below = self.subscriptions.iter().enumerate().map(|(index, subscription)| {
            let at = |(place, detail)| (format!("subscriptions[{index}].{place}"), detail);
            subscription.declared().map_err(at)
        });
        Ok(DeclaredTopic {
            path: self.name.as_str().into(),
            properties,
            cleared: cleared(&None, &None, &self.user_metadata),
            subscriptions: below.collect::<Result<_, _>>()?,
        })
    }

    /// Leaves out what every new topic has, or names it, and of its subscriptions likewise.
    pub(super) fn with_usual(&mut self, usual: Usual) {
        for flag in [
            &mut self.requires_duplicate_detection,
            &mut self.enable_partitioning,
            &mut self.enable_express,
        ] {
            usual.of(flag, false);
        }
        usual.of(&mut self.enable_batched_operations, true);
        usual.of(&mut self.support_ordering, true);
        usual.of(&mut self.status, EntityStatus::Active);
        for subscription in &mut self.subscriptions {
            subscription.with_usual(usual);
        }
    }

    /// A topic as it is, with these subscriptions.
    pub fn of(topic: &TopicDescription, subscriptions: Vec<SubscriptionDeclaration>) -> Self {
        Self {
            name: topic.path.to_string(),
            max_size_in_megabytes: some(topic.max_size_in_megabytes),
            requires_duplicate_detection: some(topic.requires_duplicate_detection),
            duplicate_detection_history_time_window: some(
                topic.duplicate_detection_history_time_window,
            ),
            default_message_time_to_live: some(topic.default_message_time_to_live),
            enable_batched_operations: some(topic.enable_batched_operations),
            status: some(topic.status),
            auto_delete_on_idle: some(topic.auto_delete_on_idle),
            enable_partitioning: some(topic.enable_partitioning),
            enable_express: some(topic.enable_express),
            support_ordering: some(topic.support_ordering),
            max_message_size_in_kilobytes: some(topic.max_message_size_in_kilobytes),
            user_metadata: some_text(&topic.user_metadata),
            subscriptions,
        }
    }
}
