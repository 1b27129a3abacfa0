//! The JSON API under `/$api/v1` (HTP-10): all operations of the broker, as resources.
//!
//! A queue, a topic, or with its suffix a sub-queue, is one percent-encoded segment. Management is
//! `/queues` and `/queues/{queue}`, and `/topics` with subscriptions and their rules below them.
//! Messages are below each of these, and operations on them are verbs in the last segment. A lock
//! is a separate resource, so that each settlement names it in the path.
//!
//! `route.rs` parses paths. Each management resource has a file that maps its operations to
//! management requests of the core; `manage.rs` carries these out and answers. `declaration_text`
//! converts declarations from and to text. `messages` and
//! `lock` have the operations on messages and locks, `operate` has operations on locks, sessions
//! and clients of others, `act` on messages that are named by number, and `job` on many messages.
//! `inspect` and `checks` answer questions of operators.

mod act;
mod audit;
mod checks;
mod content;
mod declaration_text;
mod filters;
mod inspect;
mod job;
mod journey;
mod lock;
mod manage;
mod messages;
mod namespace;
mod openapi;
mod operate;
mod policies;
mod queues;
mod rules;
mod search;
mod sessions;
mod sign_in;
mod subscriptions;
mod topics;
mod watch;

pub use openapi::openapi_json;

use std::sync::LazyLock;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode, header};
use actix_web::web::{self, Bytes};
use peeklock_core::error::Rejection;
use peeklock_core::management::Page;
use peeklock_core::path::subscription_path;
use peeklock_core::time::Timestamp;
use peeklock_json::size_in_json;
use serde::Serialize;

use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;
use crate::room::AnswerRoom;
use crate::route::{ApiRoute, parameter, parameter_names};

/// Number of entries in a page, if the request does not give one.
const TOP_DEFAULT: usize = 100;

/// Returns the methods of a resource, as the `Allow` header lists them; none if there is no such
/// resource.
pub(crate) fn methods(route: &ApiRoute) -> Option<&'static str> {
    Some(match route {
        ApiRoute::Document
        | ApiRoute::Namespace
        | ApiRoute::Queues
        | ApiRoute::Topics
        | ApiRoute::Subscriptions { .. }
        | ApiRoute::Rules { .. }
        | ApiRoute::Policies { .. }
        | ApiRoute::Sessions { .. }
        | ApiRoute::SessionDetails { .. }
        | ApiRoute::MessageHead { .. }
        | ApiRoute::MessageBody { .. }
        | ApiRoute::Journey { .. }
        | ApiRoute::Journeys
        | ApiRoute::Samples { .. }
        | ApiRoute::Heads { .. }
        | ApiRoute::Locks { .. }
        | ApiRoute::Timeline { .. }
        | ApiRoute::Series { .. }
        | ApiRoute::Entities
        | ApiRoute::Audit
        | ApiRoute::Topology
        | ApiRoute::Checks
        | ApiRoute::Jobs
        | ApiRoute::Job { .. }
        | ApiRoute::JobSamples { .. }
        | ApiRoute::JobFailures { .. }
        | ApiRoute::Clients => "GET, HEAD, OPTIONS",
        ApiRoute::Queue { .. } => queues::METHODS,
        ApiRoute::Topic { .. } => topics::METHODS,
        ApiRoute::Subscription { .. } => subscriptions::METHODS,
        ApiRoute::Rule { .. } => rules::METHODS,
        ApiRoute::Policy { .. } => policies::METHODS,
        ApiRoute::SignIn => sign_in::METHODS,
        ApiRoute::Unlock => "POST, DELETE, OPTIONS",
        ApiRoute::AuditExport
        | ApiRoute::DeclarationExport
        | ApiRoute::JobExport { .. }
        | ApiRoute::Download { .. } => "GET, OPTIONS",
        ApiRoute::Declaration
        | ApiRoute::DeclarationText
        | ApiRoute::Downloads
        | ApiRoute::Watch
        | ApiRoute::Search
        | ApiRoute::Mute
        | ApiRoute::Unmute
        | ApiRoute::Act { .. }
        | ApiRoute::CreateJob { .. }
        | ApiRoute::LockBreak { .. }
        | ApiRoute::SessionBreak { .. }
        | ApiRoute::Explain { .. }
        | ApiRoute::ExplainTopic { .. }
        | ApiRoute::WhatIf { .. }
        | ApiRoute::PolicyKeys { .. }
        | ApiRoute::RegenerateKey { .. } => "POST, OPTIONS",
        ApiRoute::SessionState { .. } => "GET, HEAD, PUT, DELETE, OPTIONS",
        ApiRoute::Client { .. } | ApiRoute::Receipt { .. } => "DELETE, OPTIONS",
        ApiRoute::Messages { .. } => "GET, HEAD, POST, OPTIONS",
        ApiRoute::Message { name, .. } => messages::methods(name)?,
        ApiRoute::ControlJob { operation, .. } => job::methods(operation)?,
        ApiRoute::Lock { operation, .. } => lock::methods(operation)?,
    })
}

