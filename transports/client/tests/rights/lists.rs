//! Tests of lists: they contain the entities that their reader may manage.

use std::sync::Arc;

use peeklock_client::Client;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Right;
use peeklock_core::error::BrokerError;

use crate::needs::RIGHTS;
use crate::world::{OWNERS, World, policy};

/// Returns the paths of a list; empty if it is refused.
fn told(listed: Result<Vec<Arc<str>>, BrokerError>) -> Vec<String> {
    match listed {
        Ok(paths) => paths.iter().map(ToString::to_string).collect(),
        Err(error) => {
            assert_eq!(error.condition(), Condition::Unauthorized);
            Vec::new()
        }
    }
}

/// SEC-05, SEC-08, SEC-17, CON-73: a list contains all entities for a manager of the namespace, one
/// for the manager of an entity, and none for others.
#[tokio::test]
async fn a_list_contains_only_readable_entities() {
    let world = World::new().await;
    for owner in OWNERS {
        for rights in RIGHTS {
            let name = policy(owner, rights);
            let client = Client::with_access(world.broker.access_of_policy(owner, &name));
            let admin = client.admin();
            let readable = |paths: &[&str]| -> Vec<String> {
                let may = |path: &&str| owner.is_empty() || owner == *path;
                let paths = paths.iter().copied().filter(may).map(ToOwned::to_owned);
                if rights.contains(&Right::Manage) { paths.collect() } else { Vec::new() }
            };
            let queues = readable(&["held", "orders", "sibling"]);
            let topics = readable(&["news"]);
            let subscriptions = if topics.is_empty() { &[][..] } else { &["all", "held"] };
            assert_eq!(told(admin.queue_paths(0, 9).await), queues, "{name}");
            assert_eq!(told(admin.topic_paths(0, 9).await), topics, "{name}");
            let described = admin.queues(0).await.map(|queues| {
                queues.into_iter().map(|queue| queue.description.path.into()).collect()
            });
            assert_eq!(told(described), queues, "{name}");
            let described = admin.topics(0).await.map(|topics| {
                topics.into_iter().map(|topic| topic.description.path.into()).collect()
            });
            assert_eq!(told(described), topics, "{name}");
            let paths = told(admin.subscription_paths("news", 0, 9).await);
            assert_eq!(paths.len(), subscriptions.len(), "{name}: {paths:?}");
            let described = admin.subscriptions("news", 0).await;
            assert_eq!(described.map_or(0, |all| all.len()), subscriptions.len(), "{name}");
        }
    }
    world.stop().await;
}
