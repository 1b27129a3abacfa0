//! Management of topics, subscriptions and rules (files 03, 13 and 17 of the specification). A
//! subscription is named by its path, `<topic>/Subscriptions/<name>`, which `path::subscription_path`
//! makes; a message is sent to the topic and received from that path.

use std::sync::Arc;

use peeklock_core::command::{DescribedSubscription, DescribedTopic};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::message::Message;
use peeklock_core::rule::{Explanation, RuleDescription};
use peeklock_core::time::Timestamp;

use super::admin::Admin;
use crate::frame::message::Outgoing;
use crate::frame::queue::Cleared;
use crate::frame::text::Instant;
use crate::frame::topic::{
    CreateSubscription, CreateTopic, Explain, ListOf, NamedRule, RuleForm, SetRule,
    SubscriptionProperties, TopicProperties, UpdateSubscription, UpdateTopic,
};
use crate::frame::{ListQueues, Notice, Operation, PathOnly};

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
        let properties = TopicProperties::from(&properties);
        let create = CreateTopic { path: path.to_owned(), properties };
        self.topic_of(path, Operation::CreateTopic(create)).await
    }

    /// Reads a topic's description, counts and instants (ENT-31, CNT-04).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn topic(&self, path: &str) -> Result<DescribedTopic, BrokerError> {
        self.topic_of(path, Operation::GetTopic(PathOnly { path: path.to_owned() })).await
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
        self.set_topic(path, TopicProperties::from(&properties).replacing(), None).await
    }

    /// As [`Admin::update_topic`], if the description is still of that instant.
    ///
    /// # Errors
    /// As for [`Admin::update_topic`], and `UpdateConflict`.
    pub async fn update_topic_of(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Timestamp,
    ) -> Result<DescribedTopic, BrokerError> {
        self.set_topic(path, TopicProperties::from(&properties).replacing(), Some(read_at)).await
    }

    /// Changes the properties named and keeps all others; `cleared` says whether UserMetadata loses its
    /// value.
    ///
    /// # Errors
    /// As for [`Admin::update_topic`].
    pub async fn change_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
        cleared: Cleared,
    ) -> Result<DescribedTopic, BrokerError> {
        let mut properties = TopicProperties::from(&properties);
        if cleared.user_metadata {
            properties = properties.replacing();
        }
        self.set_topic(path, properties, None).await
    }

    async fn set_topic(
        &self,
        path: &str,
        properties: TopicProperties,
        read_at: Option<Timestamp>,
    ) -> Result<DescribedTopic, BrokerError> {
        let version = read_at.map(Instant);
        let update = UpdateTopic { path: path.to_owned(), properties, version };
        self.topic_of(path, Operation::UpdateTopic(update)).await
    }

    /// Deletes a topic with its subscriptions and everything in them (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn delete_topic(&self, path: &str) -> Result<(), BrokerError> {
        let delete = Operation::DeleteTopic(PathOnly { path: path.to_owned() });
        self.core().call(None, path, delete).await.map(|_| ())
    }

    /// Topics in case-insensitive order of their paths, with counts and instants; a page has at most as
    /// many as the broker's limit (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topics(&self, skip: usize) -> Result<Vec<DescribedTopic>, BrokerError> {
        self.list_topics(skip, None).await
    }

    /// The paths of topics in case-insensitive order (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topic_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        let topics = self.list_topics(skip, Some(top)).await?;
        Ok(topics.into_iter().map(|topic| topic.description.path.into()).collect())
    }

    async fn list_topics(
        &self,
        skip: usize,
        top: Option<usize>,
    ) -> Result<Vec<DescribedTopic>, BrokerError> {
        let list = ListQueues { skip: narrow(skip), top: top.map(narrow) };
        match self.core().call(None, "", Operation::ListTopics(list)).await? {
            Notice::Topics(list) => Ok(list.topics.into_iter().map(Into::into).collect()),
            _ => Err(self.unexpected("")),
        }
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

    /// Creates a subscription with the properties named, and with these rules in place of `$Default`
    /// (TOP-12). If one of them is invalid, nothing is created (TOP-17).
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
        let create = CreateSubscription {
            topic: topic.to_owned(),
            name: name.to_owned(),
            properties: SubscriptionProperties::from(&properties),
            rules: rules.iter().map(RuleForm::from).collect(),
        };
        self.subscription_of(topic, Operation::CreateSubscription(create)).await
    }

    /// Reads a subscription's description, counts and instants (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn subscription(&self, path: &str) -> Result<DescribedSubscription, BrokerError> {
        let get = Operation::GetSubscription(PathOnly { path: path.to_owned() });
        self.subscription_of(path, get).await
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
        let properties = SubscriptionProperties::from(&properties).replacing();
        self.set_subscription(path, properties, None).await
    }

    /// As [`Admin::update_subscription`], if the description is still of that instant.
    ///
    /// # Errors
    /// As for [`Admin::update_subscription`], and `UpdateConflict`.
    pub async fn update_subscription_of(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Timestamp,
    ) -> Result<DescribedSubscription, BrokerError> {
        let properties = SubscriptionProperties::from(&properties).replacing();
        self.set_subscription(path, properties, Some(read_at)).await
    }

    /// Changes the properties named and keeps all others; `cleared` says which of those that can be
    /// without a value lose it.
    ///
    /// # Errors
    /// As for [`Admin::update_subscription`].
    pub async fn change_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        cleared: Cleared,
    ) -> Result<DescribedSubscription, BrokerError> {
        let properties = SubscriptionProperties::from(&properties).clearing(cleared);
        self.set_subscription(path, properties, None).await
    }

    async fn set_subscription(
        &self,
        path: &str,
        properties: SubscriptionProperties,
        read_at: Option<Timestamp>,
    ) -> Result<DescribedSubscription, BrokerError> {
        let version = read_at.map(Instant);
        let update = UpdateSubscription { path: path.to_owned(), properties, version };
        self.subscription_of(path, Operation::UpdateSubscription(update)).await
    }

    /// Deletes a subscription with everything in it (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_subscription(&self, path: &str) -> Result<(), BrokerError> {
        let delete = Operation::DeleteSubscription(PathOnly { path: path.to_owned() });
        self.core().call(None, path, delete).await.map(|_| ())
    }

    /// The subscriptions of a topic in case-insensitive order of their names, with counts and instants; a
    /// page has at most as many as the broker's limit (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound` without the topic.
    pub async fn subscriptions(
        &self,
        topic: &str,
        skip: usize,
    ) -> Result<Vec<DescribedSubscription>, BrokerError> {
        self.list_subscriptions(topic, skip, None).await
    }

    /// The paths of a topic's subscriptions in case-insensitive order (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound` without the topic.
    pub async fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        let subscriptions = self.list_subscriptions(topic, skip, Some(top)).await?;
        let paths = subscriptions.into_iter().map(|one| one.description.path().into());
        Ok(paths.collect())
    }

    async fn list_subscriptions(
        &self,
        topic: &str,
        skip: usize,
        top: Option<usize>,
    ) -> Result<Vec<DescribedSubscription>, BrokerError> {
        let list = ListOf { path: topic.to_owned(), skip: narrow(skip), top: top.map(narrow) };
        match self.core().call(None, topic, Operation::ListSubscriptions(list)).await? {
            Notice::Subscriptions(list) => {
                Ok(list.subscriptions.into_iter().map(Into::into).collect())
            }
            _ => Err(self.unexpected(topic)),
        }
    }

    /// Adds a rule to a subscription (TOP-13). It applies to what is published afterwards (TOP-09).
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError` with the position of what is malformed (TOP-16),
    /// `ArgumentOutOfRange`, `QuotaExceeded`, `EntityNotFound`.
    pub async fn create_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        let set = SetRule { path: subscription.to_owned(), rule: RuleForm::from(&rule) };
        self.rule_of(subscription, Operation::CreateRule(set)).await
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
        let set = SetRule { path: subscription.to_owned(), rule: RuleForm::from(&rule) };
        self.rule_of(subscription, Operation::UpdateRule(set)).await
    }

    /// Removes a rule, `$Default` too (TOP-13).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn delete_rule(&self, subscription: &str, name: &str) -> Result<(), BrokerError> {
        let delete = NamedRule { path: subscription.to_owned(), name: name.to_owned() };
        self.core().call(None, subscription, Operation::DeleteRule(delete)).await.map(|_| ())
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
        let get = NamedRule { path: subscription.to_owned(), name: name.to_owned() };
        self.rule_of(subscription, Operation::GetRule(get)).await
    }

    /// The rules of a subscription in the order of their names; at most as many as the broker's limit
    /// (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn rules(
        &self,
        subscription: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleDescription>, BrokerError> {
        let path = subscription.to_owned();
        let list = ListOf { path, skip: narrow(skip), top: Some(narrow(top)) };
        match self.core().call(None, subscription, Operation::ListRules(list)).await? {
            Notice::Rules(list) => {
                let rules = list.rules.iter().map(RuleDescription::try_from);
                rules.collect::<Result<_, _>>().map_err(|_| self.unexpected(subscription))
            }
            _ => Err(self.unexpected(subscription)),
        }
    }

    /// Which rules of a subscription would select a message if it were published now, and why; nothing
    /// is stored.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn explain(
        &self,
        subscription: &str,
        message: Message,
    ) -> Result<Vec<Explanation>, BrokerError> {
        let message = Outgoing::Typed(Box::new(message));
        let explain = Explain { path: subscription.to_owned(), message };
        match self.core().call(None, subscription, Operation::Explain(explain)).await? {
            Notice::Explained(explained) => {
                Ok(explained.rules.into_iter().map(Into::into).collect())
            }
            _ => Err(self.unexpected(subscription)),
        }
    }

    async fn topic_of(
        &self,
        path: &str,
        operation: Operation,
    ) -> Result<DescribedTopic, BrokerError> {
        match self.core().call(None, path, operation).await? {
            Notice::Topic(view) => Ok(DescribedTopic::from(*view)),
            _ => Err(self.unexpected(path)),
        }
    }

    async fn subscription_of(
        &self,
        path: &str,
        operation: Operation,
    ) -> Result<DescribedSubscription, BrokerError> {
        match self.core().call(None, path, operation).await? {
            Notice::Subscription(view) => Ok(DescribedSubscription::from(*view)),
            _ => Err(self.unexpected(path)),
        }
    }

    async fn rule_of(
        &self,
        path: &str,
        operation: Operation,
    ) -> Result<RuleDescription, BrokerError> {
        match self.core().call(None, path, operation).await? {
            Notice::Rule(form) => {
                RuleDescription::try_from(&*form).map_err(|_| self.unexpected(path))
            }
            _ => Err(self.unexpected(path)),
        }
    }

    fn unexpected(&self, path: &str) -> BrokerError {
        self.core().refuse(Rejection::internal("unexpected answer"), path)
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
