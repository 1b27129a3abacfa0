//! Creates an entity or a rule: `PUT` without `If-Match` (HTP-12, ADM-20, ADM-21); deletes one:
//! `DELETE`. `atom/mod.rs` calls it.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use peeklock_core::contract::Action;
use peeklock_core::description::{
    EntityKind, QueueDescription, SubscriptionDescription, TopicDescription,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::path::subscription_path;

use super::entry::INSTANTS_BYTES;
use super::form::entity::{self, AtomEntity as _};
use super::form::{Destinations, policies, rule};
use super::get;
use super::path::AtomRoute;
use super::xml::{Element, SB};
use crate::body;
use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;

/// Creates the described entity or rule, which exists before the answer.
pub(super) async fn create(
    exchange: &Exchange,
    payload: &mut web::Payload,
    route: &AtomRoute,
) -> Answer {
    let action = match route {
        AtomRoute::Rule { .. } => Action::ChangeRules,
        _ => Action::Create,
    };
    exchange.allow(action, &route.resource()).await?;
    let (description, _room) = super::described(exchange, payload).await?;
    match route {
        AtomRoute::Entity { path } if description.is(SB, "TopicDescription") => {
            create_topic(exchange, path, &description).await
        }
        AtomRoute::Entity { path } => create_queue(exchange, path, &description).await,
        AtomRoute::Subscription { topic, name } => {
            create_subscription(exchange, topic, name, &description).await
        }
        AtomRoute::Rule { topic, subscription, name } => {
            super::expect(&description, rule::ELEMENT)?;
            let rule = rule::read(&description, name)?;
            let path = subscription_path(topic, subscription);
            let addresses = super::Addresses::of(exchange);
            let answer_bytes =
                rule::entry(rule.clone(), &path).map_or(0, |entry| entry.size(&addresses));
            let room = exchange.room_of(answer_bytes + INSTANTS_BYTES).await?;
            let created = exchange.access.manage(&path, Management::CreateRule(Box::new(rule)));
            let Managed::Rule(rule) = created.await? else { return Err(Refusal::unexpected()) };
            let entry = rule::entry(*rule, &path)?;
            Ok(entry.answer_in(exchange, room, StatusCode::CREATED, &addresses))
        }
        AtomRoute::Namespace
        | AtomRoute::Queues
        | AtomRoute::Topics
        | AtomRoute::Subscriptions { .. }
        | AtomRoute::Rules { .. } => Err(Refusal::no_resource()),
    }
}

async fn create_queue(exchange: &Exchange, path: &str, description: &Element) -> Answer {
    super::expect(description, QueueDescription::ELEMENT)?;
    let properties =
        entity::read_new::<QueueDescription>(description, exchange.site.broker.settings())?;
    let policies = policies::read(description)?;
    let access =
        Destinations::of(&properties.forward_to, &properties.forward_dead_lettered_messages_to)
            .access(exchange)
            .await?;
    policies::judge(exchange, path, policies.as_deref()).await?;
    // Created before its policies, since the client may have no rights under these.
    let queue = access.manage(path, Management::CreateQueue(Box::new(properties))).await?;
    let policies = policies::replace(exchange, path, policies).await?;
    get::described(exchange, path, queue, Some(policies), StatusCode::CREATED).await
}

async fn create_topic(exchange: &Exchange, path: &str, description: &Element) -> Answer {
    let properties =
        entity::read_new::<TopicDescription>(description, exchange.site.broker.settings())?;
    let policies = policies::read(description)?;
    policies::judge(exchange, path, policies.as_deref()).await?;
    let create = Management::CreateTopic(Box::new(properties));
    let topic = exchange.access.manage(path, create).await?;
    let policies = policies::replace(exchange, path, policies).await?;
    get::described(exchange, path, topic, Some(policies), StatusCode::CREATED).await
}

async fn create_subscription(
    exchange: &Exchange,
    topic: &str,
    name: &str,
    description: &Element,
) -> Answer {
    super::expect(description, SubscriptionDescription::ELEMENT)?;
    let properties =
        entity::read_new::<SubscriptionDescription>(description, exchange.site.broker.settings())?;
    // Without a rule it gets `$Default` (ADM-42).
    let rule = description.child(SB, entity::DEFAULT_RULE);
    let rules = rule.map(rule::read_first).transpose()?.into_iter().collect();
    let access =
        Destinations::of(&properties.forward_to, &properties.forward_dead_lettered_messages_to)
            .access(exchange)
            .await?;
    let properties = Box::new(properties);
    let create = Management::CreateSubscription { name: name.into(), properties, rules };
    let created = access.manage(topic, create).await?;
    get::described(exchange, topic, created, None, StatusCode::CREATED).await
}

/// Deletes the entity or rule at an address.
pub(super) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    route: &AtomRoute,
) -> Answer {
    let action = match route {
        AtomRoute::Rule { .. } => Action::ChangeRules,
        _ => Action::Delete,
    };
    exchange.allow(action, &route.resource()).await?;
    body::discard(exchange, payload).await?;
    let request = match route {
        AtomRoute::Entity { path } => {
            Management::Delete(super::kind_at(exchange, Action::Delete, path).await?)
        }
        AtomRoute::Subscription { .. } => Management::Delete(EntityKind::Subscription),
        AtomRoute::Rule { name, .. } => Management::DeleteRule(name.as_str().into()),
        AtomRoute::Namespace
        | AtomRoute::Queues
        | AtomRoute::Topics
        | AtomRoute::Subscriptions { .. }
        | AtomRoute::Rules { .. } => return Err(Refusal::no_resource()),
    };
    exchange.access.manage(&route.resource(), request).await?;
    // Some clients accept only 200 as success (ADM-53).
    Ok(HttpResponse::Ok().finish())
}