/// Returns the documented query parameters of an operation.
fn parameters(method: &Method, route: &ApiRoute) -> &'static [&'static str] {
    match route {
        ApiRoute::Messages { .. } if method == Method::GET => &["from", "count", "sessionId"],
        ApiRoute::Sessions { .. } => &["skip", "top", "withActiveMessages", "stateSetAfterUtc"],
        ApiRoute::Queues
        | ApiRoute::Topics
        | ApiRoute::Subscriptions { .. }
        | ApiRoute::Rules { .. } => &["skip", "top"],
        ApiRoute::SignIn if method == Method::GET => &["path"],
        ApiRoute::Declaration | ApiRoute::DeclarationText => &["dryRun", "digest", "stepsMax"],
        ApiRoute::Entities => inspect::ENTITIES,
        ApiRoute::Clients => inspect::CLIENTS,
        ApiRoute::Audit => audit::AUDIT,
        ApiRoute::AuditExport => audit::EXPORT,
        ApiRoute::Journeys => journey::JOURNEYS,
        ApiRoute::Samples { .. } => filters::SAMPLES,
        ApiRoute::Topology => checks::TOPOLOGY,
        ApiRoute::Checks => checks::CHECKS,
        ApiRoute::Jobs => job::LIST,
        ApiRoute::JobFailures { .. } => job::FAILURES,
        ApiRoute::Heads { .. } => inspect::HEADS,
        ApiRoute::Locks { .. } => inspect::LOCKS,
        ApiRoute::SessionDetails { .. } => inspect::SESSIONS,
        ApiRoute::Timeline { .. } => inspect::TIMELINE,
        ApiRoute::Series { .. } => inspect::SERIES,
        ApiRoute::Document
        | ApiRoute::Namespace
        | ApiRoute::Queue { .. }
        | ApiRoute::Messages { .. }
        | ApiRoute::Message { .. }
        | ApiRoute::MessageHead { .. }
        | ApiRoute::MessageBody { .. }
        | ApiRoute::Journey { .. }
        | ApiRoute::SessionState { .. }
        | ApiRoute::Act { .. }
        | ApiRoute::CreateJob { .. }
        | ApiRoute::Job { .. }
        | ApiRoute::JobSamples { .. }
        | ApiRoute::JobExport { .. }
        | ApiRoute::ControlJob { .. }
        | ApiRoute::Receipt { .. }
        | ApiRoute::LockBreak { .. }
        | ApiRoute::SessionBreak { .. }
        | ApiRoute::Client { .. }
        | ApiRoute::Watch
        | ApiRoute::Search
        | ApiRoute::Mute
        | ApiRoute::Unmute
        | ApiRoute::DeclarationExport
        | ApiRoute::SignIn
        | ApiRoute::Unlock
        | ApiRoute::Downloads
        | ApiRoute::Download { .. }
        | ApiRoute::Lock { .. }
        | ApiRoute::Topic { .. }
        | ApiRoute::Subscription { .. }
        | ApiRoute::Rule { .. }
        | ApiRoute::Explain { .. }
        | ApiRoute::ExplainTopic { .. }
        | ApiRoute::WhatIf { .. }
        | ApiRoute::Policies { .. }
        | ApiRoute::Policy { .. }
        | ApiRoute::PolicyKeys { .. }
        | ApiRoute::RegenerateKey { .. } => &[],
    }
}

/// Refuses query parameters that the operation does not have: they may be misspelt, or ask for
/// something unsupported.
fn refuse_unknown(query: &str, known: &[&str]) -> Result<(), Refusal> {
    let unknown = parameter_names(query)
        .find(|name| !known.iter().any(|known| known.eq_ignore_ascii_case(name)));
    let Some(name) = unknown else { return Ok(()) };
    let name: String = name.chars().take(64).collect();
    let has = match known {
        [] => "none".to_owned(),
        known => known.join(", "),
    };
    Err(Refusal::argument(format!(
        "the query parameter `{name}` is unknown to this operation, which has {has}"
    )))
}

/// Refuses to delete or purge an entity of `console.protect`: the entity, its sub-queues, and the
/// topic of a subscription (CON-64).
fn refuse_protected(exchange: &Exchange, method: &Method, route: &ApiRoute) -> Result<(), Refusal> {
    let is_delete = method == Method::DELETE;
    let path = match route {
        ApiRoute::Queue { queue: path } | ApiRoute::Topic { topic: path } if is_delete => {
            path.clone()
        }
        ApiRoute::Subscription { topic, name } if is_delete => subscription_path(topic, name),
        ApiRoute::Message { queue, name } if messages::is_purge(name) => queue.clone(),
        _ => return Ok(()),
    };
    refuse_protected_path(exchange, &path, is_delete)
}

