//! Deletes a queue with everything in it.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;

use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Delete a queue with everything in it.
#[utoipa::path(delete, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    let path = exchange.allow(Action::Delete, path).await?;
    body::discard(exchange, payload).await?;
    exchange.access.delete(&path, EntityKind::Queue).await?;
    Ok(no_content())
}
