//! Creates a topic.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::{TopicProperties, TopicView};

use super::answer;
use crate::body;
use crate::error::{Answer, Problem};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::located;

/// Create a topic.
#[utoipa::path(put, operation_id = "create_topic",
    path = "/topics/{topic}", tag = "topics",
    params(("topic" = String, Path)), request_body = TopicProperties,
    responses((status = 201, body = TopicView), (status = "default", body = Problem)))]
pub(in crate::api) async fn create(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    exchange.allow(Action::Create, path).await?;
    let (properties, _room): (TopicProperties, _) = body::read_json(exchange, payload).await?;
    let described = exchange.access.create_topic(path, properties.to_update()?).await?;
    let segment = encode_segment(&described.description.path);
    let location = format!("{}/$api/v1/topics/{segment}", exchange.base_url());
    Ok(located(answer(StatusCode::CREATED, described), &location))
}
