//! Finds the existing entities that a declaration does not name and therefore deletes (DEC-18,
//! DEC-19). Subscriptions come first, then topics, then queues, each in the order of their paths.
//! So a plan that is made after some steps are done has the same order.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::broker::Broker;
use crate::condition::Condition;
use crate::declaration::planner::UnnamedEntity;
use crate::declaration::yielder::Yielder;
use crate::declaration::{Declaration, PLAN_DELETE_COUNT_MAX};
use crate::description::EntityKind;
use crate::error::{BrokerError, Quoted, Rejection};
use crate::path::{PathKey, subscription_path, validate_entity_path};

/// Number of entities that are looked at before other tasks of the thread run.
const PAGE_COUNT: usize = 1_000;

/// Returns the entities to delete, in the order of their deletion.
///
/// # Errors
/// `InvalidOperation` for a protected entity; `QuotaExceeded` if there are more than
/// [`PLAN_DELETE_COUNT_MAX`]; the error of a bad path.
pub(super) async fn unnamed_entities(
    broker: &Broker,
    declaration: &Declaration,
    yielder: &mut Yielder,
) -> Result<Vec<(EntityKind, Box<str>)>, Rejection> {
    let mut found = UnnamedEntities { declaration, entities: Vec::new() };
    let (mut queues, mut topics) = (BTreeSet::new(), BTreeSet::new());
    let limits = &broker.settings().limits;
    for queue in &declaration.queues {
        queues.insert(validate_entity_path(&queue.path, limits)?.key());
        yielder.step().await;
    }
    for topic in &declaration.topics {
        let name = validate_entity_path(&topic.path, limits)?;
        topics.insert(name.key());
        // A topic that does not exist yet has no subscriptions.
        let Ok(prefix) = broker.subscription_prefix(&name.path()) else { continue };
        let mut subscriptions = BTreeSet::new();
        for subscription in &topic.subscriptions {
            let path = subscription_path(&name.path(), &subscription.name);
            subscriptions.insert(PathKey::fold(&path));
            yielder.step().await;
        }
        let kind = EntityKind::Subscription;
        found.add(broker, kind, prefix.as_str(), &subscriptions, yielder).await?;
    }
    found.add(broker, EntityKind::Topic, "", &topics, yielder).await?;
    found.add(broker, EntityKind::Queue, "", &queues, yielder).await?;
    Ok(found.entities)
}

/// Returns an entity to delete as it is at present; none if it is gone.
pub(super) async fn present_entity(
    broker: &Broker,
    kind: EntityKind,
    path: &str,
) -> Result<Option<UnnamedEntity>, BrokerError> {
    let described = match kind {
        EntityKind::Queue => {
            broker.describe_queue(path).await.map(|queue| (queue.created_at, None))
        }
        EntityKind::Topic => broker
            .describe_topic(path)
            .await
            .map(|topic| (topic.created_at, Some(topic.subscription_count))),
        EntityKind::Subscription => broker
            .describe_subscription(path)
            .await
            .map(|subscription| (subscription.created_at, None)),
    };
    match described {
        Ok((created_at, subscription_count)) => {
            Ok(Some(UnnamedEntity { kind, path: path.into(), created_at, subscription_count }))
        }
        Err(error) if error.condition() == Condition::EntityNotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct UnnamedEntities<'a> {
    declaration: &'a Declaration,
    entities: Vec<(EntityKind, Box<str>)>,
}

impl UnnamedEntities<'_> {
    /// Adds the existing entities of a kind that are not among the named ones.
    async fn add(
        &mut self,
        broker: &Broker,
        kind: EntityKind,
        prefix: &str,
        named: &BTreeSet<PathKey>,
        yielder: &mut Yielder,
    ) -> Result<(), Rejection> {
        let mut skip = 0;
        loop {
            let paths = broker.paths_of(kind, prefix, skip, PAGE_COUNT);
            if paths.is_empty() {
                return Ok(());
            }
            skip += paths.len();
            for path in paths {
                if !named.contains(&PathKey::fold(&path)) {
                    self.add_one(kind, &path)?;
                }
                yielder.step().await;
            }
        }
    }

    fn add_one(&mut self, kind: EntityKind, path: &Arc<str>) -> Result<(), Rejection> {
        if let Some(protected) = protection_of(self.declaration, path) {
            return Err(Rejection::invalid_operation(format!(
                "{kind} {} would be deleted because it is not declared, but {} is protected by the \
                 setting console.protect; declare the {kind}",
                Quoted(path),
                Quoted(protected)
            )));
        }
        if self.entities.len() >= PLAN_DELETE_COUNT_MAX {
            return Err(Rejection::quota_exceeded(format!(
                "more than {PLAN_DELETE_COUNT_MAX} entities would be deleted; delete some \
                 first"
            )));
        }
        self.entities.push((kind, (&**path).into()));
        Ok(())
    }
}

/// Returns the protected path that forbids to delete an entity: its own, or a subscription below
/// it.
fn protection_of<'a>(declaration: &'a Declaration, path: &str) -> Option<&'a str> {
    let path = path.to_ascii_lowercase();
    let subscriptions = format!("{path}/subscriptions/");
    let is_of = |protected: &&str| {
        let protected = protected.to_ascii_lowercase();
        protected == path || protected.starts_with(&subscriptions)
    };
    declaration.protected.iter().map(|protected| &**protected).find(is_of)
}
