//! Operators act on messages that are named by number (CON-12). `api/mod.rs` routes requests to it.

use actix_web::http::StatusCode;
use actix_web::web;
use peeklock_core::command::{Act, OperatorCommand};
use peeklock_core::contract::Action;
use peeklock_core::ids::JobId;
use peeklock_core::management::{Managed, Management};
use peeklock_json::{ActForm, ActedView};
use utoipa::OpenApi;

use super::{json, no_content};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(act, forget_job), components(schemas(ActForm, ActedView)))]
pub(super) struct Operations;

/// Act on messages that are named by sequence number.
///
/// All messages change together or, after an error, none. Each result is `done`, or the reason for
/// which the message was left alone. No delivery count changes. A repeated step of a job changes
/// nothing and gets the answer of its first run; a request without a step has no such protection.
/// Needs the rights Send and Listen.
#[utoipa::path(post, operation_id = "act_on_messages", path = "/queues/{queue}/messages/act",
    tag = "operate", params(("queue" = String, Path)), request_body = ActForm,
    responses((status = 200, body = ActedView), (status = "default", body = Problem)))]
pub(super) async fn act(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    exchange.allow(Action::Operate, path).await?;
    let (form, _room): (ActForm, _) = body::read_json(exchange, payload).await?;
    let act = OperatorCommand::Act(Box::new(Act::try_from(form)?));
    match exchange.access.manage(path, Management::Operate(act)).await? {
        Managed::Acted(messages) => Ok(json(StatusCode::OK, &ActedView::from(messages))),
        _ => Err(Refusal::unexpected()),
    }
}

/// Forget the receipt of a job that has ended.
///
/// The entity then keeps no result of its steps. A job without a receipt is no error. Needs the
/// rights Send and Listen.
#[utoipa::path(delete, operation_id = "forget_job", path = "/queues/{queue}/receipts/{job}",
    tag = "operate", params(("queue" = String, Path), ("job" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn forget_job(
    exchange: &Exchange,
    payload: &mut web::Payload,
    path: &str,
    job: &str,
) -> Answer {
    exchange.allow(Action::Operate, path).await?;
    body::discard(exchange, payload).await?;
    let Some(job) = JobId::parse(job) else {
        return Err(Refusal::argument("the job must be a GUID"));
    };
    let forget = Management::Operate(OperatorCommand::ForgetJob(job));
    match exchange.access.manage(path, forget).await? {
        Managed::Done => Ok(no_content()),
        _ => Err(Refusal::unexpected()),
    }
}
