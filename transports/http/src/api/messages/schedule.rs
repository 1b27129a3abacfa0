//! Schedules messages for an instant.

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::NewMessage;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Numbers, accept, inbound_all};
use crate::api::query::instant;
use crate::body;
use crate::error::{Answer, Problem};
use crate::list::List;
use crate::serve::Exchange;

/// Messages to be enqueued at an instant, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewSchedule {
    /// An RFC 3339 instant.
    scheduled_enqueue_time_utc: String,
    #[schema(value_type = Vec<NewMessage>)]
    messages: List<NewMessage>,
}

/// Schedule messages for an instant, all or none; answers with the numbers by which to cancel them.
#[utoipa::path(post, path = "/queues/{queue}/messages/schedule", tag = "messages",
    params(("queue" = String, Path)), request_body = NewSchedule,
    responses((status = 201, body = Numbers), (status = "default", body = Problem)))]
pub(in crate::api) async fn schedule(
    exchange: &Exchange,
    payload: &mut web::Payload,
    queue: &str,
) -> Answer {
    let entity = exchange.entity(Action::Send, queue).await?;
    let (schedule, _room): (NewSchedule, _) = body::read_json(exchange, payload).await?;
    let at = instant("scheduledEnqueueTimeUtc", Some(&schedule.scheduled_enqueue_time_utc))?;
    let messages =
        inbound_all(exchange, schedule.messages, |message| message.scheduled_enqueue_time = at)?;
    accept(exchange, &entity, messages).await
}
