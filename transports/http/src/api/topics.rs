//! Management of topics.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::Of;
use peeklock_core::command::DescribedTopic;
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
use peeklock_json::{TopicProperties, TopicView};

/// A page of topics in case-insensitive order of their paths.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicPage {
    topics: Vec<TopicView>,
    skip: usize,
    top: usize,
}

/// List topics.
#[utoipa::path(get, operation_id = "list_topics",
    path = "/topics", tag = "topics",
    params(("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "by default 100, which is also the most")),
    responses((status = 200, body = TopicPage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange) -> Answer {
    let (skip, top) = page(exchange)?;
    let (_turn, room) = exchange.turn(Large::List, Of::Entities("")).await?;
    let topics = exchange.access.topics(skip, top).await?;
    let topics = topics.into_iter().map(Into::into).collect();
    large(exchange, room, &TopicPage { topics, skip, top }).await
}

/// Create a topic.
#[utoipa::path(put, operation_id = "create_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)), request_body = TopicProperties,
    responses((status = 201, body = TopicView), (status = "default", body = Problem)))]
pub(super) async fn create(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    exchange.allow(Action::Create, path).await?;
    let (properties, _room): (TopicProperties, _) = body::read_json(exchange, payload).await?;
    let described = exchange.access.create_topic(path, properties.to_update()?).await?;
    let segment = encode_segment(&described.description.path);
    let location = format!("{}/$api/v1/topics/{segment}", exchange.base_url());
    Ok(located(topic(StatusCode::CREATED, described), &location))
}

/// Read a topic's properties, counts and instants.
#[utoipa::path(get, operation_id = "get_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 200, body = TopicView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange, path: &str) -> Answer {
    let path = exchange.allow(Action::Describe, path).await?;
    let described = exchange.access.describe_topic(&path).await?;
    Ok(topic(StatusCode::OK, described))
}

/// Change properties of a topic.
///
/// A merge patch (RFC 7396): a property that is not named keeps its value, `null` clears
/// `userMetadata`. What was fixed at creation may only be repeated. Without `If-Match` the patch is
/// applied to whatever is there.
#[utoipa::path(patch, operation_id = "update_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path),
        ("If-Match" = Option<String>, Header, description = "the ETag, which is the quoted \
        updatedAt, of the version to be changed; a later one gives UpdateConflict")),
    request_body = TopicProperties,
    responses((status = 200, body = TopicView), (status = "default", body = Problem)))]
pub(super) async fn update(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Update, path).await?;
    let version = version(exchange)?;
    let (properties, _room): (TopicProperties, _) = body::read_json(exchange, payload).await?;
    let patch = Patch { cleared: properties.cleared(), read_at: version };
    let described = exchange.access.patch(&path, &properties.to_update()?, patch).await?;
    Ok(topic(StatusCode::OK, described))
}

/// Delete a topic with its subscriptions and everything in them.
#[utoipa::path(delete, operation_id = "delete_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn delete(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Delete, path).await?;
    body::discard(exchange, payload).await?;
    exchange.access.delete(&path, EntityKind::Topic).await?;
    Ok(no_content())
}

/// A topic, with its version as ETag.
fn topic(status: StatusCode, described: DescribedTopic) -> HttpResponse {
    let updated_at = described.updated_at;
    versioned(json(status, &TopicView::from(described)), updated_at)
}
