//! Lists topics.

use peeklock_json::TopicView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::large;
use crate::api::page::page;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// A page of topics in case-insensitive order of their paths.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicPage {
    topics: Vec<TopicView>,
    skip: usize,
    top: usize,
}

/// List topics.
///
/// A page has at most 1 MiB of them, or one, and is shorter than `top` where they are more: the list ends with an empty page.
#[utoipa::path(get, operation_id = "list_topics",
    path = "/topics", tag = "topics",
    params(("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of topics; at most 100, the \
            default")),
    responses((status = 200, body = TopicPage), (status = "default", body = Problem)))]
pub(in crate::api) async fn list(exchange: &Exchange) -> Answer {
    let (skip, top) = page(exchange)?;
    let turn = exchange.access.turn_at_topics().await?;
    let room = exchange.room().await?;
    let topics = turn.page(skip, top).await?;
    let topics = topics.into_iter().map(Into::into).collect();
    large(exchange, room, &TopicPage { topics, skip, top }).await
}
