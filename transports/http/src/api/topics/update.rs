//! Changes properties of a topic.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::Patch;
use peeklock_json::{TopicProperties, TopicView};

use super::answer;
use crate::body;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;
use crate::version::version;

/// Change properties of a topic.
///
/// A merge patch (RFC 7396): a property that is not named keeps its value, `null` clears
/// `userMetadata`. What was fixed at creation may only be repeated. Without `If-Match` the patch is
/// applied to whatever is there.
#[utoipa::path(patch, operation_id = "update_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path),
        ("If-Match" = Option<String>, Header, description = "ETag of the version to change: the \
            quoted updatedAt; if the entity has changed since, the response is UpdateConflict")),
    request_body = TopicProperties,
    responses((status = 200, body = TopicView), (status = "default", body = Problem)))]
pub(in crate::api) async fn update(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    let path = exchange.allow(Action::Update, path).await?;
    let version = version(exchange)?;
    let (properties, _room): (TopicProperties, _) = body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), read_at: version };
    let described = exchange.access.patch(&path, &properties.to_update()?, patch).await?;
    Ok(answer(StatusCode::OK, described))
}
