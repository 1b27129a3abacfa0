//! Reads an entity or a rule, with what it counts (HTP-12, HTP-16). What was created or changed is told likewise.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use peeklock_core::command::{Described, DescribedSubscription, DescribedTopic};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::path::subscription_path;

use super::entry::Addresses;
use super::form::{entity, policies, rule};
use super::path::AtomRoute;
use crate::error::{Answer, Refusal};
use crate::serve::Exchange;
use crate::version::versioned;

/// Reads what stands at an address.
pub(super) async fn get(exchange: &Exchange, route: &AtomRoute, status: StatusCode) -> Answer {
    match route {
        AtomRoute::Entity { path } => {
            let kind = match super::kind_at(exchange, Action::Describe, path).await {
                Err(refusal) if refusal.is(Condition::Unauthorized) => {
                    return Err(absent(exchange, path).await.unwrap_or(refusal));
                }
                kind => kind?,
            };
            match kind {
                EntityKind::Queue => queue_at(exchange, path, status).await,
                EntityKind::Topic => topic_at(exchange, path, status).await,
                // No address that was read is one of an entity and names a subscription.
                EntityKind::Subscription => Err(Refusal::no_resource()),
            }
        }
        AtomRoute::Subscription { topic, name } => {
            subscription_at(exchange, topic, name, status).await
        }
        AtomRoute::Rule { topic, subscription, name } => {
            let path = subscription_path(topic, subscription);
            // Over this API rules are for who manages the subscription, as in the cloud (SEC-05).
            exchange.allow(Action::Describe, &path).await?;
            let rule = exchange.access.rule(&path, name).await?;
            let addresses = Addresses::of(exchange);
            rule::entry(rule, &path)?.answer_in_room(exchange, &addresses).await
        }
        AtomRoute::Namespace
        | AtomRoute::Queues
        | AtomRoute::Topics
        | AtomRoute::Subscriptions { .. }
        | AtomRoute::Rules { .. } => Err(Refusal::no_resource()),
    }
}

/// The refusal of a path that names nothing, for a client that may send or receive there and not manage: it learns that
/// from the data plane, and SDKs read it as "no such queue" (ADM-21).
async fn absent(exchange: &Exchange, path: &str) -> Option<Refusal> {
    let may_use = async |action| exchange.access.is_allowed(action, path).await;
    if !may_use(Action::Send).await && !may_use(Action::Receive).await {
        return None;
    }
    let action = if may_use(Action::Send).await { Action::Send } else { Action::Receive };
    let refusal = exchange.entity(action, path).await.err()?;
    refusal.is(Condition::EntityNotFound).then_some(refusal)
}

/// A queue as its client is told of it.
async fn queue_at(exchange: &Exchange, path: &str, status: StatusCode) -> Answer {
    let described = exchange.access.describe_queue(path).await?;
    let policies = policies::Teller::of(exchange, path).await;
    let policies = policies.tell(&described.description.path).await;
    Ok(queue_as_told(exchange, described, policies, status))
}

/// The same, when it is known.
pub(super) fn queue_as_told(
    exchange: &Exchange,
    described: Described,
    policies: policies::Told,
    status: StatusCode,
) -> HttpResponse {
    let (addresses, updated_at) = (Addresses::of(exchange), described.updated_at);
    let answer = entity::queue(described, policies, &addresses).answer(status, &addresses);
    versioned(answer, updated_at)
}

/// A topic likewise.
async fn topic_at(exchange: &Exchange, path: &str, status: StatusCode) -> Answer {
    let described = exchange.access.describe_topic(path).await?;
    let policies = policies::Teller::of(exchange, path).await;
    let policies = policies.tell(&described.description.path).await;
    Ok(topic_as_told(exchange, described, policies, status))
}

/// The same, when it is known.
pub(super) fn topic_as_told(
    exchange: &Exchange,
    described: DescribedTopic,
    policies: policies::Told,
    status: StatusCode,
) -> HttpResponse {
    let (addresses, updated_at) = (Addresses::of(exchange), described.updated_at);
    let answer = entity::topic(described, policies, &addresses).answer(status, &addresses);
    versioned(answer, updated_at)
}

/// A subscription likewise.
async fn subscription_at(
    exchange: &Exchange,
    topic: &str,
    name: &str,
    status: StatusCode,
) -> Answer {
    let path = subscription_path(topic, name);
    let described = exchange.access.describe_subscription(&path).await?;
    Ok(subscription_as_told(exchange, described, status))
}

/// The same, when it is known.
pub(super) fn subscription_as_told(
    exchange: &Exchange,
    described: DescribedSubscription,
    status: StatusCode,
) -> HttpResponse {
    let (addresses, updated_at) = (Addresses::of(exchange), described.updated_at);
    let answer = entity::subscription(described, &addresses).answer(status, &addresses);
    versioned(answer, updated_at)
}
