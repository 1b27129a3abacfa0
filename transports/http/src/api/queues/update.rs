//! Changes properties of a queue.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::Patch;
use peeklock_json::{QueueProperties, QueueView};

use super::answer;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;
use crate::version::version;

/// Change properties of a queue.
///
/// A merge patch (RFC 7396): a property that is not named keeps its value. `null` clears `forwardTo`,
/// `forwardDeadLetteredMessagesTo` and `userMetadata`; any other property always has a value and keeps
/// it. (Clients that replace the whole description, as the Service Bus SDKs do, clear those three by
/// leaving them out.) What was fixed at creation may only be repeated. Without `If-Match` the patch is
/// applied to whatever is there.
#[utoipa::path(patch, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path),
        ("If-Match" = Option<String>, Header, description = "ETag of the version to change: the \
            quoted updatedAt; if the entity has changed since, the response is UpdateConflict")),
    request_body = QueueProperties,
    responses((status = 200, body = QueueView), (status = "default", body = Problem)))]
pub(in crate::api) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    let path = exchange.allow(Action::Update, path).await?;
    let version = version(exchange)?;
    let (properties, _room): (QueueProperties, _) = body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), read_at: version };
    let described = exchange.access.patch(&path, &properties.to_update()?, patch).await?;
    Ok(answer(StatusCode::OK, described))
}
