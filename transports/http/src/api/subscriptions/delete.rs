//! Deletes a subscription with everything in it.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::path::subscription_path;

use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Delete a subscription with everything in it.
#[utoipa::path(delete, operation_id = "delete_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete(
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
