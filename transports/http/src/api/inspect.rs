//! Questions of operators: lists of entities, clients, messages, locks and sessions, and timelines.
//! Answering them changes nothing (CON-01). `body.rs` has bodies and states of sessions.

use actix_web::http::StatusCode;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{Findings, Found};
use peeklock_core::management::{Managed, Management};
use peeklock_json::{
    ClientPageView, ClientQueryForm, ConditionName, EntityKindName, EntityPageView,
    EntityQueryForm, EntitySortName, HeadPageView, HeadQueryForm, HeadSortName, HeadStateName,
    HeadView, Instant, JsonName, LockPageView, LockQueryForm, LockSortName, QuestionForm,
    SeriesColumnName, SeriesForm, SeriesView, SessionPageView, SessionQueryForm, SessionSortName,
    TimelineName, TimelineQueryForm, TimelineView,
};
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};

use super::manage::manage;
use super::{instant, json_in, number};
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::route::{parameter, parameter_values};

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(
    entities,
    clients,
    all_timeline,
    heads,
    head,
    locks,
    sessions,
    timeline,
    all_series,
    series
))]
pub(super) struct Operations;

pub(super) const ENTITIES: &[&str] =
    &["path", "kind", "condition", "sort", "descending", "top", "after"];
pub(super) const CLIENTS: &[&str] = &["transport", "path", "name", "top", "after"];
pub(super) const HEADS: &[&str] =
    &["state", "sort", "descending", "from", "fromUtc", "sessionId", "count", "after"];
pub(super) const LOCKS: &[&str] = &["sort", "top", "after"];
pub(super) const SESSIONS: &[&str] =
    &["sort", "descending", "withActiveMessages", "stateSetAfterUtc", "top", "after"];
pub(super) const SERIES: &[&str] = &["column", "fromUtc", "untilUtc", "resolutionSeconds"];
pub(super) const TIMELINE: &[&str] = &["of", "fromUtc", "slotSeconds", "slots"];

/// One message without its body.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SingleHead {
    #[serde(flatten)]
    head: HeadView,
    /// Instant of the answer by the clock of the broker.
    #[schema(value_type = String)]
    now_utc: Instant,
}

/// List entities with their counts and rates.
///
/// The counts are at most 1 s old; read one entity for its exact counts. The list has only entities
/// that you may read.
#[utoipa::path(get, operation_id = "list_entities", path = "/entities", tag = "inspect",
    params(("path" = Option<String>, Query, description = "part of the path, ignoring ASCII case"),
        ("kind" = Option<EntityKindName>, Query),
        ("condition" = Option<ConditionName>, Query, description = "repeat it for several \
            conditions, all of which must hold"),
        ("sort" = Option<EntitySortName>, Query, description = "by default path"),
        ("descending" = Option<bool>, Query, description = "by default false"),
        ("top" = Option<u32>, Query, description = "1 to 500, by default 100"),
        ("after" = Option<String>, Query, description = "`next` of an earlier page; repeat the \
            other parameters")),
    responses((status = 200, body = EntityPageView), (status = "default", body = Problem)))]
pub(super) async fn entities(exchange: &Exchange) -> Answer {
    let query = exchange.query();
    let form = EntityQueryForm {
        path: parameter(query, "path"),
        kind: name(exchange, "kind")?,
        conditions: names(exchange, "condition")?,
        sort: name(exchange, "sort")?,
        descending: flag(exchange, "descending")?,
        top: number(exchange, "top")?,
        after: parameter(query, "after"),
    };
    ask(exchange, "", &QuestionForm::Entities(form)).await
}

/// List connected clients with their links.
///
/// The list has only links to entities that you may read, and only clients with such links, unless
/// you may read the whole namespace.
#[utoipa::path(get, operation_id = "list_clients", path = "/clients", tag = "inspect",
    params(("transport" = Option<String>, Query, description = "such as amqp"),
        ("path" = Option<String>, Query, description = "only clients with a link to this entity"),
        ("name" = Option<String>, Query, description = "part of the name, ignoring ASCII case"),
        ("top" = Option<u32>, Query, description = "1 to 500, by default 100"),
        ("after" = Option<String>, Query, description = "`next` of an earlier page; repeat the \
            other parameters")),
    responses((status = 200, body = ClientPageView), (status = "default", body = Problem)))]
