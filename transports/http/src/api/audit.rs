//! The audit trail (CON-23): its pages, and the whole trail as lines.

use std::collections::VecDeque;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use actix_web::web::Bytes;
use futures_util::stream;
use peeklock_core::Access;
use peeklock_core::contract::{AUDIT_PAGE_MAX, Action};
use peeklock_core::error::BrokerError;
use peeklock_core::inspect::{Found, Question};
use peeklock_core::management::{Managed, Management};
use peeklock_json::{AuditPageView, AuditQueryForm, Instant, QuestionForm};
use serde::Serialize;
use serde_json::Value;
use utoipa::{OpenApi, ToSchema};

use super::{instant, number};
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::room::AnswerRoom;
use crate::route::parameter;
use crate::site::Site;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(audit, export), components(schemas(AuditEntryView)))]
pub(super) struct Operations;

pub(super) const AUDIT: &[&str] =
    &["since", "until", "policy", "operation", "resource", "result", "ascending", "top", "after"];
pub(super) const EXPORT: &[&str] = &["since", "until", "policy", "operation", "resource", "result"];

/// Memory of an export: a page, and its lines in the socket's buffer.
const STREAM_BYTES: usize = 3 << 20;
/// Maximum bytes that an export hands to the socket at once.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// A page of the audit trail.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditList {
    /// The entries, newest first unless `ascending` is set.
    #[schema(value_type = Vec<AuditEntryView>)]
    entries: Vec<Value>,
    /// Position of the next page, even if this one is short or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Instant of the answer by the clock of the broker.
    #[schema(value_type = String)]
    now_utc: Instant,
}

/// An entry. An action has one before it begins and one at its end, with the same `trackingId`.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the lines of the trail")]
pub(crate) struct AuditEntryView {
    /// Position in the trail, from 1.
    number: u64,
    /// SHA-256 of the line before this one, in hexadecimal.
    previous: String,
    at_utc: String,
    tracking_id: Option<String>,
    /// `begin`, `end`, or `trail` for entries of the trail itself.
    stage: String,
    operation: String,
    /// Path of the entity; absent for the namespace.
    resource: Option<String>,
    /// Policy of the client.
    policy: Option<String>,
    /// Network address of the client; absent for a client in the process of the broker.
    address: Option<String>,
    /// Whether the address is the address of a proxy.
    by_proxy: Option<bool>,
    /// Role of the console token.
    role: Option<String>,
    /// Short text of the request, in an entry with the stage `begin`.
    request: Option<String>,
    /// `done`, `unknown`, or the code of an error, in an entry with the stage `end`.
    result: Option<String>,
    /// Number of messages, locks, steps or hits.
    count: Option<u64>,
    /// Changed values: `property`, `before`, `after`.
    changes: Option<Vec<ChangedValueView>>,
    /// Tracking id of the error that the client got.
    error_tracking_id: Option<String>,
    /// Number of the oldest entry that is kept, in an entry `trimTrail`.
    begins: Option<u64>,
    /// Number of the first entry of the same write; absent in that entry.
    group: Option<u64>,
}

/// A changed value.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the lines of the trail")]
pub(crate) struct ChangedValueView {
    property: String,
    before: Option<String>,
    after: Option<String>,
}

fn form(exchange: &Exchange) -> Result<AuditQueryForm, Refusal> {
    let query = exchange.query();
    let at = |name: &str| {
        let text = parameter(query, name);
        instant(name, text.as_deref()).map(|at| at.map(Instant))
    };
    Ok(AuditQueryForm {
        since: at("since")?,
        until: at("until")?,
        policy: parameter(query, "policy"),
        operation: parameter(query, "operation"),
        resource: parameter(query, "resource"),
        result: parameter(query, "result"),
        ascending: super::inspect::flag(exchange, "ascending")?,
        top: number(exchange, "top")?,
        after: parameter(query, "after"),
    })
}

/// List actions of operators.
///
/// Needs the right Manage of the namespace and the role admin. An action without an entry with the
/// stage `end` has an unknown result.
#[utoipa::path(get, operation_id = "list_audit", path = "/audit", tag = "console",
    params(("since" = Option<String>, Query, description = "first instant"),
        ("until" = Option<String>, Query, description = "instant after the last one"),
        ("policy" = Option<String>, Query),
        ("operation" = Option<String>, Query, description = "such as deleteEntity"),
        ("resource" = Option<String>, Query, description = "path of the entity, ignoring case"),
        ("result" = Option<String>, Query, description = "done, unknown, or the code of an error"),
        ("ascending" = Option<bool>, Query, description = "oldest first; by default false"),
        ("top" = Option<u32>, Query, description = "1 to 500, by default 100"),
        ("after" = Option<String>, Query, description = "`next` of an earlier page; repeat the \
            other parameters")),
    responses((status = 200, body = AuditList), (status = "default", body = Problem)))]
