//! Management operations on subscriptions of a topic. `api/mod.rs` routes requests to these
//! functions; `manage` checks rights and carries them out.

use std::collections::BTreeMap;

use actix_web::http::Method;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::{EntityKind, Patch};
use peeklock_core::management::Management;
use peeklock_core::path::subscription_path;
use peeklock_json::{RuleForm, SubscriptionProperties, SubscriptionView};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::{OpenApi, ToSchema};

use super::manage::{SubscriptionPage, manage};
use super::page;
use crate::body;
use crate::error::{Answer, Problem};
use crate::exchange::{Exchange, version};

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(list, create, get, update, delete))]
pub(super) struct Operations;

/// Methods of a subscription.
pub(super) const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// Dispatches by method to the operation on one subscription.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    topic: &str,
    name: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create(exchange, payload, topic, name).await,
        "PATCH" => update(exchange, payload, topic, name).await,
        "DELETE" => delete(exchange, payload, topic, name).await,
        _ => get(exchange, topic, name).await,
    }
}

/// List the subscriptions of a topic.
///
/// A page has at most 1 MiB, or one subscription that is larger. It may therefore be shorter than
/// `top`; an empty page ends the list.
#[utoipa::path(get, operation_id = "list_subscriptions",
    path = "/topics/{topic}/subscriptions", tag = "subscriptions",
    params(("topic" = String, Path), ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of subscriptions; at most \
            100, the default")),
    responses((status = 200, body = SubscriptionPage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange, topic: &str) -> Answer {
    manage(exchange, topic, Management::Subscriptions(page(exchange)?)).await
}

/// Properties of a new subscription, and its rules.
#[derive(ToSchema)]
pub(crate) struct NewSubscription {
    #[schema(inline)]
    #[serde(flatten)]
    properties: SubscriptionProperties,
    /// Its first rules. By default it gets a rule named `$Default`, which selects every message.
    rules: Option<Vec<RuleForm>>,
}

impl<'de> Deserialize<'de> for NewSubscription {
    /// Takes the rules out of the object; the rest must be properties.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parts: BTreeMap<String, Box<RawValue>> = BTreeMap::deserialize(deserializer)?;
        let rules = match parts.remove("rules") {
            Some(rules) => serde_json::from_str(rules.get()).map_err(D::Error::custom)?,
            None => None,
        };
        let properties = serde_json::to_string(&parts).map_err(D::Error::custom)?;
        let properties = serde_json::from_str(&properties).map_err(D::Error::custom)?;
        Ok(Self { properties, rules })
    }
}

/// Create a subscription with the given rules, or with the default rule.
#[utoipa::path(put, operation_id = "create_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path)),
    request_body = NewSubscription,
    responses((status = 201, body = SubscriptionView), (status = "default", body = Problem)))]
pub(super) async fn create(
    exchange: &Exchange,
    payload: &mut web::Payload,
    topic: &str,
    name: &str,
) -> Answer {
    exchange.allow(Action::Create, &subscription_path(topic, name)).await?;
    let (new, _room): (NewSubscription, _) = body::read_json(exchange, payload).await?;
    let properties = Box::new(new.properties.to_update()?);
    let rules = new.rules.unwrap_or_default();
    let rules = rules.iter().map(RuleForm::to_description).collect::<Result<Vec<_>, _>>()?;
    let create = Management::CreateSubscription { name: name.into(), properties, rules };
    manage(exchange, topic, create).await
}

/// Read a subscription's properties, counts and instants.
#[utoipa::path(get, operation_id = "get_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path)),
    responses((status = 200, body = SubscriptionView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, topic: &str, name: &str) -> Answer {
    manage(exchange, &subscription_path(topic, name), Management::Subscription).await
}

/// Change properties of a subscription.
///
/// A merge patch (RFC 7396), as for queues: an absent property keeps its value, and `null` clears
/// `forwardTo`, `forwardDeadLetteredMessagesTo` and `userMetadata`. Rules are separate resources.
#[utoipa::path(patch, operation_id = "update_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path),
        ("If-Match" = Option<String>, Header, description = "ETag of the version to change: the \
            quoted updatedAt; if the entity has changed since, the response is UpdateConflict")),
    request_body = SubscriptionProperties,
    responses((status = 200, body = SubscriptionView), (status = "default", body = Problem)))]
pub(super) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    topic: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::Update, &subscription_path(topic, name)).await?;
    let expected_created_at = version(exchange)?;
    let (properties, _room): (SubscriptionProperties, _) =
        body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), expected_created_at };
    let update = Management::UpdateSubscription(Box::new(properties.to_update()?), patch);
    manage(exchange, &path, update).await
}

/// Delete a subscription with all its messages.
#[utoipa::path(delete, operation_id = "delete_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    topic: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::Delete, &subscription_path(topic, name)).await?;
    body::discard(exchange, payload).await?;
    manage(exchange, &path, Management::Delete(EntityKind::Subscription)).await
}
