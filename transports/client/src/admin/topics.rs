//! Management of topics, subscriptions and rules (files 03, 13 and 17 of the specification).
//! `path::subscription_path` returns the path of a subscription, `<topic>/Subscriptions/<name>`.
//! Messages are sent to the topic and received from that path.

use std::sync::Arc;

use peeklock_core::command::{DescribedSubscription, DescribedTopic};
use peeklock_core::description::{Cleared, EntityKind, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::rule::{Explanation, RuleDescription};
use peeklock_core::time::Timestamp;

use super::{Admin, REPLACE, exists, replace_of};
use crate::port::{Managed, Management, Page, Patch, SampleMessage};

impl Admin {
    /// Creates a topic with all properties at their defaults (ENT-03).
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError`, `ArgumentOutOfRange`, `QuotaExceeded`.
    pub async fn create_topic(&self, path: &str) -> Result<DescribedTopic, BrokerError> {
        self.create_topic_with(path, TopicUpdate::default()).await
    }

    /// Creates a topic with these properties.
    ///
    /// # Errors
    /// As for [`Admin::create_topic`].
    pub async fn create_topic_with(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Result<DescribedTopic, BrokerError> {
        self.topic_of(path, Management::CreateTopic(Box::new(properties))).await
    }

    /// Reads a topic's description, counts and instants (ENT-31, CNT-04).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn topic(&self, path: &str) -> Result<DescribedTopic, BrokerError> {
        self.topic_of(path, Management::Topic).await
    }

    /// Returns whether a topic exists at a path.
    ///
    /// # Errors
    /// `ArgumentError` for an invalid path.
    pub async fn topic_exists(&self, path: &str) -> Result<bool, BrokerError> {
        exists(self.topic(path).await)
    }

    /// Replaces the properties named in `properties`. An absent UserMetadata is cleared, any other
    /// absent property keeps its value (ENT-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError`, `ArgumentOutOfRange`.
    pub async fn update_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Result<DescribedTopic, BrokerError> {
        self.set_topic(path, properties, REPLACE).await
    }

    /// As [`Admin::update_topic`], but only if the description was last updated at `read_at`.
    ///
    /// # Errors
    /// As for [`Admin::update_topic`], and `UpdateConflict`.
    pub async fn update_topic_of(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Timestamp,
    ) -> Result<DescribedTopic, BrokerError> {
        self.set_topic(path, properties, replace_of(read_at)).await
    }

    /// Changes the properties named and keeps all others. `cleared` selects whether UserMetadata
    /// loses its value.
    ///
    /// # Errors
    /// As for [`Admin::update_topic`].
    pub async fn change_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
        cleared: Cleared,
    ) -> Result<DescribedTopic, BrokerError> {
        self.set_topic(path, properties, Patch { cleared, expected_created_at: None }).await
    }

    async fn set_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
        patch: Patch,
    ) -> Result<DescribedTopic, BrokerError> {
        self.topic_of(path, Management::UpdateTopic(Box::new(properties), patch)).await
    }

    /// Deletes a topic with its subscriptions and everything in them (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn delete_topic(&self, path: &str) -> Result<(), BrokerError> {
        self.delete(path, EntityKind::Topic).await
    }

    /// Returns topics in case-insensitive order of their paths, with counts and instants, after the
    /// first `skip`. The broker's limit bounds their number (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topics(&self, skip: usize) -> Result<Vec<DescribedTopic>, BrokerError> {
        match self.ask("", Management::Topics(Page { skip, top: None })).await? {
            Managed::Topics(topics) => Ok(topics),
            other => Err(self.unexpected("", &other)),
        }
    }

    /// Returns the paths of topics in case-insensitive order, `top` paths after the first `skip`
    /// (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topic_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        self.paths("", EntityKind::Topic, skip, top).await
    }

    /// Creates a subscription with all properties at their defaults and the rule `$Default`, which
    /// selects every message (ENT-03, TOP-12).
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

    /// Creates a subscription with these properties, and with these rules in place of `$Default`
    /// (TOP-12). If a rule is invalid, nothing is created (TOP-17).
    ///
    /// # Errors
    /// As for [`Admin::create_subscription`].
    pub async fn create_subscription_with(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Result<DescribedSubscription, BrokerError> {
        let (name, properties) = (name.into(), Box::new(properties));
        let create = Management::CreateSubscription { name, properties, rules };
        self.subscription_of(topic, create).await
    }

    /// Reads a subscription's description, counts and instants (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn subscription(&self, path: &str) -> Result<DescribedSubscription, BrokerError> {
        self.subscription_of(path, Management::Subscription).await
    }

    /// Returns whether a subscription exists at a path.
    ///
    /// # Errors
    /// `ArgumentError` for an invalid path, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn subscription_exists(&self, path: &str) -> Result<bool, BrokerError> {
        exists(self.subscription(path).await)
    }

    /// Replaces the properties named in `properties`. An absent ForwardTo,
    /// ForwardDeadLetteredMessagesTo or UserMetadata is cleared, any other absent property keeps
    /// its value (ENT-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError`, `ArgumentOutOfRange`.
    pub async fn update_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.set_subscription(path, properties, REPLACE).await
    }

    /// As [`Admin::update_subscription`], but only if the description was last updated at
    /// `read_at`.
    ///
    /// # Errors
    /// As for [`Admin::update_subscription`], and `UpdateConflict`.
    pub async fn update_subscription_of(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Timestamp,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.set_subscription(path, properties, replace_of(read_at)).await
    }

    /// Changes the properties named and keeps all others. `cleared` selects properties that lose
    /// their value.
    ///
    /// # Errors
    /// As for [`Admin::update_subscription`].
    pub async fn change_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        cleared: Cleared,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.set_subscription(path, properties, Patch { cleared, expected_created_at: None }).await
    }

    async fn set_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        patch: Patch,
    ) -> Result<DescribedSubscription, BrokerError> {
        let update = Management::UpdateSubscription(Box::new(properties), patch);
        self.subscription_of(path, update).await
    }

    /// Deletes a subscription with everything in it (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_subscription(&self, path: &str) -> Result<(), BrokerError> {
        self.delete(path, EntityKind::Subscription).await
    }

    /// Returns the subscriptions of a topic in case-insensitive order of their names, with counts
    /// and instants, after the first `skip`. The broker's limit bounds their number (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound` without the topic.
    pub async fn subscriptions(
        &self,
        topic: &str,
        skip: usize,
    ) -> Result<Vec<DescribedSubscription>, BrokerError> {
        match self.ask(topic, Management::Subscriptions(Page { skip, top: None })).await? {
            Managed::Subscriptions(subscriptions) => Ok(subscriptions),
            other => Err(self.unexpected(topic, &other)),
        }
    }

    /// Returns the paths of a topic's subscriptions in case-insensitive order, `top` paths after
    /// the first `skip` (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound` without the topic.
    pub async fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        self.paths(topic, EntityKind::Subscription, skip, top).await
    }

    /// Adds a rule to a subscription (TOP-13). It applies to messages published afterwards
    /// (TOP-09).
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError` with the position of a syntax error (TOP-16),
    /// `ArgumentOutOfRange`, `QuotaExceeded`, `EntityNotFound`.
    pub async fn create_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        self.rule_of(subscription, Management::CreateRule(Box::new(rule))).await
    }

    /// Replaces filter and action of a rule (TOP-24); an invalid update changes nothing.
    ///
    /// # Errors
    /// As for [`Admin::create_rule`]; `EntityNotFound` without the rule.
    pub async fn update_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        self.rule_of(subscription, Management::UpdateRule(Box::new(rule))).await
    }

    /// Removes a rule, `$Default` too (TOP-13).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn delete_rule(&self, subscription: &str, name: &str) -> Result<(), BrokerError> {
        self.ask(subscription, Management::DeleteRule(name.into())).await.map(drop)
    }

    /// Returns a rule by its name, ignoring case.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn rule(
        &self,
        subscription: &str,
        name: &str,
    ) -> Result<RuleDescription, BrokerError> {
        self.rule_of(subscription, Management::Rule(name.into())).await
    }

    /// Returns the rules of a subscription sorted by name, `top` rules after the first `skip`. The
    /// broker's limit bounds their number (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn rules(
        &self,
        subscription: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleDescription>, BrokerError> {
        match self.ask(subscription, Management::Rules(Page { skip, top: Some(top) })).await? {
            Managed::Rules(rules) => Ok(rules),
            other => Err(self.unexpected(subscription, &other)),
        }
    }

    /// Explains for each rule of a subscription whether it would select a message published now.
    /// Stores nothing.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn explain(
        &self,
        subscription: &str,
        message: Message,
    ) -> Result<Vec<Explanation>, BrokerError> {
        let sample = Box::new(SampleMessage::Plain(message));
        match self.ask(subscription, Management::Explain(sample)).await? {
            Managed::Explained(explained) => Ok(explained),
            other => Err(self.unexpected(subscription, &other)),
        }
    }

    async fn topic_of(
        &self,
        path: &str,
        request: Management,
    ) -> Result<DescribedTopic, BrokerError> {
        match self.ask(path, request).await? {
            Managed::Topic(topic) => Ok(*topic),
            other => Err(self.unexpected(path, &other)),
        }
    }

    async fn subscription_of(
        &self,
        path: &str,
        request: Management,
    ) -> Result<DescribedSubscription, BrokerError> {
        match self.ask(path, request).await? {
            Managed::Subscription(subscription) => Ok(*subscription),
            other => Err(self.unexpected(path, &other)),
        }
    }

    async fn rule_of(
        &self,
        path: &str,
        request: Management,
    ) -> Result<RuleDescription, BrokerError> {
        match self.ask(path, request).await? {
            Managed::Rule(rule) => Ok(*rule),
            other => Err(self.unexpected(path, &other)),
        }
    }
}
