//! Lists queues.

use peeklock_core::Of;
use peeklock_core::permits::Large;
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
#[utoipa::path(get, path = "/queues", tag = "queues",
    params(("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "by default 100, which is also the most")),
    responses((status = 200, body = QueuePage), (status = "default", body = Problem)))]
pub(in crate::api) async fn list(exchange: &Exchange) -> Answer {
    let (skip, top) = page(exchange)?;
    let (_turn, room) = exchange.turn(Large::List, Of::Entities("")).await?;
    let queues = exchange.make(Large::List, exchange.access.queues(skip, top)).await?;
    let queues = queues.into_iter().map(Into::into).collect();
    large(exchange, room, &QueuePage { queues, skip, top }).await
}
