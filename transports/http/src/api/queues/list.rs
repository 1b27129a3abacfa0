//! Lists queues.

use peeklock_json::QueueView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::large;
use crate::api::page::page;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// A page of queues in case-insensitive order of their paths.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueuePage {
    queues: Vec<QueueView>,
    skip: usize,
    top: usize,
}

/// List queues.
///
/// A page has at most 1 MiB of them, or one, and is shorter than `top` where they are more: the list ends with an empty page.
#[utoipa::path(get, path = "/queues", tag = "queues",
    params(("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of queues; at most 100, the \
            default")),
    responses((status = 200, body = QueuePage), (status = "default", body = Problem)))]
pub(in crate::api) async fn list(exchange: &Exchange) -> Answer {
    let (skip, top) = page(exchange)?;
    let turn = exchange.access.turn_at_queues().await?;
    let room = exchange.room().await?;
    let queues = turn.page(skip, top).await?;
    let queues = queues.into_iter().map(Into::into).collect();
    large(exchange, room, &QueuePage { queues, skip, top }).await
}
