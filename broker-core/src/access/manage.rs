//! Management of entities and rules by who may do it (SEC-05, SEC-06, FWD-05). What each operation does is said
//! by the methods of [`Broker`](crate::Broker) of the same name.

use super::Access;
use crate::command::{Described, DescribedSubscription, DescribedTopic, InboundMessage};
use crate::contract::action::Action;
use crate::description::{Destination, EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::BrokerError;
use crate::path::{EntityAddress, subscription_path};
use crate::rule::{Explanation, RuleDescription};
use crate::shared::Namespace;
use crate::time::Timestamp;

impl Access {
    /// Name, tier and instants of the namespace, for who may manage it (CNT-10, CNT-12).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn namespace(&self) -> Result<Namespace, BrokerError> {
        self.allow(Action::Describe, "").await?;
        Ok(self.broker.namespace().clone())
    }

    /// Creates a queue, for who may create it and forward to the destinations that it names.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::create_queue`].
    pub async fn create_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
    ) -> Result<Described, BrokerError> {
        self.allow(Action::Create, path).await?;
        let named = [&properties.forward_to, &properties.forward_dead_lettered_messages_to];
        self.allow_forwarding_to(named.map(Option::as_deref)).await?;
        self.broker.create_queue(path, properties).await
    }

    /// Reads a queue's description and runtime part.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::describe_queue`].
    pub async fn describe_queue(&self, path: &str) -> Result<Described, BrokerError> {
        let path = self.allow(Action::Describe, path).await?;
        self.broker.describe_queue(&path).await
    }

    /// Changes a queue, for who may change it and forward to the destinations that it gets.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::update_queue`].
    pub async fn update_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<Described, BrokerError> {
        let path = self.allow(Action::Update, path).await?;
        self.broker.update(self, &path, properties, read_at).await
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::create_topic`].
    pub async fn create_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Result<DescribedTopic, BrokerError> {
        self.allow(Action::Create, path).await?;
        self.broker.create_topic(path, properties).await
    }

    /// Reads a topic's description and runtime part.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::describe_topic`].
    pub async fn describe_topic(&self, path: &str) -> Result<DescribedTopic, BrokerError> {
        let path = self.allow(Action::Describe, path).await?;
        self.broker.describe_topic(&path).await
    }

    /// Changes a topic.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::update_topic`].
    pub async fn update_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<DescribedTopic, BrokerError> {
        let path = self.allow(Action::Update, path).await?;
        self.broker.update(self, &path, properties, read_at).await
    }

    /// Creates a subscription, for who may create it and forward to the destinations that it names.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::create_subscription`].
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.allow(Action::Create, &subscription_path(topic, name)).await?;
        let named = [&properties.forward_to, &properties.forward_dead_lettered_messages_to];
        self.allow_forwarding_to(named.map(Option::as_deref)).await?;
        self.broker.create_subscription(topic, name, properties, rules).await
    }

    /// Reads a subscription's description and runtime part.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::describe_subscription`].
    pub async fn describe_subscription(
        &self,
        path: &str,
    ) -> Result<DescribedSubscription, BrokerError> {
        let path = self.allow(Action::Describe, path).await?;
        self.broker.describe_subscription(&path).await
    }

    /// Changes a subscription, for who may change it and forward to the destinations that it gets.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::update_subscription`].
    pub async fn update_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<DescribedSubscription, BrokerError> {
        let path = self.allow(Action::Update, path).await?;
        self.broker.update(self, &path, properties, read_at).await
    }

    /// Deletes an entity of that kind with everything in it.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::delete`].
    pub async fn delete(&self, path: &str, kind: EntityKind) -> Result<(), BrokerError> {
        let path = self.allow(Action::Delete, path).await?;
        self.broker.delete(&path, kind).await
    }

    /// Adds a rule to a subscription.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::create_rule`].
    pub async fn create_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        let path = self.allow(Action::ChangeRules, subscription).await?;
        self.broker.create_rule(&path, rule).await
    }

    /// Adds a rule as a receiver of the subscription does, for which Listen is enough (SEC-06).
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::create_rule`].
    pub async fn create_own_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        let path = self.allow(Action::ChangeOwnRules, subscription).await?;
        self.broker.create_rule(&path, rule).await
    }

    /// Removes a rule as a receiver of the subscription does, for which Listen is enough (SEC-06).
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::delete_rule`].
    pub async fn delete_own_rule(&self, subscription: &str, name: &str) -> Result<(), BrokerError> {
        let path = self.allow(Action::ChangeOwnRules, subscription).await?;
        self.broker.delete_rule(&path, name).await
    }

    /// Replaces filter and action of a rule.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::update_rule`].
    pub async fn update_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        let path = self.allow(Action::ChangeRules, subscription).await?;
        self.broker.update_rule(&path, rule).await
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::delete_rule`].
    pub async fn delete_rule(&self, subscription: &str, name: &str) -> Result<(), BrokerError> {
        let path = self.allow(Action::ChangeRules, subscription).await?;
        self.broker.delete_rule(&path, name).await
    }

    /// The rules of a subscription, which who listens may read, too: a page of at most 1,000 and 1 MiB, with fewer than
    /// `top` where there are more, and with none only behind the last.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::rules`].
    pub async fn rules(
        &self,
        subscription: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleDescription>, BrokerError> {
        let path = self.allow(Action::ReadRules, subscription).await?;
        self.broker.page_of_rules(&path, skip, top).await
    }

    /// One rule, which who listens may read, too.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::rule`].
    pub async fn rule(
        &self,
        subscription: &str,
        name: &str,
    ) -> Result<RuleDescription, BrokerError> {
        let path = self.allow(Action::ReadRules, subscription).await?;
        self.broker.rule(&path, name).await
    }

    /// What the rules of a subscription would make of a message (MAT-01).
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::explain`].
    pub async fn explain(
        &self,
        subscription: &str,
        message: InboundMessage,
    ) -> Result<Vec<Explanation>, BrokerError> {
        let path = self.allow(Action::ReadRules, subscription).await?;
        self.broker.explain(&path, message).await
    }

    /// Asks for the right on every entity of this broker that another is to forward to, beside that on the
    /// other itself (FWD-05, SEC-07). A destination that can be no entity is judged later.
    pub(crate) async fn allow_forwarding_to(
        &self,
        destinations: [Option<&str>; 2],
    ) -> Result<(), BrokerError> {
        for (place, text) in destinations.into_iter().enumerate() {
            if let Some(text) = text
                && let Ok(Destination::Entity(_)) = Destination::parse(text)
                && EntityAddress::parse(text).is_ok()
            {
                self.allow_destination(place, text).await?;
            }
        }
        Ok(())
    }

    /// Looks whether there is an entity that may be forwarded to, as a management request asks before it creates what forwards
    /// there. The place is 0 for that of messages, 1 for that of dead-lettered ones. Whether it is there is told only to who may
    /// forward to it; nothing rests on that, and what creates or updates asks again, of what is remembered.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound`.
    pub async fn find_destination(&self, place: usize, path: &str) -> Result<(), BrokerError> {
        self.allow_destination(place, path).await?;
        let found = self.broker.check_destinations(match place {
            0 => [Some(path), None],
            _ => [None, Some(path)],
        });
        found.await.map_err(|rejection| self.broker.refuse(rejection, path))
    }

    /// Asks whether an entity may be forwarded to: by what its principal has shown for all, or else by what was shown for it.
    /// Whoever has the right by the one does not wait because the other does not give it (SEC-26).
    async fn allow_destination(&self, place: usize, path: &str) -> Result<(), BrokerError> {
        let shown = self.door.as_ref().and_then(|door| door.shown_for.get(place)?.as_ref());
        let Some(shown) = shown else {
            return self.allow(Action::BeForwardedTo, path).await.map(|_| ());
        };
        if self.is_allowed_at_once(Action::BeForwardedTo, path).await {
            return Ok(());
        }
        shown.allow(Action::BeForwardedTo, path).await.map(|_| ())
    }
}
