//! Journeys of messages (CON-29).

use peeklock_json::{JourneyForm, JourneyView, QuestionForm};
use utoipa::OpenApi;

use super::inspect::{ask, sequence_number};
use crate::error::{Answer, Problem};
use crate::exchange::Exchange;
use crate::route::parameter;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(journeys, journey))]
pub(super) struct Operations;

pub(super) const JOURNEYS: &[&str] = &["messageId", "path"];

/// Read the stations of all messages with an id.
///
/// The answer has only stations in entities that you may read; `hiddenCount` counts links from
/// these to others. An id that the broker does not remember has no stations.
#[utoipa::path(get, operation_id = "journeys", path = "/journeys", tag = "inspect",
    params(("messageId" = String, Query),
        ("path" = Option<String>, Query, description = "only messages that were sent to this queue \
            or topic, which may be deleted")),
    responses((status = 200, body = JourneyView), (status = "default", body = Problem)))]
pub(super) async fn journeys(exchange: &Exchange) -> Answer {
    let message_id = parameter(exchange.query(), "messageid");
    let path = parameter(exchange.query(), "path").unwrap_or_default();
    let form = JourneyForm { sequence_number: None, message_id };
    ask(exchange, &path, &QuestionForm::Journey(form)).await
}

/// Read the stations of a message. The message and its entity may be gone.
///
/// Includes the stations of its copies, and of the same message in other entities, before and
/// after. The answer has only stations in entities that you may read.
#[utoipa::path(get, operation_id = "journey", tag = "inspect",
    path = "/queues/{queue}/messages/{sequenceNumber}/journey",
    params(("queue" = String, Path), ("sequenceNumber" = u64, Path)),
    responses((status = 200, body = JourneyView), (status = "default", body = Problem)))]
pub(super) async fn journey(exchange: &Exchange, path: &str, sequence: &str) -> Answer {
    let sequence_number = Some(sequence_number(sequence)?.0);
    let form = JourneyForm { sequence_number, message_id: None };
    ask(exchange, path, &QuestionForm::Journey(form)).await
}
