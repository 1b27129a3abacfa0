//! Lists subscriptions.

use peeklock_json::SubscriptionView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::large;
use crate::api::page::page;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// A page of a topic's subscriptions in case-insensitive order of their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct SubscriptionPage {
    subscriptions: Vec<SubscriptionView>,
    skip: usize,
    top: usize,
}

/// List the subscriptions of a topic.
///
/// A page has at most 1 MiB of them, or one, and is shorter than `top` where they are more: the list ends with an empty page.
#[utoipa::path(get, operation_id = "list_subscriptions",
    path = "/topics/{topic}/subscriptions", tag = "subscriptions",
    params(("topic" = String, Path), ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of subscriptions; at most \
            100, the default")),
    responses((status = 200, body = SubscriptionPage), (status = "default", body = Problem)))]
pub(in crate::api) async fn list(exchange: &Exchange, topic: &str) -> Answer {
    let (skip, top) = page(exchange)?;
    let turn = exchange.access.turn_at_subscriptions(topic).await?;
    let room = exchange.room().await?;
    let subscriptions = turn.page(skip, top).await?;
    let subscriptions = subscriptions.into_iter().map(Into::into).collect();
    large(exchange, room, &SubscriptionPage { subscriptions, skip, top }).await
}
