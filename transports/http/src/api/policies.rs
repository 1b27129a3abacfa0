//! Policies of the namespace, of queues and of topics, and their keys. `api/mod.rs` routes requests
//! to these functions. Only the answers of `keys` and `regenerate` contain keys.

use actix_web::http::Method;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::management::Management;
use peeklock_json::{KeyForm, KeyName, PolicyKeysView, PolicyList, PolicyProperties, PolicyView};
use serde::Deserialize;
use utoipa::{OpenApi, ToSchema};

use super::manage::manage;
use crate::body;
use crate::error::{Answer, Problem};
use crate::exchange::Exchange;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(list, create, get, update, delete, keys, regenerate))]
pub(super) struct Operations;

/// Methods of a policy.
pub(super) const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// Dispatches by method to the operation on one policy.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    owner: &str,
    name: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create(exchange, payload, owner, name).await,
        "PATCH" => update(exchange, payload, owner, name).await,
        "DELETE" => delete(exchange, payload, owner, name).await,
        _ => get(exchange, owner, name).await,
    }
}

/// List the policies, without their keys.
#[utoipa::path(get, operation_id = "list_policies", path = "/policies", tag = "policies",
    responses((status = 200, body = PolicyList), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange, owner: &str) -> Answer {
    manage(exchange, owner, Management::Policies).await
}

/// Create a policy.
///
/// After the first policy is created, each client needs a token, permanently.
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
    let (form, _room): (PolicyProperties, _) = body::read_json(exchange, payload).await?;
    manage(exchange, &owner, Management::CreatePolicy(name.into(), form.to_update()?)).await
}

/// Read a policy, without its keys.
#[utoipa::path(get, operation_id = "get_policy", path = "/policies/{policy}", tag = "policies",
    params(("policy" = String, Path)),
    responses((status = 200, body = PolicyView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, owner: &str, name: &str) -> Answer {
    manage(exchange, owner, Management::Policy(name.into())).await
}

/// Change the rights or keys of a policy; absent properties keep their value.
///
/// Tokens that depend on a changed value end at once.
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
    let (form, _room): (PolicyProperties, _) = body::read_json(exchange, payload).await?;
    manage(exchange, &owner, Management::UpdatePolicy(name.into(), form.to_update()?)).await
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
    manage(exchange, &owner, Management::DeletePolicy(name.into())).await
}

/// Read the keys of a policy.
///
/// After the first time, each client needs a token, permanently.
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
    manage(exchange, &owner, Management::PolicyKeys(name.into())).await
}

/// Key to replace.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Regeneration {
    key: KeyName,
    /// The new key, 44 characters; generated if absent.
    #[schema(value_type = Option<String>)]
    value: Option<KeyForm>,
}

/// Replace a key; tokens signed with it end at once, tokens signed with the other key do not.
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
    let regenerate = Management::RegenerateKey(name.into(), form.key.into(), key);
    manage(exchange, &owner, regenerate).await
}
