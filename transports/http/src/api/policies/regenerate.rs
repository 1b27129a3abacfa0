//! Replaces a key of a policy.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::{KeyForm, KeyName, PolicyKeysView};
use serde::Deserialize;
use utoipa::ToSchema;

use super::told;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Which key is to be another one.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Regeneration {
    key: KeyName,
    /// The new key, 44 characters; made if it is left out.
    #[schema(value_type = Option<String>)]
    value: Option<KeyForm>,
}

/// Put another key in the place of one; tokens that it has signed end at once, those of the other key do not.
#[utoipa::path(post, operation_id = "regenerate_policy_key", path = "/policies/{policy}/regenerate",
    tag = "policies", params(("policy" = String, Path)), request_body = Regeneration,
    responses((status = 200, body = PolicyKeysView), (status = "default", body = Problem)))]
pub(in crate::api) async fn regenerate(
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