pub(super) async fn clients(exchange: &Exchange) -> Answer {
    let query = exchange.query();
    let form = ClientQueryForm {
        transport: parameter(query, "transport"),
        path: parameter(query, "path"),
        name: parameter(query, "name"),
        top: number(exchange, "top")?,
        after: parameter(query, "after"),
    };
    ask(exchange, "", &QuestionForm::Clients(form)).await
}

/// Read counts, gauges and times of the namespace over time.
///
/// A message counts in each entity that has a copy.
#[utoipa::path(get, operation_id = "namespace_series", path = "/series", tag = "inspect",
    params(("column" = Option<SeriesColumnName>, Query, description = "repeat it for several \
            columns; by default all"),
        ("fromUtc" = Option<String>, Query, description = "by default an hour before the end"),
        ("untilUtc" = Option<String>, Query, description = "by default now"),
        ("resolutionSeconds" = Option<u64>, Query, description = "1, 60 or 900; by default the \
            finest one that is kept for the span and gives at most 720 points")),
    responses((status = 200, body = SeriesView), (status = "default", body = Problem)))]
pub(super) async fn all_series(exchange: &Exchange) -> Answer {
    series(exchange, "").await
}

/// Count scheduled or expiring messages of the namespace by slot.
#[utoipa::path(get, operation_id = "namespace_timeline", path = "/timeline", tag = "inspect",
    params(("of" = Option<TimelineName>, Query, description = "by default scheduled"),
        ("fromUtc" = Option<String>, Query, description = "start of the first slot, by default now"),
        ("slotSeconds" = Option<u32>, Query, description = "10 to 86400, by default 60"),
        ("slots" = Option<u16>, Query, description = "1 to 240, by default 60")),
    responses((status = 200, body = TimelineView), (status = "default", body = Problem)))]
pub(super) async fn all_timeline(exchange: &Exchange) -> Answer {
    timeline(exchange, "").await
}

/// List messages without their bodies, in any state.
///
/// Unlike a peek, this changes nothing, not even the time of the last access. A page may be short
/// or empty and still have `next`.
#[utoipa::path(get, operation_id = "list_heads", path = "/queues/{queue}/heads", tag = "inspect",
    params(("queue" = String, Path),
        ("state" = Option<HeadStateName>, Query, description = "repeat it for several states; by \
            default all"),
        ("sort" = Option<HeadSortName>, Query, description = "by default sequenceNumber; \
            scheduledTime lists only scheduled messages, expiry only available messages"),
        ("descending" = Option<bool>, Query, description = "by default false"),
        ("from" = Option<u64>, Query, description = "first sequence number"),
        ("fromUtc" = Option<String>, Query, description = "first instant: of enqueueing, or of the \
            order"),
        ("sessionId" = Option<String>, Query, description = "only messages of this session"),
        ("count" = Option<u32>, Query, description = "1 to 500, by default 100"),
        ("after" = Option<String>, Query, description = "`next` of an earlier page, instead of \
            from and fromUtc; repeat the other parameters")),
    responses((status = 200, body = HeadPageView), (status = "default", body = Problem)))]
pub(super) async fn heads(exchange: &Exchange, path: &str) -> Answer {
    let query = exchange.query();
    let from_utc = parameter(query, "fromutc");
    let form = HeadQueryForm {
        states: names(exchange, "state")?,
        sort: name(exchange, "sort")?,
        descending: flag(exchange, "descending")?,
        from: number(exchange, "from")?,
        from_utc: instant("fromUtc", from_utc.as_deref())?.map(Instant),
        session_id: parameter(query, "sessionid"),
        count: number(exchange, "count")?,
        after: parameter(query, "after"),
    };
    ask(exchange, path, &QuestionForm::Heads(form)).await
}

/// Read one message without its body.
#[utoipa::path(get, operation_id = "get_head", path = "/queues/{queue}/messages/{sequenceNumber}/head",
    tag = "inspect", params(("queue" = String, Path), ("sequenceNumber" = u64, Path)),
    responses((status = 200, body = SingleHead), (status = "default", body = Problem)))]
