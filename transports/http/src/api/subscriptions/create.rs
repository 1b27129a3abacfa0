//! Creates a subscription.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::path::subscription_path;
use peeklock_json::{RuleForm, SubscriptionProperties, SubscriptionView};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::answer;
use crate::body;
use crate::error::{Answer, Problem};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::located;

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

/// Create a subscription, with its rules or with none of its own.
#[utoipa::path(put, operation_id = "create_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path)),
    request_body = NewSubscription,
    responses((status = 201, body = SubscriptionView), (status = "default", body = Problem)))]
pub(in crate::api) async fn create(
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
    Ok(located(answer(StatusCode::CREATED, described), &location))
}
