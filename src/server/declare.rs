//! Declaration of the configured queues, topics, subscriptions and rules at start. `server.rs`
//! calls it before the transports start, so that no client sees a partial declaration.

use peeklock::Broker;
use peeklock::declaration::{Declaration, Existing, Step};
use peeklock::error::BrokerError;

use super::ServeError;
use crate::config::{ConfigError, Loaded};
use crate::emulator::declared::with_emulator_meaning;

/// Creates missing entities. Existing ones that differ stay unchanged and are logged (DEC-14),
/// because messages and clients may depend on properties that were changed later. In the emulator's
/// place they are updated (DEC-15).
pub async fn declare(broker: &Broker, loaded: &Loaded) -> Result<(), ServeError> {
    let declaration = declared(loaded)?;
    let declared = broker.declare(&declaration).await;
    let plan = declared.map_err(|error| declaration_error(loaded, error))?;
    for step in plan.kept {
        tracing::warn!(
            entity = &*step.path,
            differs = differing(&step),
            "exists with other properties than configured and stays unchanged; `peeklock apply` \
             would update it"
        );
    }
    Ok(())
}

/// Error of a declaration that cannot be carried out. If the declaration is at fault, it is a
/// configuration error with the place in the file (ADM-63, DEC-08).
fn declaration_error(loaded: &Loaded, error: BrokerError) -> ServeError {
    let place = error.detail().split_once(": ");
    let place = place.filter(|(key, _)| key.starts_with("queues[") || key.starts_with("topics["));
    let Some((key, detail)) = place else { return ServeError::Declared(error) };
    let property = detail.split(' ').next().filter(|name| name.starts_with("forward_"));
    let key = property.map_or_else(|| key.to_owned(), |name| format!("{key}.{name}"));
    loaded.invalid((key, detail.to_owned())).into()
}

fn declared(loaded: &Loaded) -> Result<Declaration, ServeError> {
    let declaration = loaded.config.declaration().map_err(|(key, detail)| {
        ServeError::from(ConfigError::Invalid { key, detail, source_name: None })
    })?;
    if loaded.emulator.is_some() {
        return Ok(with_emulator_meaning(declaration));
    }
    Ok(declaration.existing(Existing::Keep))
}

/// Text with each differing property, its value and the configured value.
fn differing(step: &Step) -> String {
    let text = |value: &Option<Box<str>>| value.as_deref().unwrap_or("none").to_owned();
    let each = step.changes.iter().map(|change| {
        format!("{} is {}, not {}", change.property, text(&change.before), text(&change.after))
    });
    each.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use peeklock::declaration::{Change, StepKind};
    use peeklock::description::{EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
    use peeklock::time::{TimeSpan, Timestamp};

    use peeklock::rule::{DEFAULT_RULE, Filter, RuleDescription};

    use super::*;
    use crate::config::{InPlace, Layers};

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

    async fn declare(broker: &Broker, emulator: Option<InPlace>) {
        let file = std::env::temp_dir().join(format!("peeklock-declare-{}.toml", broker.id()));
        std::fs::write(&file, CONFIG).unwrap();
        let layers = Layers {
            file: Some(file.clone()),
            environment: Some(config::Map::default()),
            emulator,
            ..Layers::default()
        };
        let loaded = Loaded::load(&layers).unwrap();
        std::fs::remove_file(file).unwrap();
        super::declare(broker, &loaded).await.unwrap();
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

    /// ADM-63: all configured entities exist, independent of their order in the file; destinations
    /// may be declared later.
    #[tokio::test]
    async fn declared_entities_are_created() {
        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        for _ in 0..2 {
            declare(&broker, None).await;
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

    /// DEC-14: existing entities stay unchanged.
    #[tokio::test]
    async fn existing_entities_stay_unchanged() {
        let broker = existing().await;
        declare(&broker, None).await;
        let orders = broker.describe_queue("orders").await.unwrap().description;
        assert_eq!((orders.max_delivery_count, orders.forward_to), (3, None));
        let eu = broker.describe_subscription("events/Subscriptions/eu").await.unwrap();
        assert_eq!(eu.description.lock_duration, TimeSpan::from_minutes(1));
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }

    /// DEC-14: the log names each property with its value and the configured value.
    #[test]
    fn differences_are_logged_with_both_values() {
        let change = |property: &str, before: Option<&str>, after: Option<&str>| Change {
            property: property.into(),
            before: before.map(Into::into),
            after: after.map(Into::into),
        };
        let step = Step {
            kind: StepKind::Update,
            entity: EntityKind::Queue,
            path: "orders".into(),
            changes: vec![
                change("max_delivery_count", Some("10"), Some("5")),
                change("forward_to", None, Some("archive")),
            ],
        };
        assert_eq!(
            differing(&step),
            "max_delivery_count is 10, not 5; forward_to is none, not archive"
        );
    }

    /// ADM-64, DEC-15: in the emulator's place, properties that differ are updated, entities and
    /// rules outside the file stay, and an absent destination is removed.
    #[tokio::test]
    async fn existing_entities_are_updated_for_the_emulator() {
        let broker = existing().await;
        let path = "events/Subscriptions/eu";
        let mine = RuleDescription::new("mine", Filter::False, Timestamp::NONE);
        broker.create_rule(path, mine).await.unwrap();
        let elsewhere =
            SubscriptionUpdate { forward_to: Some("other".into()), ..Default::default() };
        broker.update_subscription(path, elsewhere, None).await.unwrap();
        declare(&broker, Some(InPlace::default())).await;
        let orders = broker.describe_queue("orders").await.unwrap().description;
        assert_eq!((orders.max_delivery_count, orders.forward_to.as_deref()), (5, Some("archive")));
        assert_eq!((&*orders.path, orders.user_metadata.as_deref()), ("Orders", Some("mine")));
        let events = broker.describe_topic("events").await.unwrap().description;
        assert_eq!(events.default_message_time_to_live, TimeSpan::from_minutes(60));
        let eu = broker.describe_subscription("events/Subscriptions/eu").await.unwrap();
        assert_eq!(eu.description.lock_duration, TimeSpan::from_seconds(30));
        assert_eq!(eu.description.forward_to, None);
        let rules = broker.rules("events/Subscriptions/eu", 0, 9).await.unwrap();
        assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["mine", "region"]);
        broker.describe_queue("other").await.unwrap();
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }
}
