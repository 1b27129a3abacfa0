//! Sends messages together, all or none.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::NewMessage;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Numbers, accept, inbound_all};
use crate::body;
use crate::error::{Answer, Problem};
use crate::list::List;
use crate::serve::Exchange;

/// Messages to be stored together, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBatch {
    #[schema(value_type = Vec<NewMessage>)]
    messages: List<NewMessage>,
}

/// Send messages together, all or none.
#[utoipa::path(post, path = "/queues/{queue}/messages/batch", tag = "messages",
    params(("queue" = String, Path)), request_body = NewBatch,
    responses((status = 201, body = Numbers), (status = "default", body = Problem)))]
pub(in crate::api) async fn send_batch(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Send, queue).await?;
    let (batch, _room): (NewBatch, _) = body::read_json(exchange, payload).await?;
    let messages = inbound_all(exchange, batch.messages, |_| {})?;
    accept(exchange, &entity, messages).await
}