pub(super) async fn audit(exchange: &Exchange) -> Answer {
    let question = QuestionForm::Audit(form(exchange)?);
    let question = question.to_question(exchange.site.broker.now())?;
    super::manage::manage(exchange, "", Management::Inspect(Box::new(question))).await
}

/// Answers with a page.
pub(super) async fn list(
    exchange: &Exchange,
    room: Option<AnswerRoom>,
    page: AuditPageView,
) -> Answer {
    let entries = page.lines.iter().map(|line| serde_json::from_str(line));
    let entries = entries.collect::<Result<_, _>>().map_err(|_| Refusal::unexpected())?;
    let list = AuditList { entries, next: page.next, now_utc: page.now_utc };
    super::large(exchange, room, &list).await
}

/// Export the audit trail, oldest entry first.
///
/// The answer has one entry on each line, exactly as the trail has it. Without parameters,
/// `peeklock audit verify` can check it.
#[utoipa::path(get, operation_id = "export_audit", path = "/audit/export", tag = "console",
    params(("since" = Option<String>, Query, description = "first instant"),
        ("until" = Option<String>, Query, description = "instant after the last one"),
        ("policy" = Option<String>, Query),
        ("operation" = Option<String>, Query),
        ("resource" = Option<String>, Query),
        ("result" = Option<String>, Query)),
    responses((status = 200, body = String, content_type = "application/x-ndjson"),
        (status = "default", body = Problem)))]
pub(super) async fn export(exchange: &Exchange) -> Answer {
    exchange.allow(Action::ReadAudit, "").await?;
    let form = AuditQueryForm { ascending: true, top: Some(AUDIT_PAGE_MAX), ..form(exchange)? };
    let mut export = Export {
        site: Arc::clone(&exchange.site),
        access: exchange.access.clone(),
        form: Some(form),
        pending: VecDeque::new(),
    };
    // The first page is read before the answer begins, so that its error has a status.
    export.read().await?;
    if let Some(room) = exchange.room_of(STREAM_BYTES).await? {
        exchange.hand_over(room, STREAM_BYTES, None);
    }
    let pieces = stream::try_unfold(export, |mut export| async move {
        let piece = export.piece().await.inspect_err(|error| {
            tracing::warn!(%error, "an export of the audit trail is cut");
        })?;
        Ok::<_, BrokerError>(piece.map(|piece| (piece, export)))
    });
    Ok(HttpResponse::build(StatusCode::OK)
        .insert_header((header::CONTENT_TYPE, "application/x-ndjson"))
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"audit.jsonl\""))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(Box::pin(pieces)))
}

/// An export. It reads the next page when the socket has taken the last one.
struct Export {
    site: Arc<Site>,
    access: Access,
    /// Selection of the next page; none at the end.
    form: Option<AuditQueryForm>,
    pending: VecDeque<Box<str>>,
}

impl Export {
    /// Returns the next lines; none at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, BrokerError> {
        while self.pending.is_empty() && self.form.is_some() {
            self.read().await?;
        }
        let mut piece = Vec::new();
        while piece.len() < PIECE_BYTES_MAX
            && let Some(line) = self.pending.pop_front()
        {
            piece.extend_from_slice(line.as_bytes());
            piece.push(b'\n');
        }
        Ok((!piece.is_empty()).then(|| piece.into()))
    }

    async fn read(&mut self) -> Result<(), BrokerError> {
        let Some(form) = self.form.take() else { return Ok(()) };
        let question = QuestionForm::Audit(form).to_question(self.site.broker.now());
        let question = question.map_err(|error| self.site.broker.refuse(error, ""))?;
        let Question::Audit(mut query) = question else { return Ok(()) };
        let request = Management::Inspect(Box::new(Question::Audit(query.clone())));
        let (managed, _turn) = self.access.turn_at("", request).await?.carry_out().await?;
        if let Managed::Findings(findings) = managed
            && let Found::Audit(page) = findings.found
        {
            self.pending.extend(page.lines);
            query.after = page.next;
            self.form = page.next.map(|_| AuditQueryForm::from(&query));
        }
        Ok(())
    }
}
