//! The subscriptions of a topic: one file for each operation of their management.

pub(super) mod create;
pub(super) mod delete;
pub(super) mod get;
pub(super) mod list;
pub(super) mod update;

use actix_web::http::{Method, StatusCode};
use actix_web::{HttpResponse, web};
use peeklock_core::command::DescribedSubscription;
use peeklock_json::SubscriptionView;

use crate::api::json;
use crate::error::Answer;
use crate::serve::Exchange;
use crate::version::versioned;

/// One of them.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    topic: &str,
    name: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create::create(exchange, payload, topic, name).await,
        "PATCH" => update::update(exchange, payload, topic, name).await,
        "DELETE" => delete::delete(exchange, payload, topic, name).await,
        _ => get::get(exchange, topic, name).await,
    }
}

/// A subscription, with its version as ETag.
fn answer(status: StatusCode, described: DescribedSubscription) -> HttpResponse {
    let updated_at = described.updated_at;
    versioned(json(status, &SubscriptionView::from(described)), updated_at)
}
