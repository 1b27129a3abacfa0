//! Management operations on topics. `api/mod.rs` routes requests to these functions; `manage`
//! checks rights and carries them out.

use actix_web::http::Method;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::{EntityKind, Patch};
use peeklock_core::management::Management;
use peeklock_json::{TopicProperties, TopicView};
use utoipa::OpenApi;

use super::manage::{TopicPage, manage};
use super::page;
use crate::body;
use crate::error::{Answer, Problem};
use crate::exchange::{Exchange, version};

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(list, create, get, update, delete))]
pub(super) struct Operations;

/// Methods of a topic.
pub(super) const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// Dispatches by method to the operation on one topic.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    topic: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create(exchange, payload, topic).await,
        "PATCH" => update(exchange, payload, topic).await,
        "DELETE" => delete(exchange, payload, topic).await,
        _ => get(exchange, topic).await,
    }
}

/// List topics.
///
/// A page has at most 1 MiB, or one topic that is larger. It may therefore be shorter than `top`;
/// an empty page ends the list.
#[utoipa::path(get, operation_id = "list_topics",
    path = "/topics", tag = "topics",
    params(("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of topics; at most 100, the \
            default")),
    responses((status = 200, body = TopicPage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange) -> Answer {
    manage(exchange, "", Management::Topics(page(exchange)?)).await
}

/// Create a topic.
#[utoipa::path(put, operation_id = "create_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)), request_body = TopicProperties,
    responses((status = 201, body = TopicView), (status = "default", body = Problem)))]
pub(super) async fn create(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    exchange.allow(Action::Create, path).await?;
    let (properties, _room): (TopicProperties, _) = body::read_json(exchange, payload).await?;
    manage(exchange, path, Management::CreateTopic(Box::new(properties.to_update()?))).await
}

/// Read a topic's properties, counts and instants.
#[utoipa::path(get, operation_id = "get_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 200, body = TopicView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, path: &str) -> Answer {
    manage(exchange, path, Management::Topic).await
}

/// Change properties of a topic.
///
/// A merge patch (RFC 7396): an absent property keeps its value, and `null` clears `userMetadata`.
/// Properties that are fixed at creation may only be repeated. Without `If-Match` the patch applies
/// to any version.
#[utoipa::path(patch, operation_id = "update_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path),
        ("If-Match" = Option<String>, Header, description = "ETag of the version to change: the \
            quoted updatedAt; if the entity has changed since, the response is UpdateConflict")),
    request_body = TopicProperties,
    responses((status = 200, body = TopicView), (status = "default", body = Problem)))]
pub(super) async fn update(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Update, path).await?;
    let expected_created_at = version(exchange)?;
    let (properties, _room): (TopicProperties, _) = body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), expected_created_at };
    let update = Management::UpdateTopic(Box::new(properties.to_update()?), patch);
    manage(exchange, &path, update).await
}

/// Delete a topic with its subscriptions and all their messages.
#[utoipa::path(delete, operation_id = "delete_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Delete, path).await?;
    body::discard(exchange, payload).await?;
    manage(exchange, &path, Management::Delete(EntityKind::Topic)).await
}
