//! Lists subscriptions.

use peeklock_core::Of;
use peeklock_core::permits::Large;
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
#[utoipa::path(get, operation_id = "list_subscriptions",
    path = "/topics/{topic}/subscriptions", tag = "subscriptions",
    params(("topic" = String, Path), ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "by default 100, which is also the most")),
    responses((status = 200, body = SubscriptionPage), (status = "default", body = Problem)))]
pub(in crate::api) async fn list(exchange: &Exchange, topic: &str) -> Answer {
    let (skip, top) = page(exchange)?;
    let (_turn, room) = exchange.turn(Large::List, Of::Entities(topic)).await?;
    let listing = exchange.access.subscriptions(topic, skip, top);
    let subscriptions = exchange.make(Large::List, listing).await?;
    let subscriptions = subscriptions.into_iter().map(Into::into).collect();
    large(exchange, room, &SubscriptionPage { subscriptions, skip, top }).await
}
