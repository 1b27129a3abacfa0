//! Management: what is asked about entities, asked of the broker.

use std::sync::Arc;

use peeklock_core::Access;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::declaration::STEP_COUNT_MAX;
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};

use crate::port::{Managed, Management, Page};

pub(super) async fn manage(
    access: &Access,
    path: &str,
    asked: Management,
) -> Result<Managed, BrokerError> {
    Ok(match asked {
        Management::CreateQueue(properties) => {
            Managed::Queue(Box::new(access.create_queue(path, *properties).await?))
        }
        Management::Queue => Managed::Queue(Box::new(access.describe_queue(path).await?)),
        Management::UpdateQueue(properties, patch) => {
            Managed::Queue(Box::new(access.patch(path, &*properties, patch).await?))
        }
        Management::CreateTopic(properties) => {
            Managed::Topic(Box::new(access.create_topic(path, *properties).await?))
        }
        Management::Topic => Managed::Topic(Box::new(access.describe_topic(path).await?)),
        Management::UpdateTopic(properties, patch) => {
            Managed::Topic(Box::new(access.patch(path, &*properties, patch).await?))
        }
        Management::CreateSubscription { name, properties, rules } => Managed::Subscription(
            Box::new(access.create_subscription(path, &name, *properties, rules).await?),
        ),
        Management::Subscription => {
            Managed::Subscription(Box::new(access.describe_subscription(path).await?))
        }
        Management::UpdateSubscription(properties, patch) => {
            Managed::Subscription(Box::new(access.patch(path, &*properties, patch).await?))
        }
        Management::Delete(kind) => {
            access.delete(path, kind).await?;
            Managed::Done
        }
        Management::Paths(kind, page) => Managed::Paths(paths(access, path, kind, page).await?),
        Management::Queues(page) => {
            Managed::Queues(access.queues(page.skip, top(access, page)).await?)
        }
        Management::Topics(page) => {
            Managed::Topics(access.topics(page.skip, top(access, page)).await?)
        }
        Management::Subscriptions(page) => {
            let top = top(access, page);
            Managed::Subscriptions(access.subscriptions(path, page.skip, top).await?)
        }
        Management::CreateRule(rule) => {
            Managed::Rules(vec![access.create_rule(path, *rule).await?])
        }
        Management::UpdateRule(rule) => {
            Managed::Rules(vec![access.update_rule(path, *rule).await?])
        }
        Management::DeleteRule(name) => {
            access.delete_rule(path, &name).await?;
            Managed::Done
        }
        Management::Rule(name) => Managed::Rules(vec![access.rule(path, &name).await?]),
        Management::Rules(page) => {
            Managed::Rules(access.rules(path, page.skip, top(access, page)).await?)
        }
        Management::Explain(message) => {
            Managed::Explained(access.explain(path, access.broker().inbound(*message)).await?)
        }
        Management::Sessions(which, page) => {
            let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let (skip, top) = (page.skip as u64, narrow(top(access, page)));
            let list = Command::ListSessions { which, behind: None, skip, top };
            match ask(access, path, list).await? {
                Outcome::Sessions(sessions) => Managed::Sessions(sessions),
                other => return Err(unexpected(access, path, &other)),
            }
        }
        Management::DeleteDeferred(sequence) => {
            ask(access, path, Command::DeleteDeferred { sequence }).await?;
            Managed::Done
        }
        Management::DeleteUnlocked { count_max, enqueued_before } => {
            let most = access.broker().settings().limits.batch_delete_count_max;
            let count_max = count_max.unwrap_or_else(|| u32::try_from(most).unwrap_or(u32::MAX));
            let delete = Command::DeleteBatchUnlocked { count_max, enqueued_before };
            match ask(access, path, delete).await? {
                Outcome::Deleted(count) => Managed::Deleted(count),
                other => return Err(unexpected(access, path, &other)),
            }
        }
        Management::Policies => Managed::Policies(access.policies(path).await?),
        Management::Policy(name) => Managed::Policies(vec![access.policy(path, &name).await?]),
        Management::CreatePolicy(name, properties) => {
            Managed::Policies(vec![access.create_policy(path, &name, properties).await?])
        }
        Management::UpdatePolicy(name, properties) => {
            Managed::Policies(vec![access.update_policy(path, &name, properties).await?])
        }
        Management::DeletePolicy(name) => {
            access.delete_policy(path, &name).await?;
            Managed::Done
        }
        Management::PolicyKeys(name) => {
            Managed::PolicyKeys(Box::new(access.policy_keys(path, &name).await?))
        }
        Management::RegenerateKey(name, which, key) => {
            let keys = access.regenerate_key(path, &name, which, key).await?;
            Managed::PolicyKeys(Box::new(keys))
        }
        Management::Plan(declaration) => Managed::Plan(Box::new(access.plan(&declaration).await?)),
        Management::CarryOut(declaration, digest) => Managed::CarriedOut(Box::new(
            access.carry_out(&declaration, digest, STEP_COUNT_MAX).await?,
        )),
    })
}

async fn paths(
    access: &Access,
    path: &str,
    kind: EntityKind,
    page: Page,
) -> Result<Vec<Arc<str>>, BrokerError> {
    let top = top(access, page);
    match kind {
        EntityKind::Queue => access.queue_paths(page.skip, top).await,
        EntityKind::Topic => access.topic_paths(page.skip, top).await,
        EntityKind::Subscription => access.subscription_paths(path, page.skip, top).await,
    }
}

/// How many a list may have (ENT-30).
fn top(access: &Access, page: Page) -> usize {
    let most = access.broker().settings().limits.list_count_max.max(1);
    page.top.unwrap_or(most).min(most)
}

async fn ask(access: &Access, path: &str, command: Command) -> Result<Outcome, BrokerError> {
    let entity = access.entity(path, Action::of(&command)).await?;
    entity.call(command).await
}

fn unexpected(access: &Access, path: &str, outcome: &Outcome) -> BrokerError {
    access.broker().refuse(Rejection::internal(format!("unexpected answer {outcome:?}")), path)
}
