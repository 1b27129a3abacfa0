//! The lock lasts on.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use serde::Serialize;
use utoipa::ToSchema;

use super::parse;
use crate::api::json;
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::serve::Exchange;

/// The new end of a lock.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Renewed {
    locked_until_utc: String,
}

/// Renew: the lock lasts for another lock duration from now.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/renew", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)),
    responses((status = 200, body = Renewed), (status = "default", body = Problem)))]
pub(in crate::api) async fn renew(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::RenewLock, queue).await?;
    body::read_nothing(exchange, payload).await?;
    match exchange.call(&entity, Command::RenewLock { token: parse(token)? }).await? {
        Outcome::Renewed(until) => {
            Ok(json(StatusCode::OK, &Renewed { locked_until_utc: until.to_string() }))
        }
        _ => Err(Refusal::unexpected()),
    }
}
