//! Changes an entity or a rule: `PUT` with `If-Match` (HTP-12, ADM-21, ADM-24, ADM-31). A property
//! that the body omits gets its default, except properties that are fixed at creation or unknown to
//! some clients. A rule is replaced as a whole (TOP-24).

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::Access;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::{
    Cleared, EntityKind, Patch, QueueDescription, SubscriptionDescription, TopicDescription,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::path::subscription_path;
use peeklock_core::time::Timestamp;

use super::entry::INSTANTS_BYTES;
use super::form::entity::{self, AtomEntity as _};
use super::form::{Destinations, policies, rule};
use super::get;
use super::path::AtomRoute;
use super::xml::Element;
use crate::error::{Answer, Refusal};
use crate::exchange::{Exchange, version};

/// Changes the entity or rule at an address, if the given version is current or any version is
/// accepted.
pub(super) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    route: &AtomRoute,
) -> Answer {
    let action = match route {
        AtomRoute::Rule { .. } => Action::ChangeRules,
        _ => Action::Update,
    };
    exchange.allow(action, &route.resource()).await?;
    let read_at = version(exchange)?;
    let (description, _room) = super::described(exchange, payload).await?;
    match route {
        AtomRoute::Entity { path } => {
            // A missing entity is reported before errors in its description (ADM-21).
            match super::kind_at(exchange, Action::Update, path).await? {
                EntityKind::Queue => update_queue(exchange, path, &description, read_at).await,
                EntityKind::Topic => update_topic(exchange, path, &description, read_at).await,
                // The address of an entity never names a subscription.
                EntityKind::Subscription => Err(Refusal::no_resource()),
            }
        }
        AtomRoute::Subscription { topic, name } => {
            super::expect(&description, SubscriptionDescription::ELEMENT)?;
            updated(read_at, || update_subscription(exchange, topic, name, &description, read_at))
                .await
        }
        AtomRoute::Rule { topic, subscription, name } => {
            super::expect(&description, rule::ELEMENT)?;
            let path = subscription_path(topic, subscription);
            let rule = rule::read(&description, name)?;
            let addresses = super::Addresses::of(exchange);
            let answer_bytes =
                rule::entry(rule.clone(), &path).map_or(0, |entry| entry.size(&addresses));
            let room = exchange.room_of(answer_bytes + INSTANTS_BYTES).await?;
            let updated = exchange.access.manage(&path, Management::UpdateRule(Box::new(rule)));
            let Managed::Rule(rule) = updated.await? else { return Err(Refusal::unexpected()) };
            let entry = rule::entry(*rule, &path)?;
            Ok(entry.answer_in(exchange, room, StatusCode::OK, &addresses))
        }
        AtomRoute::Namespace
        | AtomRoute::Queues
        | AtomRoute::Topics
        | AtomRoute::Subscriptions { .. }
        | AtomRoute::Rules { .. } => Err(Refusal::no_resource()),
    }
}

async fn update_queue(
    exchange: &Exchange,
    path: &str,
    description: &Element,
    read_at: Option<Timestamp>,
) -> Answer {
    super::expect(description, QueueDescription::ELEMENT)?;
    let policies = policies::read(description)?;
    policies::judge(exchange, path, policies.as_deref()).await?;
    let queue = updated(read_at, || async {
        let Managed::Queue(current) = exchange.access.manage(path, Management::Queue).await? else {
            return Err(Refusal::unexpected());
        };
        let settings = exchange.site.broker.settings();
        let properties = entity::read_update(description, &current.description, settings)?;
        let access =
            Destinations::of(&properties.forward_to, &properties.forward_dead_lettered_messages_to)
                .other_than([
                    &current.description.forward_to,
                    &current.description.forward_dead_lettered_messages_to,
                ])
                .access(exchange)
                .await?;
        let patch = whole(read_at.unwrap_or(current.updated_at));
        Ok(access.manage(path, Management::UpdateQueue(Box::new(properties), patch)).await?)
    })
    .await?;
    let policies = policies::replace(exchange, path, policies).await?;
    get::described(exchange, path, queue, Some(policies), StatusCode::OK).await
}

async fn update_topic(
    exchange: &Exchange,
    path: &str,
    description: &Element,
    read_at: Option<Timestamp>,
) -> Answer {
    super::expect(description, TopicDescription::ELEMENT)?;
    let policies = policies::read(description)?;
    policies::judge(exchange, path, policies.as_deref()).await?;
    let topic = updated(read_at, || async {
        let Managed::Topic(current) = exchange.access.manage(path, Management::Topic).await? else {
            return Err(Refusal::unexpected());
        };
        let settings = exchange.site.broker.settings();
        let properties = entity::read_update(description, &current.description, settings)?;
        let patch = whole(read_at.unwrap_or(current.updated_at));
        let update = Management::UpdateTopic(Box::new(properties), patch);
        Ok(exchange.access.manage(path, update).await?)
    })
    .await?;
    let policies = policies::replace(exchange, path, policies).await?;
    get::described(exchange, path, topic, Some(policies), StatusCode::OK).await
}

async fn update_subscription(
    exchange: &Exchange,
    topic: &str,
    name: &str,
    description: &Element,
    read_at: Option<Timestamp>,
) -> Answer {
    let path = subscription_path(topic, name);
    let read = exchange.access.manage(&path, Management::Subscription);
    let Managed::Subscription(current) = read.await? else { return Err(Refusal::unexpected()) };
    let settings = exchange.site.broker.settings();
    let properties = entity::read_update(description, &current.description, settings)?;
    let access =
        Destinations::of(&properties.forward_to, &properties.forward_dead_lettered_messages_to)
            .other_than([
                &current.description.forward_to,
                &current.description.forward_dead_lettered_messages_to,
            ])
            .access(exchange)
            .await?;
    let patch = whole(read_at.unwrap_or(current.updated_at));
    let update = Management::UpdateSubscription(Box::new(properties), patch);
    let updated = access.manage(&path, update).await?;
    get::described(exchange, &path, updated, None, StatusCode::OK).await
}

/// Returns a change of all properties, based on the version that was read.
const fn whole(read_at: Timestamp) -> Patch {
    Patch { cleared: Cleared::ALL, expected_created_at: Some(read_at) }
}

/// Attempts an update. An update without a version is repeated if another update has intervened.
async fn updated<T, F: Future<Output = Result<T, Refusal>>>(
    read_at: Option<Timestamp>,
    attempt: impl Fn() -> F,
) -> Result<T, Refusal> {
    let is_outrun = |refusal: &Refusal| refusal.is(Condition::UpdateConflict);
    Access::attempt_update(read_at, is_outrun, attempt).await
}
