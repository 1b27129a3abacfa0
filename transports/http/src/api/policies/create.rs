//! Creates a policy.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::{PolicyProperties, PolicyView};

use super::read;
use crate::api::json;
use crate::error::{Answer, Problem};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::located;

/// Create a policy.
///
/// From the first one on nobody is let in without a token, for good.
#[utoipa::path(put, operation_id = "create_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)), request_body = PolicyProperties,
    responses((status = 201, body = PolicyView), (status = "default", body = Problem)))]
pub(in crate::api) async fn create(
    exchange: &Exchange,
    payload: &mut web::Payload,
    owner: &str,
    name: &str,
) -> Answer {
    let owner = exchange.allow(Action::ChangePolicies, owner).await?;
    let properties = read(exchange, payload).await?;
    let policy = exchange.access.create_policy(&owner, name, properties).await?;
    let response = json(StatusCode::CREATED, &PolicyView::from(&policy));
    // The path of the request is that of the policy.
    let path = exchange.request.uri().path();
    let parent = path.trim_end_matches('/').rsplit_once('/').map_or("", |(parent, _)| parent);
    let location = format!("{}{parent}/{}", exchange.base_url(), encode_segment(name));
    Ok(located(response, &location))
}
