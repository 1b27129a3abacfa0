//! What the configuration declares is there when the broker is: queues, topics, subscriptions and rules.

use peeklock::Broker;
use peeklock::condition::Condition;
use peeklock::error::BrokerError;
use peeklock::path::subscription_path;
use peeklock::rule::{DEFAULT_RULE, RuleDescription};

use super::ServeError;
use crate::config::{QueueDeclaration, SubscriptionDeclaration, TopicDeclaration, differences};

/// What becomes of an entity that exists and differs from its declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// It is left as it is: its messages and clients may rest on properties that were changed after its creation.
    IsKept,
    /// It gets the properties that differ (ADM-64).
    IsUpdated,
}

/// One declaration.
enum Declared<'a> {
    Queue(&'a QueueDeclaration),
    Topic(&'a TopicDeclaration),
    Subscription(&'a TopicDeclaration, &'a SubscriptionDeclaration),
}

/// Declares everything, that first that others forward to, whatever the order in the file.
pub async fn declare_all(
    broker: &Broker,
    queues: &[QueueDeclaration],
    topics: &[TopicDeclaration],
    existing: Existing,
) -> Result<(), ServeError> {
    let mut waiting: Vec<Declared<'_>> = topics.iter().map(Declared::Topic).collect();
    waiting.extend(queues.iter().map(Declared::Queue));
    for topic in topics {
        let below = topic.subscriptions.iter();
        waiting.extend(below.map(|subscription| Declared::Subscription(topic, subscription)));
    }
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut later = Vec::new();
        let mut absent = None;
        for declared in waiting {
            match declared.declare(broker, existing).await {
                Err(source) if source.condition() == Condition::EntityNotFound => {
                    absent = Some(declared.failed(source));
                    later.push(declared);
                }
                Err(source) => return Err(declared.failed(source)),
                Ok(()) => {}
            }
        }
        if let Some(absent) = absent.filter(|_| later.len() == before) {
            return Err(absent);
        }
        waiting = later;
    }
    Ok(())
}

