//! Management of topics, subscriptions and rules.

use peeklock_core::Access;
use peeklock_core::contract::Action;
use peeklock_core::error::BrokerError;

use super::Conversation;
use super::inbound::{Asked, Done};
use super::manage::updated;
use crate::frame::text::Instant;
use crate::frame::topic::{
    CreateSubscription, CreateTopic, Explain, Explained, ExplanationView, ListOf, NamedRule,
    RuleForm, RuleList, SetRule, SubscriptionList, SubscriptionView, TopicList, TopicView,
    UpdateSubscription, UpdateTopic,
};
use crate::frame::{ListQueues, Notice};

impl Conversation {
    pub(super) fn create_topic(&mut self, asked: Asked, create: CreateTopic) -> Done {
        let properties = create.properties.to_update()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            let described = access.create_topic(&create.path, properties).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        });
        Ok(())
    }

    pub(super) fn get_topic(&mut self, asked: Asked, path: &str) -> Done {
        let (access, path) = (self.access.clone(), path.to_owned());
        self.apart(asked, async move {
            let described = access.describe_topic(&path).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        });
        Ok(())
    }

    pub(super) fn update_topic(&mut self, asked: Asked, update: UpdateTopic) -> Done {
        update.properties.to_update()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            access.allow(Action::Update, &update.path).await?;
            updated(update.version, || try_update_topic(&access, &update)).await
        });
        Ok(())
    }

    pub(super) fn list_topics(&mut self, asked: Asked, list: &ListQueues) -> Done {
        let access = self.access.clone();
        let (skip, top) = self.page(list.skip, list.top);
        self.apart(asked, async move {
            let topics = access.topics(skip, top).await?;
            let topics = topics.into_iter().map(TopicView::from).collect();
            Ok(Notice::Topics(TopicList { topics }))
        });
        Ok(())
    }

    pub(super) fn create_subscription(&mut self, asked: Asked, create: CreateSubscription) -> Done {
        let CreateSubscription { topic, name, properties, rules } = create;
        let update = properties.to_update()?;
        let rules = rules.iter().map(RuleForm::to_description).collect::<Result<Vec<_>, _>>()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            let described = access.create_subscription(&topic, &name, update, rules).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        });
        Ok(())
    }

    pub(super) fn get_subscription(&mut self, asked: Asked, path: &str) -> Done {
        let (access, path) = (self.access.clone(), path.to_owned());
        self.apart(asked, async move {
            let described = access.describe_subscription(&path).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        });
        Ok(())
    }

    pub(super) fn update_subscription(&mut self, asked: Asked, update: UpdateSubscription) -> Done {
        update.properties.to_update()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            access.allow(Action::Update, &update.path).await?;
            updated(update.version, || try_update_subscription(&access, &update)).await
        });
        Ok(())
    }

    pub(super) fn list_subscriptions(&mut self, asked: Asked, list: &ListOf) -> Done {
        let topic = list.path.clone();
        let access = self.access.clone();
        let (skip, top) = self.page(list.skip, list.top);
        self.apart(asked, async move {
            let subscriptions = access.subscriptions(&topic, skip, top).await?;
            let subscriptions = subscriptions.into_iter().map(SubscriptionView::from).collect();
            Ok(Notice::Subscriptions(SubscriptionList { subscriptions }))
        });
        Ok(())
    }

    pub(super) fn create_rule(&mut self, asked: Asked, set: SetRule) -> Done {
        let rule = set.rule.to_description()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            let rule = access.create_rule(&set.path, rule).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        });
        Ok(())
    }

    pub(super) fn update_rule(&mut self, asked: Asked, set: SetRule) -> Done {
        let rule = set.rule.to_description()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            let rule = access.update_rule(&set.path, rule).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        });
        Ok(())
    }

    pub(super) fn delete_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        let access = self.access.clone();
        self.apart(asked, async move {
            access.delete_rule(&named.path, &named.name).await?;
            Ok(Notice::Done(Default::default()))
        });
        Ok(())
    }

    pub(super) fn get_rule(&mut self, asked: Asked, named: NamedRule) -> Done {
        let access = self.access.clone();
        self.apart(asked, async move {
            let rule = access.rule(&named.path, &named.name).await?;
            Ok(Notice::Rule(Box::new(RuleForm::from(&rule))))
        });
        Ok(())
    }

    pub(super) fn list_rules(&mut self, asked: Asked, list: &ListOf) -> Done {
        let (access, path) = (self.access.clone(), list.path.clone());
        let (skip, top) = self.page(list.skip, list.top);
        self.apart(asked, async move {
            let rules = access.rules(&path, skip, top).await?;
            let rules = rules.iter().map(RuleForm::from).collect();
            Ok(Notice::Rules(RuleList { rules }))
        });
        Ok(())
    }

    pub(super) fn explain(&mut self, asked: Asked, explain: Explain) -> Done {
        let message = self.inbound(explain.message)?;
        let access = self.access.clone();
        self.apart(asked, async move {
            let explained = access.explain(&explain.path, message).await?;
            let rules = explained.iter().map(ExplanationView::from).collect();
            Ok(Notice::Explained(Explained { rules }))
        });
        Ok(())
    }
}

async fn try_update_topic(access: &Access, update: &UpdateTopic) -> Result<Notice, BrokerError> {
    let (path, broker) = (&update.path, access.broker());
    let current = access.describe_topic(path).await?;
    let mut properties = update.properties.clone();
    properties.keep(&current);
    let properties = properties.to_update().map_err(|rejection| broker.refuse(rejection, path))?;
    let read_at = update.version.map_or(current.updated_at, |Instant(at)| at);
    let described = access.update_topic(path, properties, Some(read_at)).await?;
    Ok(Notice::Topic(Box::new(TopicView::from(described))))
}

async fn try_update_subscription(
    access: &Access,
    update: &UpdateSubscription,
) -> Result<Notice, BrokerError> {
    let (path, broker) = (&update.path, access.broker());
    let current = access.describe_subscription(path).await?;
    let mut properties = update.properties.clone();
    properties.keep(&current);
    let properties = properties.to_update().map_err(|rejection| broker.refuse(rejection, path))?;
    let read_at = update.version.map_or(current.updated_at, |Instant(at)| at);
    let described = access.update_subscription(path, properties, Some(read_at)).await?;
    Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
}
