//! Policies of the namespace, of queues and of topics, and their keys. One file for each operation.

pub(super) mod create;
pub(super) mod delete;
pub(super) mod get;
pub(super) mod keys;
pub(super) mod list;
pub(super) mod regenerate;
pub(super) mod update;

use actix_web::http::{Method, StatusCode};
use actix_web::{HttpResponse, web};
use peeklock_core::policies::{PolicyKeys, PolicyUpdate};
use peeklock_json::{PolicyKeysView, PolicyProperties};

use crate::api::json;
use crate::body;
use crate::error::{Answer, Refusal};
use crate::serve::Exchange;

/// One of them.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    owner: &str,
    name: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create::create(exchange, payload, owner, name).await,
        "PATCH" => update::update(exchange, payload, owner, name).await,
        "DELETE" => delete::delete(exchange, payload, owner, name).await,
        _ => get::get(exchange, owner, name).await,
    }
}

async fn read(exchange: &Exchange, payload: &mut web::Payload) -> Result<PolicyUpdate, Refusal> {
    let (form, _room): (PolicyProperties, _) = body::read_json(exchange, payload).await?;
    Ok(form.to_update()?)
}

fn told(keys: &PolicyKeys) -> HttpResponse {
    json(StatusCode::OK, &PolicyKeysView::from(keys))
}