impl Declared<'_> {
    fn path(&self) -> String {
        match self {
            Self::Queue(queue) => queue.name.clone(),
            Self::Topic(topic) => topic.name.clone(),
            Self::Subscription(topic, subscription) => {
                subscription_path(&topic.name, &subscription.name)
            }
        }
    }

    fn failed(&self, source: BrokerError) -> ServeError {
        let kind = match self {
            Self::Queue(_) => "queue",
            Self::Topic(_) => "topic",
            Self::Subscription(..) => "subscription",
        };
        ServeError::Declared { kind, name: self.path(), source }
    }

    async fn declare(&self, broker: &Broker, existing: Existing) -> Result<(), BrokerError> {
        let path = self.path();
        let created = match self {
            Self::Queue(queue) => broker.create_queue(&path, queue.properties()).await.map(|_| ()),
            Self::Topic(topic) => broker.create_topic(&path, topic.properties()).await.map(|_| ()),
            Self::Subscription(topic, subscription) => {
                let rules = rules_of(subscription);
                let properties = subscription.properties();
                let name = &subscription.name;
                broker.create_subscription(&topic.name, name, properties, rules).await.map(|_| ())
            }
        };
        match created {
            Ok(()) => {
                tracing::info!(entity = path, "created as configured");
                Ok(())
            }
            Err(error) if error.condition() == Condition::EntityAlreadyExists => {
                self.compare(broker, &path, existing).await
            }
            Err(error) => Err(error),
        }
    }

    /// Updates what exists, or tells how it differs.
    async fn compare(
        &self,
        broker: &Broker,
        path: &str,
        existing: Existing,
    ) -> Result<(), BrokerError> {
        let differing: Vec<&str> = match self {
            Self::Queue(queue) => {
                let current = broker.describe_queue(path).await?.description;
                differences(&queue.properties(), &current)
            }
            Self::Topic(topic) => {
                let current = broker.describe_topic(path).await?.description;
                let mut wanted = topic.properties();
                wanted.user_metadata =
                    wanted.user_metadata.or_else(|| current.user_metadata.clone());
                let limits = &broker.settings().limits;
                let wanted =
                    wanted.apply_to(&current, limits).map_err(|it| broker.refuse(it, path))?;
                if wanted == current { Vec::new() } else { vec!["its properties"] }
            }
            Self::Subscription(_, subscription) => {
                let current = broker.describe_subscription(path).await?.description;
                let mut wanted = subscription.properties();
                wanted.user_metadata =
                    wanted.user_metadata.or_else(|| current.user_metadata.clone());
                if existing == Existing::IsKept {
                    let keep = |wanted: &mut Option<Box<str>>, current: &Option<Box<str>>| {
                        *wanted = wanted.take().or_else(|| current.clone());
                    };
                    keep(&mut wanted.forward_to, &current.forward_to);
                    keep(
                        &mut wanted.forward_dead_lettered_messages_to,
                        &current.forward_dead_lettered_messages_to,
                    );
                }
                let limits = &broker.settings().limits;
                let wanted =
                    wanted.apply_to(&current, limits).map_err(|it| broker.refuse(it, path))?;
                if wanted == current { Vec::new() } else { vec!["its properties"] }
            }
        };
        match existing {
            Existing::IsKept if differing.is_empty() => Ok(()),
            Existing::IsKept => {
                tracing::warn!(
                    entity = path,
                    properties = differing.join(", "),
                    "exists with other properties than configured and is left as it is; change it through \
                     the management API, or delete it"
                );
                Ok(())
            }
            Existing::IsUpdated => self.update(broker, path).await,
        }
    }

    async fn update(&self, broker: &Broker, path: &str) -> Result<(), BrokerError> {
        match self {
            Self::Queue(queue) => {
                let current = broker.describe_queue(path).await?;
                let mut wanted = queue.properties();
                wanted.user_metadata = wanted.user_metadata.or(current.description.user_metadata);
                let updated = broker.update_queue(path, wanted, None).await?;
                told(path, updated.updated_at != current.updated_at);
            }
            Self::Topic(topic) => {
                let current = broker.describe_topic(path).await?;
                let mut wanted = topic.properties();
                wanted.user_metadata = wanted.user_metadata.or(current.description.user_metadata);
                let updated = broker.update_topic(path, wanted, None).await?;
                told(path, updated.updated_at != current.updated_at);
            }
            Self::Subscription(_, subscription) => {
                let current = broker.describe_subscription(path).await?;
                let mut wanted = subscription.properties();
                wanted.user_metadata = wanted.user_metadata.or(current.description.user_metadata);
                let updated = broker.update_subscription(path, wanted, None).await?;
                told(path, updated.updated_at != current.updated_at);
                update_rules(broker, path, &rules_of(subscription)).await?;
            }
        }
        Ok(())
    }
}

/// Judged when the configuration was loaded.
fn rules_of(subscription: &SubscriptionDeclaration) -> Vec<RuleDescription> {
    subscription.rules().unwrap_or_default()
}

fn told(path: &str, is_changed: bool) {
    if is_changed {
        tracing::info!(entity = path, "updated as configured");
    }
}

