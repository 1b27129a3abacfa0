//! Topics, subscriptions and rules, as scenarios see them.

use async_trait::async_trait;
use peeklock_core::command::{DescribedSubscription, DescribedTopic};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::Message;
use peeklock_core::rule::{Explanation, RuleDescription};
use peeklock_core::time::Timestamp;

use super::Answer;

/// Management of topics over one transport. Subscriptions are named by their path, except at
/// creation.
#[async_trait(?Send)]
pub trait Topics {
    async fn create_topic_with(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Answer<DescribedTopic>;
    async fn topic(&self, path: &str) -> Answer<DescribedTopic>;
    /// With an instant, updates only if the description is still of that instant.
    async fn update_topic_of(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedTopic>;
    async fn delete_topic(&self, path: &str) -> Answer<()>;
    async fn topic_paths(&self, skip: usize, top: usize) -> Answer<Vec<String>>;

    async fn create_subscription_with(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Answer<DescribedSubscription>;
    async fn subscription(&self, path: &str) -> Answer<DescribedSubscription>;
    /// With an instant, updates only if the description is still of that instant.
    async fn update_subscription_of(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedSubscription>;
    async fn delete_subscription(&self, path: &str) -> Answer<()>;
    async fn subscription_paths(&self, topic: &str, skip: usize, top: usize)
    -> Answer<Vec<String>>;

    async fn create_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription>;
    async fn update_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription>;
    async fn delete_rule(&self, path: &str, name: &str) -> Answer<()>;
    async fn rule(&self, path: &str, name: &str) -> Answer<RuleDescription>;
    async fn rules(&self, path: &str, skip: usize, top: usize) -> Answer<Vec<RuleDescription>>;
    async fn explain(&self, path: &str, message: Message) -> Answer<Vec<Explanation>>;
}

impl dyn super::Subject + '_ {
    /// Creates a topic with default properties.
    pub async fn create_topic(&self, path: &str) -> Answer<DescribedTopic> {
        self.create_topic_with(path, TopicUpdate::default()).await
    }

    pub async fn update_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Answer<DescribedTopic> {
        self.update_topic_of(path, properties, None).await
    }

    /// Creates a subscription with default properties, which gets all messages.
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
    ) -> Answer<DescribedSubscription> {
        self.create_subscription_with(topic, name, SubscriptionUpdate::default(), vec![]).await
    }

    pub async fn update_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
    ) -> Answer<DescribedSubscription> {
        self.update_subscription_of(path, properties, None).await
    }
}
