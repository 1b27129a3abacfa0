//! The message is set aside.

use actix_web::web;
use peeklock_core::command::Settlement;
use peeklock_core::contract::Action;
use peeklock_json::{PropertyMap, PropertyValueSchema};
use serde::Deserialize;
use utoipa::ToSchema;

use super::settle;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// Properties to set on a message that goes back or aside.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Modification {
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
}

/// Defer: the message is set aside, to be received by its sequence number.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/defer", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)), request_body = Modification,
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn defer(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    let (modification, _room): (Modification, _) = body::read_json(exchange, payload).await?;
    let properties = modification.application_properties.unwrap_or_default().0;
    settle(exchange, &entity, token, Settlement::defer(&properties)?).await
}