/// Has the rules that are declared among those of a subscription. Others stay, but for that of a subscription without
/// declared ones.
async fn update_rules(
    broker: &Broker,
    path: &str,
    rules: &[RuleDescription],
) -> Result<(), BrokerError> {
    let current = broker.rules(path, 0, usize::MAX).await?;
    let find = |name: &str| current.iter().find(|rule| rule.name.eq_ignore_ascii_case(name));
    for rule in rules {
        match find(&rule.name) {
            None => broker.create_rule(path, rule.clone()).await?,
            Some(known) if known.filter == rule.filter && known.action == rule.action => continue,
            Some(_) => broker.update_rule(path, rule.clone()).await?,
        };
        tracing::info!(entity = path, rule = %rule.name, "rule set as configured");
    }
    let declares_default = rules.iter().any(|rule| rule.name.eq_ignore_ascii_case(DEFAULT_RULE));
    if !rules.is_empty() && !declares_default && find(DEFAULT_RULE).is_some() {
        broker.delete_rule(path, DEFAULT_RULE).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use peeklock::description::{QueueUpdate, TopicUpdate};
    use peeklock::time::TimeSpan;

    use super::*;
    use crate::config::{Layers, Loaded};

    const CONFIG: &str = r#"
        [[queues]]
        name = "orders"
        max_delivery_count = 5
        forward_to = "archive"
        [[queues]]
        name = "archive"
        [[topics]]
        name = "events"
        default_message_time_to_live = "1h"
        [[topics.subscriptions]]
        name = "eu"
        lock_duration = "30s"
        [[topics.subscriptions.rules]]
        name = "region"
        sql = "region = 'eu'"
        [[topics.subscriptions]]
        name = "all"
        forward_to = "orders"
        [[topics.subscriptions]]
        name = "rest"
        catch_all = true
    "#;

    async fn declared(broker: &Broker, existing: Existing) {
        let file = std::env::temp_dir().join(format!("peeklock-declare-{}.toml", broker.id()));
        std::fs::write(&file, CONFIG).unwrap();
        let layers = Layers {
            file: Some(file.clone()),
            environment: Some(config::Map::default()),
            ..Layers::default()
        };
        let loaded = Loaded::load(&layers).unwrap();
        std::fs::remove_file(file).unwrap();
        declare_all(broker, &loaded.config.queues, &loaded.config.topics, existing).await.unwrap();
    }

    async fn existing() -> Broker {
        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        let queue = QueueUpdate {
            max_delivery_count: Some(3),
            user_metadata: Some("mine".into()),
            ..QueueUpdate::default()
        };
        broker.create_queue("Orders", queue).await.unwrap();
        broker.create_queue("other", QueueUpdate::default()).await.unwrap();
        broker.create_topic("events", TopicUpdate::default()).await.unwrap();
        broker.create_subscription("events", "eu", Default::default(), Vec::new()).await.unwrap();
        broker
    }

    /// ADM-63: everything is there, whatever the order in the file; destinations may stand later in it.
    #[tokio::test]
    async fn what_is_declared_is_there() {
        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        for _ in 0..2 {
            declared(&broker, Existing::IsKept).await;
            let orders = broker.describe_queue("orders").await.unwrap().description;
            assert_eq!(
                (orders.max_delivery_count, orders.forward_to.as_deref()),
                (5, Some("archive"))
            );
            let rules = broker.rules("events/Subscriptions/eu", 0, 9).await.unwrap();
            assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["region"]);
            let rules = broker.rules("events/Subscriptions/all", 0, 9).await.unwrap();
            assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), [DEFAULT_RULE]);
            let rest = broker.describe_subscription("events/Subscriptions/rest").await.unwrap();
            assert!(rest.description.catch_all, "TOP-25");
        }
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }

    #[tokio::test]
    async fn what_exists_is_left_as_it_is() {
        let broker = existing().await;
        declared(&broker, Existing::IsKept).await;
        let orders = broker.describe_queue("orders").await.unwrap().description;
        assert_eq!((orders.max_delivery_count, orders.forward_to), (3, None));
        let eu = broker.describe_subscription("events/Subscriptions/eu").await.unwrap();
        assert_eq!(eu.description.lock_duration, TimeSpan::from_minutes(1));
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }

    /// ADM-64: in the emulator's place what differs is updated, and what is not in the file stays.
    #[tokio::test]
    async fn what_exists_is_updated_in_the_emulators_place() {
        let broker = existing().await;
        declared(&broker, Existing::IsUpdated).await;
        let orders = broker.describe_queue("orders").await.unwrap().description;
        assert_eq!((orders.max_delivery_count, orders.forward_to.as_deref()), (5, Some("archive")));
        assert_eq!((&*orders.path, orders.user_metadata.as_deref()), ("Orders", Some("mine")));
        let events = broker.describe_topic("events").await.unwrap().description;
        assert_eq!(events.default_message_time_to_live, TimeSpan::from_minutes(60));
        let eu = broker.describe_subscription("events/Subscriptions/eu").await.unwrap();
        assert_eq!(eu.description.lock_duration, TimeSpan::from_seconds(30));
        let rules = broker.rules("events/Subscriptions/eu", 0, 9).await.unwrap();
        assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["region"]);
        broker.describe_queue("other").await.unwrap();
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }
}