pub(super) async fn head(exchange: &Exchange, path: &str, sequence: &str) -> Answer {
    let sequence = sequence_number(sequence)?;
    let form = HeadQueryForm { from: Some(sequence.0), count: Some(1), ..HeadQueryForm::default() };
    let question = QuestionForm::Heads(form).to_question(exchange.site.broker.now())?;
    let room = exchange.reserve_answer().await?;
    let request = Management::Inspect(Box::new(question));
    let Managed::Findings(findings) = exchange.access.manage(path, request).await? else {
        return Err(Refusal::unexpected());
    };
    let Findings { at, found: Found::Heads(page) } = *findings else {
        return Err(Refusal::unexpected());
    };
    let head = page.heads.into_iter().find(|head| head.facts.message.sequence == sequence);
    let Some(head) = head else { return Err(Rejection::message_not_found(sequence).into()) };
    let head = SingleHead { head: head.into(), now_utc: Instant(at) };
    Ok(json_in(exchange, Some(room), StatusCode::OK, &head))
}

/// List locks with their holders.
///
/// An entity with sessions lists the locks of its sessions. Tokens of locks are not shown.
#[utoipa::path(get, operation_id = "list_locks", path = "/queues/{queue}/locks", tag = "inspect",
    params(("queue" = String, Path),
        ("sort" = Option<LockSortName>, Query, description = "by default end"),
        ("top" = Option<u32>, Query, description = "1 to 500, by default 100"),
        ("after" = Option<String>, Query, description = "`next` of an earlier page; repeat the \
            other parameters")),
    responses((status = 200, body = LockPageView), (status = "default", body = Problem)))]
pub(super) async fn locks(exchange: &Exchange, path: &str) -> Answer {
    let form = LockQueryForm {
        sort: name(exchange, "sort")?,
        top: number(exchange, "top")?,
        after: parameter(exchange.query(), "after"),
    };
    ask(exchange, path, &QuestionForm::Locks(form)).await
}

/// List sessions with their counts, states and locks.
#[utoipa::path(get, operation_id = "list_session_details", path = "/queues/{queue}/sessions/details",
    tag = "inspect",
    params(("queue" = String, Path),
        ("sort" = Option<SessionSortName>, Query, description = "by default sessionId"),
        ("descending" = Option<bool>, Query, description = "by default false"),
        ("withActiveMessages" = Option<bool>, Query,
            description = "only sessions with active messages"),
        ("stateSetAfterUtc" = Option<String>, Query,
            description = "only sessions whose state was set after this instant; not together with \
                withActiveMessages"),
        ("top" = Option<u32>, Query, description = "1 to 500, by default 100"),
        ("after" = Option<String>, Query, description = "`next` of an earlier page; repeat the \
            other parameters")),
    responses((status = 200, body = SessionPageView), (status = "default", body = Problem)))]
pub(super) async fn sessions(exchange: &Exchange, path: &str) -> Answer {
    let query = exchange.query();
    let set_after = parameter(query, "statesetafterutc");
    let form = SessionQueryForm {
        sort: name(exchange, "sort")?,
        descending: flag(exchange, "descending")?,
        with_active_messages: flag(exchange, "withActiveMessages")?,
        state_set_after_utc: instant("stateSetAfterUtc", set_after.as_deref())?.map(Instant),
        top: number(exchange, "top")?,
        after: parameter(query, "after"),
    };
    ask(exchange, path, &QuestionForm::Sessions(form)).await
}

/// Count scheduled or expiring messages by slot.
#[utoipa::path(get, operation_id = "timeline", path = "/queues/{queue}/timeline", tag = "inspect",
    params(("queue" = String, Path),
        ("of" = Option<TimelineName>, Query, description = "by default scheduled"),
        ("fromUtc" = Option<String>, Query, description = "start of the first slot, by default now"),
        ("slotSeconds" = Option<u32>, Query, description = "10 to 86400, by default 60"),
        ("slots" = Option<u16>, Query, description = "1 to 240, by default 60")),
    responses((status = 200, body = TimelineView), (status = "default", body = Problem)))]