/// Refuses to remove the messages of an entity of `console.protect`; `is_delete` is set if the
/// entity itself would be deleted.
fn refuse_protected_path(exchange: &Exchange, path: &str, is_delete: bool) -> Result<(), Refusal> {
    let entity = path.split("/$").next().unwrap_or_default().to_ascii_lowercase();
    let subscriptions = format!("{entity}/subscriptions/");
    let is_kept = |kept: &String| {
        let kept = kept.to_ascii_lowercase();
        kept == entity || (is_delete && kept.starts_with(&subscriptions))
    };
    match exchange.site.config.protected.iter().find(|kept| is_kept(kept)) {
        None => Ok(()),
        Some(kept) => Err(Rejection::invalid_operation(format!(
            "`{kept}` is protected by the setting console.protect, so this API does not delete or \
             purge it"
        ))
        .into()),
    }
}

/// Carries out an operation; the resource must have the method.
pub(crate) async fn dispatch(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    route: &ApiRoute,
) -> Answer {
    refuse_unknown(exchange.query(), parameters(method, route))?;
    refuse_protected(exchange, method, route)?;
    match route {
        ApiRoute::Document => document(exchange).await,
        ApiRoute::Queues => queues::list(exchange).await,
        ApiRoute::Queue { queue } => queues::one(exchange, payload, method, queue).await,
        ApiRoute::Messages { queue } => messages::all(exchange, payload, method, queue).await,
        ApiRoute::Message { queue, name } => messages::named(exchange, payload, queue, name).await,
        ApiRoute::Lock { queue, token, operation } => {
            lock::named(exchange, payload, queue, token, operation).await
        }
        ApiRoute::Declaration => namespace::declare(exchange, payload).await,
        ApiRoute::DeclarationText => declaration_text::declare(exchange, payload).await,
        ApiRoute::DeclarationExport => declaration_text::export(exchange).await,
        ApiRoute::Namespace => namespace::get(exchange).await,
        ApiRoute::Sessions { path } => sessions::list(exchange, path).await,
        ApiRoute::SessionDetails { path } => inspect::sessions(exchange, path).await,
        ApiRoute::SessionState { path, session } => match *method {
            Method::PUT => operate::set_state(exchange, payload, path, session).await,
            Method::DELETE => operate::clear_state(exchange, payload, path, session).await,
            _ => content::session_state(exchange, path, session).await,
        },
        ApiRoute::Act { path } => act::act(exchange, payload, path).await,
        ApiRoute::Receipt { path, job } => act::forget_job(exchange, payload, path, job).await,
        ApiRoute::LockBreak { path } => operate::break_locks(exchange, payload, path).await,
        ApiRoute::SessionBreak { path, session } => {
            operate::break_session(exchange, payload, path, session).await
        }
        ApiRoute::Client { client } => operate::close_client(exchange, payload, client).await,
        ApiRoute::MessageHead { path, sequence } => inspect::head(exchange, path, sequence).await,
        ApiRoute::MessageBody { path, sequence } => content::body(exchange, path, sequence).await,
        ApiRoute::Heads { path } => inspect::heads(exchange, path).await,
        ApiRoute::Locks { path } => inspect::locks(exchange, path).await,
        ApiRoute::Timeline { path } if path.is_empty() => inspect::all_timeline(exchange).await,
        ApiRoute::Timeline { path } => inspect::timeline(exchange, path).await,
        ApiRoute::Series { path } if path.is_empty() => inspect::all_series(exchange).await,
        ApiRoute::Series { path } => inspect::series(exchange, path).await,
        ApiRoute::Entities => inspect::entities(exchange).await,
        ApiRoute::Clients => inspect::clients(exchange).await,
        ApiRoute::Audit => audit::audit(exchange).await,
        ApiRoute::AuditExport => audit::export(exchange).await,
        ApiRoute::Journeys => journey::journeys(exchange).await,
        ApiRoute::Journey { path, sequence } => journey::journey(exchange, path, sequence).await,
        ApiRoute::Topology => checks::topology(exchange).await,
        ApiRoute::Checks => checks::checks(exchange).await,
        ApiRoute::Mute => checks::mute(exchange, payload).await,
        ApiRoute::Unmute => checks::unmute(exchange, payload).await,
        ApiRoute::CreateJob { path } => job::create(exchange, payload, path).await,
        ApiRoute::Jobs => job::list(exchange).await,
        ApiRoute::Job { job } => job::describe(exchange, job).await,
        ApiRoute::JobSamples { job } => job::samples(exchange, job).await,
        ApiRoute::JobFailures { job } => job::failures(exchange, job).await,
        ApiRoute::JobExport { job } => job::export(exchange, job).await,
        ApiRoute::ControlJob { job, operation } => {
            job::control(exchange, payload, job, operation).await
        }
        ApiRoute::Watch => watch::watch(exchange, payload).await,
        ApiRoute::Search => search::search(exchange, payload).await,
        ApiRoute::SignIn => sign_in::one(exchange, payload, method).await,
        ApiRoute::Unlock => sign_in::unlock_or_lock(exchange, payload, method).await,
        ApiRoute::Downloads => sign_in::create_download(exchange, payload).await,
        ApiRoute::Download { .. } => sign_in::download(),
        ApiRoute::Topics => topics::list(exchange).await,
        ApiRoute::Topic { topic } => topics::one(exchange, payload, method, topic).await,
        ApiRoute::Subscriptions { topic } => subscriptions::list(exchange, topic).await,
        ApiRoute::Subscription { topic, name } => {
            subscriptions::one(exchange, payload, method, topic, name).await
        }
        ApiRoute::Rules { path } => rules::list(exchange, path).await,
        ApiRoute::Rule { path, name } => rules::one(exchange, payload, method, path, name).await,
        ApiRoute::Explain { path } => rules::explain(exchange, payload, path).await,
        ApiRoute::Samples { path } => filters::samples(exchange, path).await,
        ApiRoute::ExplainTopic { path } => filters::explain(exchange, payload, path).await,
        ApiRoute::WhatIf { path } => filters::what_if(exchange, payload, path).await,
        ApiRoute::Policies { owner } => policies::list(exchange, owner).await,
        ApiRoute::Policy { owner, name } => {
            policies::one(exchange, payload, method, owner, name).await
        }
        ApiRoute::PolicyKeys { owner, name } => {
            policies::keys(exchange, payload, owner, name).await
        }
        ApiRoute::RegenerateKey { owner, name } => {
            policies::regenerate(exchange, payload, owner, name).await
        }
    }
}

