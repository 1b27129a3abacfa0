//! Reads a queue.

use actix_web::http::StatusCode;
use peeklock_core::contract::Action;
use peeklock_json::QueueView;

use super::answer;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Read a queue's properties, counts and instants.
#[utoipa::path(get, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)),
    responses((status = 200, body = QueueView), (status = "default", body = Problem)))]
pub(in crate::api) async fn get(exchange: &Exchange, path: &str) -> Answer {
    let path = exchange.allow(Action::Describe, path).await?;
    let described = exchange.access.describe_queue(&path).await?;
    Ok(answer(StatusCode::OK, described))
}
