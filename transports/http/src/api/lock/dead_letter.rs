//! The message moves to the dead-letter queue.

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

/// Why a message is dead-lettered.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DeadLetter {
    /// At most 4096 characters.
    reason: Option<String>,
    /// At most 4096 characters.
    description: Option<String>,
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
}

/// Dead-letter: the message moves to the dead-letter queue.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/dead-letter", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)), request_body = DeadLetter,
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn dead_letter(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    let (request, _room): (DeadLetter, _) = body::read_json(exchange, payload).await?;
    let settlement = Settlement::dead_letter(
        request.reason.as_deref(),
        request.description.as_deref(),
        &request.application_properties.unwrap_or_default().0,
        &exchange.site.broker.settings().limits,
    )?;
    settle(exchange, &entity, token, settlement).await
}
