//! Creates a queue.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::{QueueProperties, QueueView};

use super::answer;
use crate::body;
use crate::error::{Answer, Problem};
use crate::route::encode_segment;
use crate::serve::Exchange;
use crate::version::located;

/// Create a queue.
#[utoipa::path(put, path = "/queues/{queue}", tag = "queues",
    params(("queue" = String, Path)), request_body = QueueProperties,
    responses((status = 201, body = QueueView), (status = "default", body = Problem)))]
pub(in crate::api) async fn create(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
) -> Answer {
    exchange.allow(Action::Create, path).await?;
    let (properties, _room): (QueueProperties, _) = body::read_json(exchange, payload).await?;
    let update = properties.to_update()?;
    let described = exchange.access.create_queue(path, update).await?;
    let location = format!(
        "{}/$api/v1/queues/{}",
        exchange.base_url(),
        encode_segment(&described.description.path)
    );
    Ok(located(answer(StatusCode::CREATED, described), &location))
}
