//! Queues: one file for each operation of their management.

pub(super) mod create;
pub(super) mod delete;
pub(super) mod get;
pub(super) mod list;
pub(super) mod update;

use actix_web::http::{Method, StatusCode};
use actix_web::{HttpResponse, web};
use peeklock_core::command::Described;
use peeklock_json::QueueView;

use crate::api::json;
use crate::error::Answer;
use crate::serve::Exchange;
use crate::version::versioned;

/// One of them.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    queue: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create::create(exchange, payload, queue).await,
        "PATCH" => update::update(exchange, payload, queue).await,
        "DELETE" => delete::delete(exchange, payload, queue).await,
        _ => get::get(exchange, queue).await,
    }
}

/// A queue, with its version as ETag.
fn answer(status: StatusCode, described: Described) -> HttpResponse {
    let updated_at = described.updated_at;
    versioned(json(status, &QueueView::from(described)), updated_at)
}
