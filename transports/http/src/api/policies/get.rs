//! Reads a policy.

use actix_web::http::StatusCode;
use peeklock_json::PolicyView;

use crate::api::json;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Read a policy, without its keys.
#[utoipa::path(get, operation_id = "get_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)),
    responses((status = 200, body = PolicyView), (status = "default", body = Problem)))]
pub(in crate::api) async fn get(exchange: &Exchange, owner: &str, name: &str) -> Answer {
    let policy = exchange.access.policy(owner, name).await?;
    Ok(json(StatusCode::OK, &PolicyView::from(&policy)))
}