pub(super) async fn timeline(exchange: &Exchange, path: &str) -> Answer {
    let from_utc = parameter(exchange.query(), "fromutc");
    let form = TimelineQueryForm {
        of: name(exchange, "of")?,
        from_utc: instant("fromUtc", from_utc.as_deref())?.map(Instant),
        slot_seconds: number(exchange, "slotSeconds")?,
        slots: number(exchange, "slots")?,
    };
    ask(exchange, path, &QuestionForm::Timeline(form)).await
}

/// Read counts, gauges and times of an entity over time.
///
/// Counts are sums over a slot, gauges are values at its end; a column that ends in `Us` is a
/// percentile in microseconds. An answer has at most 3,600 slots. A value that is not known is
/// `null`, never 0.
#[utoipa::path(get, operation_id = "series", path = "/queues/{queue}/series", tag = "inspect",
    params(("queue" = String, Path),
        ("column" = Option<SeriesColumnName>, Query, description = "repeat it for several \
            columns; by default all"),
        ("fromUtc" = Option<String>, Query, description = "by default an hour before the end"),
        ("untilUtc" = Option<String>, Query, description = "by default now"),
        ("resolutionSeconds" = Option<u64>, Query, description = "1, 60 or 900; by default the \
            finest one that is kept for the span and gives at most 720 points")),
    responses((status = 200, body = SeriesView), (status = "default", body = Problem)))]
pub(super) async fn series(exchange: &Exchange, path: &str) -> Answer {
    let instant_of = |name: &str| {
        let text = parameter(exchange.query(), &name.to_ascii_lowercase());
        Ok::<_, Refusal>(instant(name, text.as_deref())?.map(Instant))
    };
    let form = SeriesForm {
        from_utc: instant_of("fromUtc")?,
        until_utc: instant_of("untilUtc")?,
        resolution_seconds: number(exchange, "resolutionSeconds")?,
        columns: names(exchange, "column")?,
    };
    ask(exchange, path, &QuestionForm::Series(form)).await
}

pub(super) async fn ask(exchange: &Exchange, path: &str, form: &QuestionForm) -> Answer {
    let question = form.to_question(exchange.site.broker.now())?;
    manage(exchange, path, Management::Inspect(Box::new(question))).await
}

/// Reads the sequence number of a path.
pub(super) fn sequence_number(text: &str) -> Result<SequenceNumber, Refusal> {
    match text.parse() {
        Ok(number) => Ok(SequenceNumber(number)),
        Err(_) => Err(Refusal::argument("the sequence number has more than 64 bits")),
    }
}

/// Returns all values of a query parameter with a fixed set of names.
fn names<N: JsonName>(exchange: &Exchange, parameter: &str) -> Result<Vec<N>, Refusal> {
    let key = parameter.to_ascii_lowercase();
    let values = parameter_values(exchange.query(), &key);
    let names = values.map(|text| {
        N::parse(&text).ok_or_else(|| {
            let all = N::all_as_text();
            Refusal::argument(format!("the query parameter {parameter} must be one of {all}"))
        })
    });
    names.collect()
}

pub(super) fn name<N: JsonName>(
    exchange: &Exchange,
    parameter: &str,
) -> Result<Option<N>, Refusal> {
    Ok(names(exchange, parameter)?.into_iter().next())
}

/// Returns a flag from the query, false by default.
pub(super) fn flag(exchange: &Exchange, name: &str) -> Result<bool, Refusal> {
    Ok(optional_flag(exchange, name)?.unwrap_or_default())
}

/// Returns a flag from the query, if there is one.
pub(super) fn optional_flag(exchange: &Exchange, name: &str) -> Result<Option<bool>, Refusal> {
    match parameter(exchange.query(), &name.to_ascii_lowercase()).as_deref() {
        None => Ok(None),
        Some("false") => Ok(Some(false)),
        Some("true") => Ok(Some(true)),
        Some(_) => {
            Err(Refusal::argument(format!("the query parameter {name} must be true or false")))
        }
    }
}
