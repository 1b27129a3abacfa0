//! The message is available again.

use actix_web::web;
use peeklock_core::command::{Settlement, retry_delay_of};
use peeklock_core::contract::Action;
use peeklock_core::message::Value;
use peeklock_json::{PropertyMap, PropertyValueSchema};
use serde::Deserialize;
use utoipa::ToSchema;

use super::settle;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;

/// When a message that goes back is available again, and properties to set on it.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Abandonment {
    /// Application properties to add or overwrite.
    #[schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)]
    application_properties: Option<PropertyMap>,
    /// For how long nobody gets it, at most 604800000; 0 for not at all, and left out for as long as the
    /// retry policy says.
    delay_milliseconds: Option<i64>,
}

/// Abandon: the message is available again, at once or later, and the delivery counts as failed.
#[utoipa::path(post, path = "/queues/{queue}/locks/{lockToken}/abandon", tag = "locks",
    params(("queue" = String, Path), ("lockToken" = String, Path)), request_body = Abandonment,
    responses((status = 204), (status = "default", body = Problem)))]
pub(in crate::api) async fn abandon(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
    token: &str,
) -> Answer {
    let entity = exchange.entity(Action::Settle, queue).await?;
    let (abandonment, _room): (Abandonment, _) = body::read_json(exchange, payload).await?;
    let said = abandonment.delay_milliseconds.map(|said| retry_delay_of(&Value::I64(said)));
    let properties = abandonment.application_properties.unwrap_or_default().0;
    let settlement = Settlement::abandon(&properties, said.transpose()?)?;
    settle(exchange, &entity, token, settlement).await
}
