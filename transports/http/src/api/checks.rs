//! Topology of the namespace, and findings of the checks (CON-38, CON-39).

use actix_web::web;
use peeklock_core::inspect::MuteChange;
use peeklock_core::management::Management;
use peeklock_json::{
    CheckKindName, ChecksForm, ChecksView, MuteForm, QuestionForm, TopologyForm, TopologyView,
    UnmuteForm,
};
use utoipa::OpenApi;

use super::inspect::{ask, name, optional_flag};
use super::manage::manage;
use super::number;
use crate::body;
use crate::error::{Answer, Problem};
use crate::exchange::Exchange;
use crate::route::parameter;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(topology, checks, mute, unmute), components(schemas(MuteForm, UnmuteForm)))]
pub(super) struct Operations;

pub(super) const TOPOLOGY: &[&str] = &["around", "hops", "top"];
pub(super) const CHECKS: &[&str] = &["path", "kind", "muted"];

/// Read entities and their destinations as nodes and edges.
///
/// The counts are at most 1 s old. The answer has only entities that you may read; a destination
/// that you may not read is `unknown`, like one that does not exist.
#[utoipa::path(get, operation_id = "topology", path = "/topology", tag = "inspect",
    params(("around" = Option<String>, Query, description = "only nodes near this entity"),
        ("hops" = Option<u8>, Query, description = "0 to 16 hops from that entity in either \
            direction, by default 1; from a topic to its subscription is no hop"),
        ("top" = Option<u32>, Query, description = "maximum number of nodes, 1 to 2000, by \
            default 2000; the nearest ones are kept, or without `around` the ones with an edge")),
    responses((status = 200, body = TopologyView), (status = "default", body = Problem)))]
pub(super) async fn topology(exchange: &Exchange) -> Answer {
    let form = TopologyForm {
        around: parameter(exchange.query(), "around"),
        hops: number(exchange, "hops")?,
        top: number(exchange, "top")?,
    };
    ask(exchange, "", &QuestionForm::Topology(form)).await
}

/// Read the findings of the last check, the most urgent first.
///
/// The broker checks all entities each minute. The answer has only findings about entities that
/// you may read, and findings about the broker if you may read the whole namespace.
#[utoipa::path(get, operation_id = "list_findings", path = "/checks", tag = "inspect",
    params(("path" = Option<String>, Query, description = "part of the path, ignoring ASCII case"),
        ("kind" = Option<CheckKindName>, Query),
        ("muted" = Option<bool>, Query, description = "only muted findings, or only others")),
    responses((status = 200, body = ChecksView), (status = "default", body = Problem)))]
pub(super) async fn checks(exchange: &Exchange) -> Answer {
    let form = ChecksForm {
        path: parameter(exchange.query(), "path"),
        kind: name(exchange, "kind")?,
        muted: optional_flag(exchange, "muted")?,
    };
    ask(exchange, "", &QuestionForm::Checks(form)).await
}

/// Mute a finding, also before there is one.
///
/// It stays in the list with the reason. Needs the rights Send and Listen of the entity, or for a
/// finding about the broker of the namespace.
#[utoipa::path(post, operation_id = "mute_finding", path = "/checks/mute", tag = "operate",
    request_body = MuteForm,
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn mute(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    let (form, _room): (MuteForm, _) = body::read_json(exchange, payload).await?;
    let path = form.path.clone();
    manage(exchange, &path, Management::Mute(MuteChange::from(form))).await
}

/// Report a muted finding again.
///
/// A finding that is not muted is no error. Needs the rights Send and Listen of the entity, or for a
/// finding about the broker of the namespace.
#[utoipa::path(post, operation_id = "unmute_finding", path = "/checks/unmute", tag = "operate",
    request_body = UnmuteForm,
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn unmute(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    let (form, _room): (UnmuteForm, _) = body::read_json(exchange, payload).await?;
    let path = form.path.clone();
    manage(exchange, &path, Management::Mute(MuteChange::from(form))).await
}
