//! Policies of the namespace, of queues and of topics, and their keys.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use peeklock_core::contract::Action;
use peeklock_core::policies::{PolicyKeys, PolicyUpdate};
use peeklock_json::{KeyForm, KeyName, PolicyKeysView, PolicyList, PolicyProperties, PolicyView};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{json, no_content};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::located;

/// Which key is to be another one.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Regeneration {
    key: KeyName,
    /// The new key, 32 bytes in Base64; made if it is left out.
    #[schema(value_type = Option<String>)]
    value: Option<KeyForm>,
}

/// List the policies, without their keys.
#[utoipa::path(get, operation_id = "list_policies", path = "/policies", tag = "policies",
    responses((status = 200, body = PolicyList), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange, owner: &str) -> Answer {
    let policies = exchange.access.policies(owner).await?;
    Ok(json(StatusCode::OK, &PolicyList::from(&*policies)))
}

/// Create a policy.
///
/// From the first one on nobody is let in without a token, for good.
#[utoipa::path(put, operation_id = "create_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)), request_body = PolicyProperties,
    responses((status = 201, body = PolicyView), (status = "default", body = Problem)))]
pub(super) async fn create(
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

/// Read a policy, without its keys.
#[utoipa::path(get, operation_id = "get_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)),
    responses((status = 200, body = PolicyView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, owner: &str, name: &str) -> Answer {
    let policy = exchange.access.policy(owner, name).await?;
    Ok(json(StatusCode::OK, &PolicyView::from(&policy)))
}

/// Change the rights of a policy, or its keys; what is not named is kept.
///
/// Tokens that rest on what has changed end at once.
#[utoipa::path(patch, operation_id = "update_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)), request_body = PolicyProperties,
    responses((status = 200, body = PolicyView), (status = "default", body = Problem)))]
pub(super) async fn update(
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

/// Delete a policy; its tokens end at once.
#[utoipa::path(delete, operation_id = "delete_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete(
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

/// Read the keys of a policy.
///
/// From the first time on nobody is let in without a token, for good.
#[utoipa::path(post, operation_id = "get_policy_keys", path = "/policies/{policy}/keys",
    tag = "policies", params(("policy" = String, Path)),
    responses((status = 200, body = PolicyKeysView), (status = "default", body = Problem)))]
pub(super) async fn keys(
    exchange: &Exchange,
    payload: &mut web::Payload,
    owner: &str,
    name: &str,
) -> Answer {
    let owner = exchange.allow(Action::ReadKeys, owner).await?;
    body::discard(exchange, payload).await?;
    Ok(told(&exchange.access.policy_keys(&owner, name).await?))
}

/// Put another key in the place of one; tokens that it has signed end at once, those of the other key do not.
#[utoipa::path(post, operation_id = "regenerate_policy_key", path = "/policies/{policy}/regenerate",
    tag = "policies", params(("policy" = String, Path)), request_body = Regeneration,
    responses((status = 200, body = PolicyKeysView), (status = "default", body = Problem)))]
pub(super) async fn regenerate(
    exchange: &Exchange,
    payload: &mut web::Payload,
    owner: &str,
    name: &str,
) -> Answer {
    let owner = exchange.allow(Action::ChangePolicies, owner).await?;
    let (form, _room): (Regeneration, _) = body::read_json(exchange, payload).await?;
    let key = form.value.as_ref().map(KeyForm::to_key).transpose()?;
    let keys = exchange.access.regenerate_key(&owner, name, form.key.into(), key).await?;
    Ok(told(&keys))
}

async fn read(exchange: &Exchange, payload: &mut web::Payload) -> Result<PolicyUpdate, Refusal> {
    let (form, _room): (PolicyProperties, _) = body::read_json(exchange, payload).await?;
    Ok(form.to_update()?)
}

fn told(keys: &PolicyKeys) -> HttpResponse {
    json(StatusCode::OK, &PolicyKeysView::from(keys))
}
