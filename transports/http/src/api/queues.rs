//! Management of queues.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::Of;
use peeklock_core::command::Described;
use peeklock_core::contract::Action;
use peeklock_core::description::{EntityKind, Patch};
use peeklock_core::permits::Large;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::page;
use super::{json, large, no_content};
use crate::body;
use crate::error::{Answer, Problem};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::{located, version, versioned};
use peeklock_json::{QueueProperties, QueueView};

/// A page of queues in case-insensitive order of their paths.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueuePage {
    queues: Vec<QueueView>,
    skip: usize,
    top: usize,
}

/// List queues.
#[utoipa::path(get, path = "/queues", tag = "queues",
    params(("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "by default 100, which is also the most")),
    responses((status = 200, body = QueuePage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange) -> Answer {
    let (skip, top) = page(exchange)?;
    let (_turn, room) = exchange.turn(Large::List, Of::Entities("")).await?;
    let queues = exchange.access.queues(skip, top).await?;
    let queues = queues.into_iter().map(Into::into).collect();
    large(exchange, room, &QueuePage { queues, skip, top }).await
}

/// Create a queue.
#[utoipa::path(put, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)), request_body = QueueProperties,
    responses((status = 201, body = QueueView), (status = "default", body = Problem)))]
pub(super) async fn create(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    exchange.allow(Action::Create, path).await?;
    let (properties, _room): (QueueProperties, _) = body::read_json(exchange, payload).await?;
    let update = properties.to_update()?;
    let described = exchange.access.create_queue(path, update).await?;
    let location = format!(
        "{}/$api/v1/queues/{}",
        exchange.base_url(),
        encode_segment(&described.description.path)
    );
    Ok(located(queue(StatusCode::CREATED, described), &location))
}

/// Read a queue's properties, counts and instants.
#[utoipa::path(get, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)),
    responses((status = 200, body = QueueView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, path: &str) -> Answer {
    let path = exchange.allow(Action::Describe, path).await?;
    let described = exchange.access.describe_queue(&path).await?;
    Ok(queue(StatusCode::OK, described))
}

/// Change properties of a queue.
///
/// A merge patch (RFC 7396): a property that is not named keeps its value. `null` clears `forwardTo`,
/// `forwardDeadLetteredMessagesTo` and `userMetadata`; any other property always has a value and keeps
/// it. (Clients that replace the whole description, as the Service Bus SDKs do, clear those three by
/// leaving them out.) What was fixed at creation may only be repeated. Without `If-Match` the patch is
/// applied to whatever is there.
#[utoipa::path(patch, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path),
        ("If-Match" = Option<String>, Header, description = "the ETag, which is the quoted \
        updatedAt, of the version to be changed; a later one gives UpdateConflict")),
    request_body = QueueProperties,
    responses((status = 200, body = QueueView), (status = "default", body = Problem)))]
pub(super) async fn update(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Update, path).await?;
    let version = version(exchange)?;
    let (properties, _room): (QueueProperties, _) = body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), read_at: version };
    let described = exchange.access.patch(&path, &properties.to_update()?, patch).await?;
    Ok(queue(StatusCode::OK, described))
}

/// Delete a queue with everything in it.
#[utoipa::path(delete, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Delete, path).await?;
    body::discard(exchange, payload).await?;
    exchange.access.delete(&path, EntityKind::Queue).await?;
    Ok(no_content())
}

/// A queue, with its version as ETag.
fn queue(status: StatusCode, described: Described) -> HttpResponse {
    let updated_at = described.updated_at;
    versioned(json(status, &QueueView::from(described)), updated_at)
}
