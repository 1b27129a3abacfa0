//! Deletes a policy.

use actix_web::web;
use peeklock_core::contract::Action;

use crate::api::no_content;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Delete a policy; its tokens end at once.
#[utoipa::path(delete, operation_id = "delete_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    owner: &str,
    name: &str,
) -> Answer {
    let owner = exchange.allow(Action::ChangePolicies, owner).await?;
    body::discard(exchange, payload).await?;
    exchange.access.delete_policy(&owner, name).await?;
    Ok(no_content())
}
