//! Changes properties of a subscription.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::Patch;
use peeklock_core::path::subscription_path;
use peeklock_json::{SubscriptionProperties, SubscriptionView};

use super::answer;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;
use crate::version::version;

/// Change properties of a subscription.
///
/// A merge patch (RFC 7396), as for queues: a property that is not named keeps its value, `null` clears
/// `forwardTo`, `forwardDeadLetteredMessagesTo` and `userMetadata`. Rules are resources of their own.
#[utoipa::path(patch, operation_id = "update_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path),
        ("If-Match" = Option<String>, Header, description = "ETag of the version to change: the \
            quoted updatedAt; if the entity has changed since, the response is UpdateConflict")),
    request_body = SubscriptionProperties,
    responses((status = 200, body = SubscriptionView), (status = "default", body = Problem)))]
pub(in crate::api) async fn update(
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
    Ok(answer(StatusCode::OK, described))
}
