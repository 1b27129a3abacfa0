//! Management of topics, subscriptions and rules.

use peeklock_core::Broker;
use peeklock_core::contract::Right;
use peeklock_core::description::EntityKind;
use peeklock_core::error::BrokerError;
use peeklock_core::path::{EntityAddress, EntityName};

use super::Conversation;
use super::inbound::{Asked, Done, Refusal};
use super::manage::{there, updated};
use crate::frame::text::Instant;
use crate::frame::topic::{
    CreateSubscription, CreateTopic, Explain, Explained, ExplanationView, ListOf, NamedRule,
    RuleForm, RuleList, SetRule, SubscriptionList, SubscriptionView, TopicList, TopicView,
    UpdateSubscription, UpdateTopic,
};
use crate::frame::{ListQueues, Notice};

impl Conversation {
    pub(super) async fn create_topic(&mut self, asked: Asked, create: CreateTopic) -> Done {
        self.managed(&create.path).await?;
        let properties = create.properties.to_update()?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let described = broker.create_topic(&create.path, properties).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        });
        Ok(())
    }

    pub(super) async fn get_topic(&mut self, asked: Asked, path: &str) -> Done {
        let path = self.managed(path).await?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let described = broker.describe_topic(&path).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        });
        Ok(())
    }

    pub(super) async fn update_topic(&mut self, asked: Asked, update: UpdateTopic) -> Done {
        let path = self.managed(&update.path).await?;
        update.properties.to_update()?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            updated(update.version, || try_update_topic(&broker, &path, &update)).await
        });
        Ok(())
    }

    /// Deletes an entity of that kind with everything in it.
    pub(super) async fn delete(&mut self, asked: Asked, path: &str, kind: EntityKind) -> Done {
        let path = self.managed(path).await?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            broker.delete(&path, kind).await?;
            Ok(Notice::Done(Default::default()))
        });
        Ok(())
    }

    pub(super) async fn list_topics(&mut self, asked: Asked, list: &ListQueues) -> Done {
        self.broker.authorize(&self.principal, Right::Manage, "").await?;
        let broker = self.broker.clone();
        let (skip, top) = self.page(list.skip, list.top);
        self.apart(asked, async move {
            let mut topics = Vec::new();
            for path in broker.topic_paths(skip, top) {
                topics.extend(there(broker.describe_topic(&path).await)?.map(TopicView::from));
            }
            Ok(Notice::Topics(TopicList { topics }))
        });
        Ok(())
    }

    pub(super) async fn create_subscription(
        &mut self,
        asked: Asked,
        create: CreateSubscription,
    ) -> Done {
        let CreateSubscription { topic, name, properties, rules } = create;
        let path =
            EntityName::Subscription { topic: topic.clone().into(), name: name.clone().into() };
        self.managed(&path.path()).await?;
        let update = properties.to_update()?;
        self.may_forward_to(properties.destinations()).await?;
        let rules = rules.iter().map(RuleForm::to_description).collect::<Result<Vec<_>, _>>()?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let described = broker.create_subscription(&topic, &name, update, rules).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        });
        Ok(())
    }

    pub(super) async fn get_subscription(&mut self, asked: Asked, path: &str) -> Done {
        let path = self.managed(path).await?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let described = broker.describe_subscription(&path).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        });
        Ok(())
    }

    pub(super) async fn update_subscription(
        &mut self,
        asked: Asked,
        update: UpdateSubscription,
    ) -> Done {
        let path = self.managed(&update.path).await?;
        update.properties.to_update()?;
        self.may_forward_to(update.properties.destinations()).await?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            updated(update.version, || try_update_subscription(&broker, &path, &update)).await
        });
        Ok(())
    }

    pub(super) async fn list_subscriptions(&mut self, asked: Asked, list: &ListOf) -> Done {
        let topic = self.managed(&list.path).await?;
        let broker = self.broker.clone();
        let (skip, top) = self.page(list.skip, list.top);
        self.apart(asked, async move {
            let mut subscriptions = Vec::new();
            for path in broker.subscription_paths(&topic, skip, top)? {
                let described = there(broker.describe_subscription(&path).await)?;
                subscriptions.extend(described.map(SubscriptionView::from));
            }
            Ok(Notice::Subscriptions(SubscriptionList { subscriptions }))
        });
        Ok(())
    }

    pub(super) async fn create_rule(&mut self, asked: Asked, set: SetRule) -> Done {
        let path = self.managed(&set.path).await?;
        let rule = set.rule.to_description()?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let rule = broker.create_rule(&path, rule).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        });
        Ok(())
    }

    pub(super) async fn update_rule(&mut self, asked: Asked, set: SetRule) -> Done {
        let path = self.managed(&set.path).await?;
        let rule = set.rule.to_description()?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let rule = broker.update_rule(&path, rule).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        });
        Ok(())
    }

    pub(super) async fn delete_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        let path = self.managed(&named.path).await?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            broker.delete_rule(&path, &named.name).await?;
            Ok(Notice::Done(Default::default()))
        });
        Ok(())
    }

    pub(super) async fn get_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        let path = self.looked_into(&named.path).await?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let rule = broker.rule(&path, &named.name).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        });
        Ok(())
    }

    pub(super) async fn list_rules(&mut self, asked: Asked, list: &ListOf) -> Done {
        let path = self.looked_into(&list.path).await?;
        let broker = self.broker.clone();
        let (skip, top) = self.page(list.skip, list.top);
        self.apart(asked, async move {
            let rules = broker.rules(&path, skip, top).await?;
            let rules = rules.iter().map(RuleForm::from).collect();
            Ok(Notice::Rules(RuleList { rules }))
        });
        Ok(())
    }

    pub(super) async fn explain(&mut self, asked: Asked, explain: Explain) -> Done {
        let path = self.looked_into(&explain.path).await?;
        let message = self.inbound(explain.message)?;
        let broker = self.broker.clone();
        self.apart(asked, async move {
            let explained = broker.explain(&path, message).await?;
            let rules = explained.iter().map(ExplanationView::from).collect();
            Ok(Notice::Explained(Explained { rules }))
        });
        Ok(())
    }

    /// The address of a subscription whose rules are read, which who listens may (MAT-01).
    async fn looked_into(&mut self, path: &str) -> Result<String, Refusal> {
        let address = EntityAddress::parse(path).map(|address| address.to_string());
        let resource = address.unwrap_or_else(|_| path.to_owned());
        if self.broker.authorize(&self.principal, Right::Listen, &resource).await.is_err() {
            self.broker.authorize(&self.principal, Right::Manage, &resource).await?;
        }
        Ok(resource)
    }
}

async fn try_update_topic(
    broker: &Broker,
    path: &str,
    update: &UpdateTopic,
) -> Result<Notice, BrokerError> {
    let current = broker.describe_topic(path).await?;
    let mut properties = update.properties.clone();
    properties.keep(&current);
    let properties = properties.to_update().map_err(|rejection| broker.refuse(rejection, path))?;
    let read_at = update.version.map_or(current.updated_at, |Instant(at)| at);
    let described = broker.update_topic(path, properties, Some(read_at)).await?;
    Ok(Notice::Topic(Box::new(TopicView::from(described))))
}

async fn try_update_subscription(
    broker: &Broker,
    path: &str,
    update: &UpdateSubscription,
) -> Result<Notice, BrokerError> {
    let current = broker.describe_subscription(path).await?;
    let mut properties = update.properties.clone();
    properties.keep(&current);
    let properties = properties.to_update().map_err(|rejection| broker.refuse(rejection, path))?;
    let read_at = update.version.map_or(current.updated_at, |Instant(at)| at);
    let described = broker.update_subscription(path, properties, Some(read_at)).await?;
    Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
}
