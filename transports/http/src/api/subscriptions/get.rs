//! Reads a subscription.

use actix_web::http::StatusCode;
use peeklock_core::contract::Action;
use peeklock_core::path::subscription_path;
use peeklock_json::SubscriptionView;

use super::answer;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Read a subscription's properties, counts and instants.
#[utoipa::path(get, operation_id = "get_subscription",
    path = "/topics/{topic}/subscriptions/{subscription}", tag = "subscriptions",
    params(("topic" = String, Path), ("subscription" = String, Path)),
    responses((status = 200, body = SubscriptionView), (status = "default", body = Problem)))]
pub(in crate::api) async fn get(exchange: &Exchange, topic: &str, name: &str) -> Answer {
    let path = exchange.allow(Action::Describe, &subscription_path(topic, name)).await?;
    let described = exchange.access.describe_subscription(&path).await?;
    Ok(answer(StatusCode::OK, described))
}
