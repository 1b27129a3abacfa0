//! Reads an entity or a rule, with its counts (HTP-12, HTP-16). The answers to creations and
//! changes have the same form.

use actix_web::http::StatusCode;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::limits::Tier;
use peeklock_core::management::{Managed, Management};
use peeklock_core::path::subscription_path;

use super::entry::{Addresses, Entry};
use super::form::{entity, policies, rule};
use super::path::AtomRoute;
use super::xml::Xml;
use crate::error::{Answer, Refusal};
use crate::exchange::{Exchange, versioned};

/// Reads the entity or rule at an address.
pub(super) async fn get(exchange: &Exchange, route: &AtomRoute, status: StatusCode) -> Answer {
    match route {
        AtomRoute::Entity { path } => {
            let kind = match super::kind_at(exchange, Action::Describe, path).await {
                Err(refusal) if refusal.is(Condition::Unauthorized) => {
                    return Err(absent(exchange, path).await.unwrap_or(refusal));
                }
                kind => kind?,
            };
            let request = match kind {
                EntityKind::Queue => Management::Queue,
                EntityKind::Topic => Management::Topic,
                // The address of an entity never names a subscription.
                EntityKind::Subscription => return Err(Refusal::no_resource()),
            };
            let managed = exchange.access.manage(path, request).await?;
            described(exchange, path, managed, None, status).await
        }
        AtomRoute::Subscription { topic, name } => {
            let path = subscription_path(topic, name);
            let managed = exchange.access.manage(&path, Management::Subscription).await?;
            described(exchange, &path, managed, None, status).await
        }
        AtomRoute::Rule { topic, subscription, name } => {
            let path = subscription_path(topic, subscription);
            // In this API, rules need the right to manage the subscription, as in the cloud
            // (SEC-05).
            exchange.allow(Action::Describe, &path).await?;
            let read = exchange.access.manage(&path, Management::Rule(name.as_str().into()));
            let Managed::Rule(rule) = read.await? else { return Err(Refusal::unexpected()) };
            let addresses = Addresses::of(exchange);
            rule::entry(*rule, &path)?.answer_in_room(exchange, &addresses).await
        }
        AtomRoute::Namespace
        | AtomRoute::Queues
        | AtomRoute::Topics
        | AtomRoute::Subscriptions { .. }
        | AtomRoute::Rules { .. } => Err(Refusal::no_resource()),
    }
}

/// Returns the refusal for a missing entity, for a client that may send or receive there but not
/// manage. The data plane gives it the same answer, and SDKs expect "no such queue" (ADM-21).
async fn absent(exchange: &Exchange, path: &str) -> Option<Refusal> {
    let may_use = async |action| exchange.access.is_allowed(action, path).await;
    if !may_use(Action::Send).await && !may_use(Action::Receive).await {
        return None;
    }
    let action = if may_use(Action::Send).await { Action::Send } else { Action::Receive };
    let refusal = exchange.entity(action, path).await.err()?;
    refusal.is(Condition::EntityNotFound).then_some(refusal)
}

/// Answers with an entity that was read, created or changed, and its version. `policies` has the
/// policies that the client has just set; otherwise they are read here, if the client may read
/// them.
pub(super) async fn described(
    exchange: &Exchange,
    path: &str,
    managed: Managed,
    policies: Option<policies::PolicyViews>,
    status: StatusCode,
) -> Answer {
    let addresses = &Addresses::of(exchange);
    let policies = async |owner: &str| match policies {
        Some(policies) => Ok::<_, Refusal>(policies),
        None => Ok(policies::PolicyReader::of(exchange, path).await?.read(owner).await),
    };
    let (answer, updated_at) = match managed {
        Managed::Queue(queue) => {
            let (policies, updated_at) =
                (policies(&queue.description.path).await?, queue.updated_at);
            (entity::queue(*queue, policies, addresses).answer(status, addresses), updated_at)
        }
        Managed::Topic(topic) => {
            let (policies, updated_at) =
                (policies(&topic.description.path).await?, topic.updated_at);
            (entity::topic(*topic, policies, addresses).answer(status, addresses), updated_at)
        }
        Managed::Subscription(subscription) => {
            let updated_at = subscription.updated_at;
            (entity::subscription(*subscription, addresses).answer(status, addresses), updated_at)
        }
        _ => return Err(Refusal::unexpected()),
    };
    Ok(versioned(answer, updated_at))
}

/// Reads name, tier and instants of the namespace.
pub(super) async fn namespace(exchange: &Exchange) -> Answer {
    let read = exchange.access.manage("", Management::Namespace);
    let Managed::Namespace(namespace) = read.await? else { return Err(Refusal::unexpected()) };
    // Only this tier has messaging units; this broker counts as one unit.
    let has_units = namespace.tier == Tier::Premium;
    let entry = Entry {
        route: AtomRoute::Namespace,
        title: namespace.name.to_string(),
        published: namespace.created_at,
        updated: namespace.modified_at,
        element: "NamespaceInfo",
        write: |xml: &mut Xml| {
            xml.leaf("Alias", "");
            xml.leaf("CreatedTime", &namespace.created_at.to_string());
            xml.leaf("MessagingSKU", &namespace.tier.to_string());
            if has_units {
                xml.leaf("MessagingUnits", "1");
            }
            xml.leaf("ModifiedTime", &namespace.modified_at.to_string());
            xml.leaf("Name", &namespace.name);
            xml.leaf("NamespaceType", "Messaging");
        },
    };
    Ok(entry.answer(StatusCode::OK, &Addresses::of(exchange)))
}
