//! Management operations on queues. `api/mod.rs` routes requests to these functions; `manage`
//! checks rights and carries them out.

use actix_web::http::Method;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::{EntityKind, Patch};
use peeklock_core::management::Management;
use peeklock_json::{QueueProperties, QueueView};
use utoipa::OpenApi;

use super::manage::{QueuePage, manage};
use super::page;
use crate::body;
use crate::error::{Answer, Problem};
use crate::exchange::{Exchange, version};

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(list, create, get, update, delete))]
pub(super) struct Operations;

/// Methods of a queue.
pub(super) const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// Dispatches by method to the operation on one queue.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    queue: &str,
) -> Answer {
    match method.as_str() {
        "PUT" => create(exchange, payload, queue).await,
        "PATCH" => update(exchange, payload, queue).await,
        "DELETE" => delete(exchange, payload, queue).await,
        _ => get(exchange, queue).await,
    }
}

/// List queues.
///
/// A page has at most 1 MiB, or one queue that is larger. It may therefore be shorter than `top`;
/// an empty page ends the list.
#[utoipa::path(get, path = "/queues", tag = "queues",
    params(("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of queues; at most 100, the \
            default")),
    responses((status = 200, body = QueuePage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange) -> Answer {
    manage(exchange, "", Management::Queues(page(exchange)?)).await
}

/// Create a queue.
#[utoipa::path(put, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)), request_body = QueueProperties,
    responses((status = 201, body = QueueView), (status = "default", body = Problem)))]
pub(super) async fn create(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    exchange.allow(Action::Create, path).await?;
    let (properties, _room): (QueueProperties, _) = body::read_json(exchange, payload).await?;
    manage(exchange, path, Management::CreateQueue(Box::new(properties.to_update()?))).await
}

/// Read a queue's properties, counts and instants.
#[utoipa::path(get, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)),
    responses((status = 200, body = QueueView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, path: &str) -> Answer {
    manage(exchange, path, Management::Queue).await
}

/// Change properties of a queue.
///
/// A merge patch (RFC 7396): an absent property keeps its value. `null` clears `forwardTo`,
/// `forwardDeadLetteredMessagesTo` and `userMetadata`; other properties keep their value. (Clients
/// that replace the whole description, such as the Service Bus SDKs, clear these three when they
/// omit them.) Properties that are fixed at creation may only be repeated. Without `If-Match` the
/// patch applies to any version.
#[utoipa::path(patch, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path),
        ("If-Match" = Option<String>, Header, description = "ETag of the version to change: the \
            quoted updatedAt; if the entity has changed since, the response is UpdateConflict")),
    request_body = QueueProperties,
    responses((status = 200, body = QueueView), (status = "default", body = Problem)))]
pub(super) async fn update(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Update, path).await?;
    let expected_created_at = version(exchange)?;
    let (properties, _room): (QueueProperties, _) = body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), expected_created_at };
    let update = Management::UpdateQueue(Box::new(properties.to_update()?), patch);
    manage(exchange, &path, update).await
}

/// Delete a queue with all its messages.
#[utoipa::path(delete, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Delete, path).await?;
    body::discard(exchange, payload).await?;
    manage(exchange, &path, Management::Delete(EntityKind::Queue)).await
}
