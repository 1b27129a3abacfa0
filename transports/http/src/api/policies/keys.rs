//! Reads the keys of a policy.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::PolicyKeysView;

use super::told;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Read the keys of a policy.
///
/// From the first time on nobody is let in without a token, for good.
#[utoipa::path(post, operation_id = "get_policy_keys", path = "/policies/{policy}/keys",
    tag = "policies", params(("policy" = String, Path)),
    responses((status = 200, body = PolicyKeysView), (status = "default", body = Problem)))]
pub(in crate::api) async fn keys(
    exchange: &Exchange,
    payload: &mut web::Payload,
    owner: &str,
    name: &str,
) -> Answer {
    let owner = exchange.allow(Action::ReadKeys, owner).await?;
    body::discard(exchange, payload).await?;
    Ok(told(&exchange.access.policy_keys(&owner, name).await?))
}
