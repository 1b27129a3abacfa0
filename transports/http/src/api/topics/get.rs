//! Reads a topic.

use actix_web::http::StatusCode;
use peeklock_core::contract::Action;
use peeklock_json::TopicView;

use super::answer;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Read a topic's properties, counts and instants.
#[utoipa::path(get, operation_id = "get_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 200, body = TopicView), (status = "default", body = Problem)))]
pub(in crate::api) async fn get(exchange: &Exchange, path: &str) -> Answer {
    let path = exchange.allow(Action::Describe, path).await?;
    let described = exchange.access.describe_topic(&path).await?;
    Ok(answer(StatusCode::OK, described))
}
