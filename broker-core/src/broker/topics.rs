//! Management of topics, subscriptions and rules, for transports and embedding programs.
//! `access/manage.rs` calls it after it has checked rights.

use std::sync::Arc;

use super::update::Update as _;
use super::{Broker, Entity};
use crate::actor::namespace::{Create, CreateSubscription, NewRoot};
use crate::command::{
    Command, DescribedSubscription, DescribedTopic, InboundMessage, Outcome, RuleCommand,
    TopicCommand, rules_bytes,
};
use crate::description::{EntityKind, SubscriptionUpdate, TopicUpdate};
use crate::error::{BrokerError, Rejection};
use crate::ids::EntityId;
use crate::path::{EntityAddress, EntityName, Node, PathKey, SubQueue, validate_subscription_name};
use crate::rule::{Explanation, RuleDescription};
use crate::time::Timestamp;

impl Broker {
    /// Creates a topic. Properties that are not named have their defaults (ENT-03). Returns when
    /// the topic is durable and accepts messages.
    ///
    /// # Errors
    /// `EntityAlreadyExists`, also for a queue at that path (ADR-12), `ArgumentError`,
    /// `ArgumentOutOfRange`, `QuotaExceeded`.
    pub async fn create_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Result<DescribedTopic, BrokerError> {
        let refuse = |rejection| self.refuse(rejection, path);
        let name = self.name_of_new(path).map_err(refuse)?;
        let description = properties.create(name.path(), &self.shared.settings).map_err(refuse)?;
        let root = NewRoot::Topic(description);
        let created = self.ask_namespace((1, 0), |answer| Create { root, answer }).await;
        self.describe_in::<TopicUpdate>(&created.map_err(refuse)?, path).await
    }

