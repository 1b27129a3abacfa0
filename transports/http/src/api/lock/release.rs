//! The message was not delivered.

use actix_web::web;
use peeklock_core::command::Settlement;

use super::settle_plainly;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Release: the message is available again as if it had never been delivered.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/release", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn release(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    settle_plainly(exchange, payload, queue, token, Settlement::Release).await
}
