//! Deletes a topic with everything in it.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;

use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Delete a topic with its subscriptions and everything in them.
#[utoipa::path(delete, operation_id = "delete_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    let path = exchange.allow(Action::Delete, path).await?;
    body::discard(exchange, payload).await?;
    exchange.access.delete(&path, EntityKind::Topic).await?;
    Ok(no_content())
}
