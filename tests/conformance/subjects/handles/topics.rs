//! Topics with the handles of a client.

use async_trait::async_trait;
use peeklock_core::command::{DescribedSubscription, DescribedTopic};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::Message;
use peeklock_core::rule::{Explanation, RuleDescription};
use peeklock_core::time::Timestamp;

use super::Handles;
use crate::subject::{Answer, Topics};

#[async_trait(?Send)]
impl Topics for Handles {
    async fn create_topic_with(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Answer<DescribedTopic> {
        Ok(self.client().admin().create_topic_with(path, properties).await?)
    }

    async fn topic(&self, path: &str) -> Answer<DescribedTopic> {
        Ok(self.client().admin().topic(path).await?)
    }

    async fn update_topic_of(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedTopic> {
        let admin = self.client().admin();
        Ok(match read_at {
            Some(read_at) => admin.update_topic_of(path, properties, read_at).await?,
            None => admin.update_topic(path, properties).await?,
        })
    }

    async fn delete_topic(&self, path: &str) -> Answer<()> {
        Ok(self.client().admin().delete_topic(path).await?)
    }

    async fn topic_paths(&self, skip: usize, top: usize) -> Answer<Vec<String>> {
        let paths = self.client().admin().topic_paths(skip, top).await?;
        Ok(paths.iter().map(|path| path.to_string()).collect())
    }

    async fn create_subscription_with(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Answer<DescribedSubscription> {
        let admin = self.client().admin();
        Ok(admin.create_subscription_with(topic, name, properties, rules).await?)
    }

    async fn subscription(&self, path: &str) -> Answer<DescribedSubscription> {
        Ok(self.client().admin().subscription(path).await?)
    }

    async fn update_subscription_of(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedSubscription> {
        let admin = self.client().admin();
        Ok(match read_at {
            Some(read_at) => admin.update_subscription_of(path, properties, read_at).await?,
            None => admin.update_subscription(path, properties).await?,
        })
    }

    async fn delete_subscription(&self, path: &str) -> Answer<()> {
        Ok(self.client().admin().delete_subscription(path).await?)
    }

    async fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Answer<Vec<String>> {
        let paths = self.client().admin().subscription_paths(topic, skip, top).await?;
        Ok(paths.iter().map(|path| path.to_string()).collect())
    }

    async fn create_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription> {
        Ok(self.client().admin().create_rule(path, rule).await?)
    }

    async fn update_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription> {
        Ok(self.client().admin().update_rule(path, rule).await?)
    }

    async fn delete_rule(&self, path: &str, name: &str) -> Answer<()> {
        Ok(self.client().admin().delete_rule(path, name).await?)
    }

    async fn rule(&self, path: &str, name: &str) -> Answer<RuleDescription> {
        Ok(self.client().admin().rule(path, name).await?)
    }

    async fn rules(&self, path: &str, skip: usize, top: usize) -> Answer<Vec<RuleDescription>> {
        Ok(self.client().admin().rules(path, skip, top).await?)
    }

    async fn explain(&self, path: &str, message: Message) -> Answer<Vec<Explanation>> {
        Ok(self.client().admin().explain(path, message).await?)
    }
}
