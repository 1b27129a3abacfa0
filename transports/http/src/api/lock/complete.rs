//! The message was processed.

use actix_web::web;
use peeklock_core::command::Settlement;

use super::settle_plainly;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Complete: the message was processed and is removed.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/complete", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn complete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    settle_plainly(exchange, payload, queue, token, Settlement::Complete).await
}
