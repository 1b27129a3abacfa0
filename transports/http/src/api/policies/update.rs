//! Changes a policy.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::{PolicyProperties, PolicyView};

use super::read;
use crate::api::json;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Change the rights of a policy, or its keys; what is not named is kept.
///
/// Tokens that rest on what has changed end at once.
#[utoipa::path(patch, operation_id = "update_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)), request_body = PolicyProperties,
    responses((status = 200, body = PolicyView), (status = "default", body = Problem)))]
pub(in crate::api) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    owner: &str,
    name: &str,
) -> Answer {
    let owner = exchange.allow(Action::ChangePolicies, owner).await?;
    let properties = read(exchange, payload).await?;
    let policy = exchange.access.update_policy(&owner, name, properties).await?;
    Ok(json(StatusCode::OK, &PolicyView::from(&policy)))
}
