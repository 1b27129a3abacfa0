//! Management of topics, subscriptions and rules.

use std::sync::Arc;

use peeklock_core::command::{DescribedSubscription, DescribedTopic};
use peeklock_core::description::{EntityKind, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::rule::{Explanation, RuleDescription};

use super::Admin;

impl Admin {
    /// Creates a topic with all properties at their defaults (ENT-03).
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError`, `ArgumentOutOfRange`, `QuotaExceeded`.
    pub async fn create_topic(&self, path: &str) -> Result<DescribedTopic, BrokerError> {
        self.create_topic_with(path, TopicUpdate::default()).await
    }

    /// Creates a topic with the properties named.
    ///
    /// # Errors
    /// As for [`Admin::create_topic`].
    pub async fn create_topic_with(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Result<DescribedTopic, BrokerError> {
        self.access.create_topic(path, properties).await
    }

    /// Reads a topic's description, counts and instants (ENT-31, CNT-04).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn topic(&self, path: &str) -> Result<DescribedTopic, BrokerError> {
        self.access.describe_topic(path).await
    }

    /// Replaces the properties named. An absent UserMetadata means none, any other absent property
    /// keeps its value (ENT-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError`, `ArgumentOutOfRange`.
    pub async fn update_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Result<DescribedTopic, BrokerError> {
        self.access.update_topic(path, properties, None).await
    }

    /// Deletes a topic with its subscriptions and rules (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn delete_topic(&self, path: &str) -> Result<(), BrokerError> {
        self.access.delete(path, EntityKind::Topic).await
    }

    /// The paths of topics in case-insensitive order (ENT-30).
    #[must_use]
    pub fn topic_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        super::at_once(self.access.topic_paths(skip, top), self.access.broker()).unwrap_or_default()
    }

    /// Creates a subscription that gets every message of its topic, by the rule `$Default` (TOP-12). Its
    /// path is `<topic>/Subscriptions/<name>`.
    ///
    /// # Errors
    /// `EntityNotFound` without the topic, `EntityAlreadyExists`, `ArgumentError`,
    /// `ArgumentOutOfRange`, `QuotaExceeded`.
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.create_subscription_with(topic, name, SubscriptionUpdate::default(), Vec::new()).await
    }

    /// Creates a subscription with the properties named, and with these rules instead of `$Default`,
    /// unless there are none (TOP-12, TOP-17).
    ///
    /// # Errors
    /// As for [`Admin::create_subscription`], and those of a rule.
    pub async fn create_subscription_with(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.access.create_subscription(topic, name, properties, rules).await
    }

    /// Reads a subscription's description, counts and instants (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn subscription(&self, path: &str) -> Result<DescribedSubscription, BrokerError> {
        self.access.describe_subscription(path).await
    }

    /// Replaces the properties named. An absent ForwardTo, ForwardDeadLetteredMessagesTo or
    /// UserMetadata means none, any other absent property keeps its value (ENT-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError`, `ArgumentOutOfRange`.
    pub async fn update_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.access.update_subscription(path, properties, None).await
    }

    /// Deletes a subscription with everything in it (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_subscription(&self, path: &str) -> Result<(), BrokerError> {
        self.access.delete(path, EntityKind::Subscription).await
    }

    /// The paths of the subscriptions of a topic in case-insensitive order (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        super::at_once(self.access.subscription_paths(topic, skip, top), self.access.broker())
    }

    /// Adds a rule to a subscription (TOP-13).
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError` with the position of what is malformed (TOP-16),
    /// `ArgumentOutOfRange`, `QuotaExceeded`, `EntityNotFound`.
    pub async fn create_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        self.access.create_rule(subscription, rule).await
    }

    /// Replaces filter and action of a rule (TOP-24).
    ///
    /// # Errors
    /// As for [`Admin::create_rule`]; `EntityNotFound` without the rule.
    pub async fn update_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        self.access.update_rule(subscription, rule).await
    }

    /// Removes a rule (TOP-13).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn delete_rule(&self, subscription: &str, name: &str) -> Result<(), BrokerError> {
        self.access.delete_rule(subscription, name).await
    }

    /// The rules of a subscription in the order of their names (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn rules(
        &self,
        subscription: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleDescription>, BrokerError> {
        self.access.rules(subscription, skip, top).await
    }

    /// One rule, by its name in any case.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn rule(
        &self,
        subscription: &str,
        name: &str,
    ) -> Result<RuleDescription, BrokerError> {
        self.access.rule(subscription, name).await
    }

    /// Which rules of a subscription would select a message if it were published now, and why.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn explain(
        &self,
        subscription: &str,
        message: Message,
    ) -> Result<Vec<Explanation>, BrokerError> {
        self.access.explain(subscription, self.access.broker().inbound(message)).await
    }
}
