//! Management of the subscriptions of a topic.

use std::collections::BTreeMap;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::Of;
use peeklock_core::command::DescribedSubscription;
use peeklock_core::contract::Action;
use peeklock_core::description::{EntityKind, Patch};
use peeklock_core::path::subscription_path;
use peeklock_core::permits::Large;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::page::page;
use super::{json, large, no_content};
use crate::body;
use crate::error::{Answer, Problem};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::{located, version, versioned};
use peeklock_json::{RuleForm, SubscriptionProperties, SubscriptionView};

/// A page of a topic's subscriptions in case-insensitive order of their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct SubscriptionPage {
    subscriptions: Vec<SubscriptionView>,
    skip: usize,
    top: usize,
}

/// Properties of a new subscription, and its rules.
#[derive(ToSchema)]
pub(crate) struct NewSubscription {
    #[schema(inline)]
    #[serde(flatten)]
    properties: SubscriptionProperties,
    /// Its first rules. Without any it gets one named `$Default`, which selects every message.
    rules: Option<Vec<RuleForm>>,
}

impl<'de> Deserialize<'de> for NewSubscription {
    /// Takes the rules out of the object; what is left are properties and nothing else.
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

/// List the subscriptions of a topic.
#[utoipa::path(get, operation_id = "list_subscriptions",
    path = "/topics/{topic}/subscriptions", tag = "subscriptions",
    params(("topic" = String, Path), ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "by default 100, which is also the most")),
    responses((status = 200, body = SubscriptionPage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange, topic: &str) -> Answer {
    let (skip, top) = page(exchange)?;
    let (_turn, room) = exchange.turn(Large::List, Of::Entities(topic)).await?;
    let subscriptions = exchange.access.subscriptions(topic, skip, top).await?;
    let subscriptions = subscriptions.into_iter().map(Into::into).collect();
    large(exchange, room, &SubscriptionPage { subscriptions, skip, top }).await
}

/// Create a subscription, with its rules or with none of its own.
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
    let properties = new.properties.to_update()?;
    let rules = new.rules.unwrap_or_default();
    let rules = rules.iter().map(RuleForm::to_description).collect::<Result<Vec<_>, _>>()?;
    let access = &exchange.access;
    let described = access.create_subscription(topic, name, properties, rules).await?;
    let location = format!(
        "{}/$api/v1/topics/{}/subscriptions/{}",
        exchange.base_url(),
        encode_segment(&described.description.topic),
        encode_segment(&described.description.name)
    );
    Ok(located(subscription(StatusCode::CREATED, described), &location))
}

/// Read a subscription's properties, counts and instants.
#[utoipa::path(get, operation_id = "get_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path)),
    responses((status = 200, body = SubscriptionView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, topic: &str, name: &str) -> Answer {
    let path = exchange.allow(Action::Describe, &subscription_path(topic, name)).await?;
    let described = exchange.access.describe_subscription(&path).await?;
    Ok(subscription(StatusCode::OK, described))
}

/// Change properties of a subscription.
///
/// A merge patch (RFC 7396), as for queues: a property that is not named keeps its value, `null` clears
/// `forwardTo`, `forwardDeadLetteredMessagesTo` and `userMetadata`. Rules are resources of their own.
#[utoipa::path(patch, operation_id = "update_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path),
        ("If-Match" = Option<String>, Header, description = "the ETag, which is the quoted \
        updatedAt, of the version to be changed; a later one gives UpdateConflict")),
    request_body = SubscriptionProperties,
    responses((status = 200, body = SubscriptionView), (status = "default", body = Problem)))]
pub(super) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    topic: &str,
    name: &str,
) -> Answer {
    let path = exchange.allow(Action::Update, &subscription_path(topic, name)).await?;
    let version = version(exchange)?;
    let (properties, _room): (SubscriptionProperties, _) =
        body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), read_at: version };
    let described = exchange.access.patch(&path, &properties.to_update()?, patch).await?;
    Ok(subscription(StatusCode::OK, described))
}

/// Delete a subscription with everything in it.
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
    exchange.access.delete(&path, EntityKind::Subscription).await?;
    Ok(no_content())
}

/// A subscription, with its version as ETag.
fn subscription(status: StatusCode, described: DescribedSubscription) -> HttpResponse {
    let updated_at = described.updated_at;
    versioned(json(status, &SubscriptionView::from(described)), updated_at)
}
