//! Lists the policies of an owner.

use actix_web::http::StatusCode;
use peeklock_json::PolicyList;

use crate::api::json;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// List the policies, without their keys.
#[utoipa::path(get, operation_id = "list_policies", path = "/policies", tag = "policies",
    responses((status = 200, body = PolicyList), (status = "default", body = Problem)))]
pub(in crate::api) async fn list(exchange: &Exchange, owner: &str) -> Answer {
    let policies = exchange.access.policies(owner).await?;
    Ok(json(StatusCode::OK, &PolicyList::from(&*policies)))
}