    /// Returns the description of a topic with its runtime part (ENT-31, CNT-04).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn describe_topic(&self, path: &str) -> Result<DescribedTopic, BrokerError> {
        self.describe::<TopicUpdate>(path).await
    }

    /// Replaces the named properties (ENT-17). With `read_at`, only if the description was last
    /// changed at that instant.
    ///
    /// # Errors
    /// As for [`Broker::create_topic`]; `EntityNotFound`, `UpdateConflict`.
    pub async fn update_topic(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<DescribedTopic, BrokerError> {
        self.update(&self.full_access(), path, properties, read_at).await
    }

    /// Returns the paths of topics in case-insensitive order: up to `top` after the first `skip`
    /// (ENT-30).
    #[must_use]
    pub fn topic_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        self.paths_of(EntityKind::Topic, "", skip, top)
    }

    /// Creates a subscription of a topic, at `<topic>/Subscriptions/<name>` (ADR-01), with the
    /// named properties and these rules, or with `$Default` if there are none (TOP-12). Returns
    /// when it is durable. From then on it gets copies of published messages.
    ///
    /// # Errors
    /// `EntityNotFound` without the topic, `EntityAlreadyExists`, `ArgumentError`,
    /// `ArgumentOutOfRange`, `QuotaExceeded`. An error, also in a rule, creates nothing (TOP-17).
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Result<DescribedSubscription, BrokerError> {
        let path =
            EntityName::Subscription { topic: topic.into(), name: name.into() }.path().into_owned();
        let path = path.as_str();
        let refuse = |rejection| self.refuse(rejection, path);
        let settings = &self.shared.settings;
        validate_subscription_name(name, &settings.limits).map_err(refuse)?;
        let EntityAddress {
            entity: EntityName::Root(topic),
            sub_queue: SubQueue::Main,
            node: Node::Entity,
        } = EntityAddress::parse(topic).map_err(refuse)?
        else {
            return Err(refuse(Rejection::entity_not_found(topic)));
        };
        let description = properties.create(topic, name, settings).map_err(refuse)?;
        let destinations = SubscriptionUpdate::destinations(&description);
        self.check_destinations(destinations).await.map_err(refuse)?;
        let description = Box::new(description);
        let cost = (rules.len() + 1, rules_bytes(&rules));
        let mail = |answer| CreateSubscription { description, rules, answer };
        let created = self.ask_namespace(cost, mail).await;
        self.describe_in::<SubscriptionUpdate>(&created.map_err(refuse)?, path).await
    }

    /// Returns the description of a subscription with its runtime part (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for a sub-queue, which cannot be managed (DLQ-02).
    pub async fn describe_subscription(
        &self,
        path: &str,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.describe::<SubscriptionUpdate>(path).await
    }

    /// Replaces the named properties (ENT-17). With `read_at`, only if the description was last
    /// changed at that instant.
    ///
    /// # Errors
    /// As for [`Broker::create_subscription`]; `UpdateConflict`.
    pub async fn update_subscription(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<DescribedSubscription, BrokerError> {
        self.update(&self.full_access(), path, properties, read_at).await
    }

    /// Returns the paths of a topic's subscriptions in case-insensitive order: up to `top` after
    /// the first `skip` (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound` without the topic.
    pub fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        let prefix = self.subscription_prefix(topic)?;
        Ok(self.paths_of(EntityKind::Subscription, prefix.as_str(), skip, top))
    }

    /// Returns the common prefix of the keys of a topic's subscriptions.
    pub(crate) fn subscription_prefix(&self, topic: &str) -> Result<PathKey, BrokerError> {
        let entity = self.require_kind(self.entity(topic)?, topic, EntityKind::Topic)?;
        Ok(PathKey::fold(&format!("{}/Subscriptions/", entity.path())))
    }

    /// Adds a rule to a subscription (TOP-13). It applies to messages published afterwards
    /// (TOP-09). Returns the stored rule.
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError` with the position of a malformed part (TOP-16),
    /// `ArgumentOutOfRange`, `QuotaExceeded`, `EntityNotFound`.
    pub async fn create_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        let name = rule.name.clone();
        self.set_rule(subscription, name, RuleCommand::Create(Box::new(rule))).await
    }

    /// Replaces the filter and action of a rule (TOP-24). An invalid update changes nothing.
    ///
    /// # Errors
    /// As for [`Broker::create_rule`]; `EntityNotFound` without the rule.
    pub async fn update_rule(
        &self,
        subscription: &str,
        rule: RuleDescription,
    ) -> Result<RuleDescription, BrokerError> {
        let name = rule.name.clone();
        self.set_rule(subscription, name, RuleCommand::Update(Box::new(rule))).await
    }

    /// Removes a rule, which may be `$Default` (TOP-13).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn delete_rule(&self, subscription: &str, name: &str) -> Result<(), BrokerError> {
        self.ask_rules(subscription, RuleCommand::Delete(name.into())).await.map(|_| ())
    }

    /// Returns the rules of a subscription in the order of their names: up to `top` after the first
    /// `skip` (ENT-30).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn rules(
        &self,
        subscription: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleDescription>, BrokerError> {
        let mut listed = Vec::new();
        loop {
            let (skip, top) = (skip.saturating_add(listed.len()), top - listed.len());
            let page = self.page_of_rules(subscription, skip, top).await?;
            let is_last = page.is_empty() || page.len() == top;
            listed.extend(page);
            if is_last {
                return Ok(listed);
            }
        }
    }

    /// Returns the rules that one answer of the topic contains; empty only after the last rule.
    pub(crate) async fn page_of_rules(
        &self,
        subscription: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleDescription>, BrokerError> {
        match self.ask_rules(subscription, RuleCommand::List { skip, top }).await? {
            Outcome::Rules(rules) => Ok(rules),
            other => Err(self.unexpected(subscription, &other)),
        }
    }

    /// Returns one rule by its name in any case.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn rule(
        &self,
        subscription: &str,
        name: &str,
    ) -> Result<RuleDescription, BrokerError> {
        let answer = self.ask_rules(subscription, RuleCommand::Get(name.into())).await?;
        self.one_rule(subscription, answer)
    }

    /// Explains for each rule of a subscription whether it would select a message published now.
    /// Stores nothing.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn explain(
        &self,
        subscription: &str,
        message: InboundMessage,
    ) -> Result<Vec<Explanation>, BrokerError> {
        let command = RuleCommand::Explain(Box::new(message));
        match self.ask_rules(subscription, command).await? {
            Outcome::Explained(explained) => Ok(explained),
            other => Err(self.unexpected(subscription, &other)),
        }
    }

    /// Sends a rule command to the topic of a subscription, which has its rules.
    async fn ask_rules(&self, path: &str, command: RuleCommand) -> Result<Outcome, BrokerError> {
        let (topic, id) = self.topic_of(path).await?;
        topic.manage(of_rules(id, command)).await
    }

    /// Creates or replaces a rule, and returns the stored rule. Both steps use one permit: a client
    /// that has changed something must not be refused room to read the result.
    async fn set_rule(
        &self,
        path: &str,
        name: Box<str>,
        command: RuleCommand,
    ) -> Result<RuleDescription, BrokerError> {
        let (topic, id) = self.topic_of(path).await?;
        let command = of_rules(id, command);
        let room = topic.management_room(&command).await?;
        topic.manage_in(&room, command).await?;
        let answer = topic.manage_in(&room, of_rules(id, RuleCommand::Get(name))).await?;
        self.one_rule(path, answer)
    }

    /// Returns the topic of a subscription, and the id of the subscription at its topic.
    async fn topic_of(&self, path: &str) -> Result<(Entity, EntityId), BrokerError> {
        let refuse = |rejection| self.refuse(rejection, path);
        let kind = self.created_entity(path).await?.kind();
        if kind != EntityKind::Subscription {
            let detail = format!(
                "`{path}` is a {kind}, but rules belong to subscriptions; give the path of a \
                 subscription"
            );
            return Err(refuse(Rejection::invalid_operation(detail)));
        }
        let subscription = self.manageable_entity(path, EntityKind::Subscription).await?;
        let (topic, _) = subscription_of(subscription.path()).map_err(refuse)?;
        Ok((self.entity(&topic)?, subscription.id()))
    }

    fn one_rule(&self, path: &str, answer: Outcome) -> Result<RuleDescription, BrokerError> {
        match answer {
            Outcome::Rules(mut rules) if rules.len() == 1 => Ok(rules.swap_remove(0)),
            other => Err(self.unexpected(path, &other)),
        }
    }

    fn unexpected(&self, path: &str, outcome: &Outcome) -> BrokerError {
        self.refuse(Rejection::internal(format!("unexpected answer {outcome:?}")), path)
    }
}

const fn of_rules(subscription: EntityId, command: RuleCommand) -> Command {
    Command::OfTopic(TopicCommand::InSubscription { subscription, command })
}

/// Returns the topic and the name in the path of a subscription.
fn subscription_of(path: &str) -> Result<(Box<str>, Box<str>), Rejection> {
    match EntityAddress::parse(path)? {
        EntityAddress {
            entity: EntityName::Subscription { topic, name },
            sub_queue: SubQueue::Main,
            node: Node::Entity,
        } => Ok((topic, name)),
        EntityAddress { entity: EntityName::Subscription { .. }, .. } => {
            Err(Rejection::invalid_operation(format!(
                "`{path}` is a sub-queue of a subscription; give the path of the subscription"
            )))
        }
        EntityAddress { entity: EntityName::Root(_), .. } => Err(Rejection::argument(format!(
            "`{path}` is not the path of a subscription; write `<topic>/Subscriptions/<name>`"
        ))),
    }
}