/// Answers with the OpenAPI document. All requests share one copy, but each reserves memory for it
/// until it is written.
async fn document(exchange: &Exchange) -> Answer {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi_json()));
    let mut room = exchange.reserve_answer().await?;
    room.fit_messages(DOCUMENT.len() as u64).await?;
    exchange.hand_over(room, DOCUMENT.len(), None);
    Ok(HttpResponse::Ok().content_type("application/json").body(DOCUMENT.clone()))
}

/// Makes an answer of this API.
fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    HttpResponse::build(status).insert_header((header::CACHE_CONTROL, "no-store")).json(value)
}

/// Makes an answer whose memory, if it needs any, was reserved before the operation.
fn json_in(
    exchange: &Exchange,
    room: Option<AnswerRoom>,
    status: StatusCode,
    value: &impl Serialize,
) -> HttpResponse {
    if let Some(room) = room {
        exchange.hand_over(room, size_in_json(value), None);
    }
    json(status, value)
}

/// Makes an answer that may be large, with memory reserved in advance. Measuring and writing are
/// separate turns of the thread, since a plan may take long.
async fn large(exchange: &Exchange, room: Option<AnswerRoom>, value: &impl Serialize) -> Answer {
    let mut room = match room {
        Some(room) => room,
        None => exchange.reserve_answer().await?,
    };
    let size = size_in_json(value);
    room.fit_messages(size as u64).await?;
    tokio::task::yield_now().await;
    let mut bytes = Vec::with_capacity(size);
    if serde_json::to_writer(&mut bytes, value).is_err() {
        return Err(Rejection::internal("the response cannot be written as JSON").into());
    }
    exchange.hand_over(room, bytes.len(), None);
    Ok(of_json(bytes))
}

fn of_json(bytes: Vec<u8>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(bytes)
}

fn no_content() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// Returns the page of a list that the query asks for (ENT-30).
fn page(exchange: &Exchange) -> Result<Page, Refusal> {
    let most = exchange.site.broker.settings().limits.list_count_max.max(1);
    let skip = number(exchange, "skip")?.unwrap_or(0);
    let top = number(exchange, "top")?.unwrap_or(TOP_DEFAULT).min(most);
    Ok(Page { skip, top: Some(top) })
}

/// Returns a number from the query.
fn number<T: std::str::FromStr>(exchange: &Exchange, name: &str) -> Result<Option<T>, Refusal> {
    let Some(text) = parameter(exchange.query(), name) else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(Refusal::argument(format!(
            "the query parameter {name} must be a number in its range"
        ))),
    }
}

/// Reads an instant of a request; `name` is its property.
fn instant(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    match Timestamp::parse(text) {
        Some(instant) => Ok(Some(instant)),
        None => Err(Refusal::argument(format!("{name} must be an RFC 3339 instant"))),
    }
}
