//! Probes: whether the process is alive and ready, and its state. `serve.rs` calls it.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use peeklock_core::StalledTurn;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_json::Instant;
use serde::Serialize;

use crate::config::{MetricsHook, Readiness};
use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;
use crate::room::PATIENCE;
use crate::route::Probe;

/// A broker with a full store stays ready, since consumers must reach it to make room.
const DEGRADED: &str = "ready, but degraded: the store is full and new messages are refused \
    (ServerBusy); receiving and settling continue; the log of the broker has the numbers\n";

/// A broker without its database keeps its connections, but new clients should not come.
const STORE_AWAY: &str = "the database of the broker does not answer; requests wait until it does, \
    and the log of the broker has the reason";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    status: &'static str,
    #[serde(flatten)]
    details: Option<Details>,
}

/// Data for clients that may read the metrics, and for no others.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    version: &'static str,
    store: &'static str,
    durable: bool,
    entities: usize,
    /// Instant at which this listener was made.
    started_at_utc: Instant,
    /// Reason why new messages are refused, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    shortage: Option<String>,
    /// Reason why the store cannot be reached, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<String>,
    /// Includes this request.
    requests_in_progress: usize,
}

/// Answers a probe. Probes need no token, except the metrics, which name entities.
pub(crate) async fn answer(exchange: &Exchange, probe: Probe) -> Answer {
    let site = &exchange.site;
    let failed = site.broker.failure().is_some();
    let readiness = site.config.readiness.as_ref();
    let is_stopping = site.requests.is_stopping() || readiness.is_some_and(Readiness::has_ended);
    match probe {
        Probe::Live => Ok(HttpResponse::Ok().content_type("text/plain").body("alive\n")),
        Probe::Ready if failed || is_stopping => {
            // The reason is only in the broker's log: here it would reveal data of the machine to
            // strangers.
            let detail = if failed { "the broker has failed" } else { "the broker is stopping" };
            Err(Refusal::from(Rejection::internal(detail))
                .with_status(StatusCode::SERVICE_UNAVAILABLE))
        }
        Probe::Ready if !readiness.is_none_or(Readiness::is_set) => {
            Err(Refusal::from(Rejection::server_busy("the broker is starting"))
                .with_status(StatusCode::SERVICE_UNAVAILABLE))
        }
        Probe::Ready if site.broker.outage().is_some() => {
            Err(Refusal::from(Rejection::server_busy(STORE_AWAY))
                .with_status(StatusCode::SERVICE_UNAVAILABLE))
        }
        Probe::Ready if site.broker.is_suspended() => {
            let detail = "the broker cannot renew its lease in the store and waits until it can";
            Err(Refusal::from(Rejection::server_busy(detail))
                .with_status(StatusCode::SERVICE_UNAVAILABLE))
        }
        Probe::Ready => match site.broker.stalled() {
            Some(stalled) => Err(waiting(exchange, &stalled).await),
            None => {
                let body = if site.broker.shortage().is_some() { DEGRADED } else { "ready\n" };
                Ok(HttpResponse::Ok().content_type("text/plain").body(body))
            }
        },
        Probe::Health => {
            let is_known = exchange.access.is_allowed(Action::ReadMetrics, "").await;
            let (shortage, outage) = (site.broker.shortage(), site.broker.outage());
            let details = is_known.then(|| {
                let (store, durable) = site.broker.store();
                Details {
                    version: env!("CARGO_PKG_VERSION"),
                    store,
                    durable,
                    entities: site.broker.entity_count(),
                    started_at_utc: Instant(site.started_at),
                    shortage: shortage.as_ref().map(ToString::to_string),
                    outage: outage.as_ref().map(ToString::to_string),
                    requests_in_progress: site.requests.count(),
                }
            });
            let status = match &shortage {
                _ if failed => "failed",
                _ if outage.is_some() => "unavailable",
                _ if site.broker.is_suspended() => "suspended",
                Some(_) => "degraded",
                None => "ok",
            };
            let health = Health { status, details };
            Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(health))
        }
        Probe::Metrics => {
            let Some(metrics) = &site.config.metrics else { return Err(Refusal::no_resource()) };
            if !site.config.metrics_public {
                exchange.allow(Action::ReadMetrics, "").await?;
            }
            metrics_page(exchange, Arc::clone(metrics)).await
        }
    }
}

/// Answers with the metrics page, under a memory reservation like each answer. The page is built on
/// a thread that serves no connections, because it visits and sorts all entities.
async fn metrics_page(exchange: &Exchange, metrics: MetricsHook) -> Answer {
    let turn = Arc::clone(&exchange.site.metrics_turn).acquire_owned();
    let Ok(Ok(turn)) = tokio::time::timeout(PATIENCE, turn).await else {
        let detail = "another metrics request is in progress; retry in a moment";
        return Err(Rejection::server_busy(detail).into());
    };
    let mut room = exchange.reserve_answer().await?;
    // The page keeps the turn, so that a disconnected client cannot cause a second page to be built
    // at the same time.
    let making = tokio::task::spawn_blocking(move || (metrics(), turn));
    let Ok((page, _turn)) = making.await else {
        return Err(Rejection::internal("the metrics page could not be built").into());
    };
    room.fit_messages(page.len() as u64).await?;
    exchange.hand_over(room, page.len(), None);
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(page))
}

/// Refuses because a turn takes too long. The entity is logged, and returned only to clients that
/// may know its name.
async fn waiting(exchange: &Exchange, stalled: &StalledTurn) -> Refusal {
    let seconds = stalled.duration.as_seconds_f64();
    let path = stalled.path.as_deref().unwrap_or("an entity that is being opened");
    tracing::warn!(
        entity = path,
        seconds,
        "a worker thread is busy with one entity, and all its other entities wait"
    );
    let entity = match exchange.access.is_allowed(Action::ReadMetrics, "").await {
        true => format!("`{path}`"),
        false => "one entity".to_owned(),
    };
    let detail = format!(
        "a worker thread has been busy with {entity} for {seconds:.1} s; its other entities wait"
    );
    Refusal::from(Rejection::server_busy(detail)).with_status(StatusCode::SERVICE_UNAVAILABLE)
}
