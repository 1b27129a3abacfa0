//! A stream of everything that a page watches (CON-33): first a whole state for each subject, then
//! differences.
//!
//! The stream is pulled. The framework asks for the next bytes when the socket has room; only then
//! the subject that has waited longest is read and compared with the state that was sent last. So a
//! slow reader gets fewer and later values, and nothing queues up. Of a state that was sent, the
//! stream keeps the keys of its rows and hashes.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::hash::BuildHasher as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, Version, header};
use actix_web::web::{self, Bytes};
use futures_util::stream;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::inspect::{Findings, Found};
use peeklock_core::management::{Managed, Management};
use peeklock_core::time::TimeSpan;
use peeklock_core::{Access, Tap};
use peeklock_json::{
    ClientQueryForm, EntityQueryForm, FindingsView, Instant, LockQueryForm, QuestionForm,
    QueueView, SessionQueryForm, SubscriptionView, TimelineQueryForm, TopicView,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{OpenApi, ToSchema};

use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::site::Site;
use crate::socket::Connection;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(watch))]
pub(super) struct Operations;

/// Maximum number of subjects of a stream.
const SUBJECT_COUNT_MAX: usize = 16;
/// Minimum time between two states of a subject.
const INTERVAL: Duration = Duration::from_millis(500);
/// The same for a subject that asks entities.
const ASKING_INTERVAL: Duration = Duration::from_secs(2);
/// Time without an event after which the stream shows that it is there (CON-61).
const SILENCE: Duration = Duration::from_secs(2);
/// Maximum bytes of an event. Further rows of a state are left out, and the state is marked.
const EVENT_BYTES_MAX: usize = 128 << 10;
/// Maximum bytes of keys and hashes that a stream keeps.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a row that is kept, in addition to its key.
const ROW_BYTES: usize = 48;
/// Maximum bytes that the stream hands to the socket at once.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Memory of a stream: an event, kept keys, and a piece in the socket's buffer.
const STREAM_BYTES: usize = 256 << 10;

/// Subjects to watch, 1 to 16.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    subjects: Vec<SubjectForm>,
}

/// A subject. `query` has the parameters of the list with the same name.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "name", rename_all = "camelCase", deny_unknown_fields)]
enum SubjectForm {
    /// Entities that you may read.
    Entities {
        #[serde(default)]
        #[schema(value_type = Object)]
        query: EntityQueryForm,
    },
    /// One entity with its exact counts.
    Entity { path: String },
    /// Connected clients.
    Clients {
        #[serde(default)]
        #[schema(value_type = Object)]
        query: ClientQueryForm,
    },
    /// Locks of an entity.
    Locks {
        path: String,
        #[serde(default)]
        #[schema(value_type = Object)]
        query: LockQueryForm,
    },
    /// Sessions of an entity.
    Sessions {
        path: String,
        #[serde(default)]
        #[schema(value_type = Object)]
        query: SessionQueryForm,
    },
    /// Counts by slot, of an entity or without a path of the namespace.
    Timeline {
        #[serde(default)]
        path: String,
        #[serde(default)]
        #[schema(value_type = Object)]
        query: TimelineQueryForm,
    },
    /// Heads of messages that an entity accepts.
    Tap { path: String },
}

/// Watch the state of entities, clients, locks, sessions and accepted messages.
///
/// The answer is `text/event-stream`. `begin` comes first; `state` has the whole state of a subject,
/// once; `change` has `set` (values by name; null removes one), `rows` (new and changed rows by
/// their key), `gone` (keys) and `order` (all keys, if it changed); `heads` has accepted messages
/// and how many were `omitted`; `clock` comes when nothing else did for 2 s; `error` ends one
/// subject and `end` the stream. A subject is sent at most twice a second. A stream cannot be
/// resumed: begin again.
#[utoipa::path(post, path = "/watch", tag = "inspect", request_body = Watch,
    responses((status = 200, body = String, content_type = "text/event-stream"),
        (status = "default", body = Problem)))]
pub(super) async fn watch(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    if exchange.request.version() < Version::HTTP_11 {
        let detail = "a stream needs HTTP/1.1";
        return Err(Rejection::invalid_operation(detail).into());
    }
    exchange.access.require_valid_credentials().await?;
    let (Watch { subjects }, _room): (Watch, _) = body::read_json(exchange, payload).await?;
    let count = subjects.len();
    if !(1..=SUBJECT_COUNT_MAX).contains(&count) {
        let detail = format!("subjects: {count} are out of range; a stream has 1 to 16");
        return Err(Rejection::out_of_range(detail).into());
    }
    let Ok(permit) = Arc::clone(&exchange.site.streams).try_acquire_owned() else {
        let detail = format!(
            "all {} streams that `http.stream_count_max` allows are open; ask for the state again \
             later",
            exchange.site.config.stream_count_max
        );
        return Err(Rejection::server_busy(detail).into());
    };
    let mut opened = Vec::with_capacity(count);
    for form in subjects {
        opened.push(Subject::open(exchange, form).await?);
    }
    if let Some(room) = exchange.room_of(STREAM_BYTES).await? {
        exchange.hand_over(room, STREAM_BYTES, None);
    }
    let watching = Watching {
        site: Arc::clone(&exchange.site),
        access: exchange.access.clone(),
        connection: exchange.request.conn_data::<Rc<Connection>>().map(Rc::clone),
        subjects: opened,
        hasher: RandomState::new(),
        pending: Bytes::new(),
        spoke_at: tokio::time::Instant::now(),
        phase: Phase::Begin,
        _permit: permit,
    };
    let pieces = stream::unfold(watching, |mut watching| async move {
        let piece = watching.piece().await?;
        Some((Ok::<_, Infallible>(piece), watching))
    });
    Ok(HttpResponse::build(StatusCode::OK)
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(Box::pin(pieces)))
}

/// A watched subject.
struct Subject {
    source: Source,
    interval: Duration,
    due: tokio::time::Instant,
    /// The state that was sent; none before the first.
    sent: Option<Sent>,
}

enum Source {
    Question {
        path: String,
        form: Box<QuestionForm>,
    },
    Entity {
        path: String,
    },
    Tap(Tap),
    /// The subject has ended with an error.
    Ended,
}

/// Keys and hashes of the state that was sent last.
#[derive(Default)]
struct Sent {
    values: BTreeMap<String, u64>,
    /// Rows in their order.
    order: Vec<Box<str>>,
    rows: BTreeMap<Box<str>, u64>,
}

impl Sent {
    fn bytes(&self) -> usize {
        self.order.iter().map(|key| 2 * key.len() + ROW_BYTES).sum()
    }
}

/// A state as it is now, as JSON text.
struct State {
    /// Name of the rows; empty without rows.
    kind: String,
    values: BTreeMap<String, String>,
    rows: Vec<(Box<str>, String)>,
    is_truncated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Events,
    End,
}

impl Subject {
    /// Checks the rights to a subject, and opens its tap.
    async fn open(exchange: &Exchange, form: SubjectForm) -> Result<Self, Refusal> {
        let question = |path: String, form| Source::Question { path, form: Box::new(form) };
        let (source, interval) = match form {
            SubjectForm::Entities { query } => {
                (question(String::new(), QuestionForm::Entities(query)), INTERVAL)
            }
            SubjectForm::Clients { query } => {
                (question(String::new(), QuestionForm::Clients(query)), INTERVAL)
            }
            SubjectForm::Entity { path } => {
                exchange.entity(Action::Overview, &path).await?;
                (Source::Entity { path }, ASKING_INTERVAL)
            }
            SubjectForm::Locks { path, query } => {
                exchange.entity(Action::Inspect, &path).await?;
                (question(path, QuestionForm::Locks(query)), ASKING_INTERVAL)
            }
            SubjectForm::Sessions { path, query } => {
                exchange.entity(Action::Inspect, &path).await?;
                (question(path, QuestionForm::Sessions(query)), ASKING_INTERVAL)
            }
            SubjectForm::Timeline { path, query } => {
                if !path.is_empty() {
                    exchange.entity(Action::Inspect, &path).await?;
                }
                (question(path, QuestionForm::Timeline(query)), ASKING_INTERVAL)
            }
            SubjectForm::Tap { path } => (Source::Tap(exchange.access.tap(&path).await?), INTERVAL),
        };
        if let Source::Question { form, .. } = &source {
            form.to_question(exchange.site.broker.now())?;
        }
        Ok(Self { source, interval, due: tokio::time::Instant::now(), sent: None })
    }
}

/// An open stream.
struct Watching {
    site: Arc<Site>,
    access: Access,
    connection: Option<Rc<Connection>>,
    subjects: Vec<Subject>,
    hasher: RandomState,
    /// Bytes of an event that the socket has not taken.
    pending: Bytes,
    spoke_at: tokio::time::Instant,
    phase: Phase,
    _permit: OwnedSemaphorePermit,
}

/// Reason for which a wait ends.
enum Wake {
    Subject(usize),
    Silence,
    Stop,
}

impl Watching {
    /// Returns the next bytes; none at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        while self.pending.is_empty() {
            let event = match self.phase {
                Phase::Begin => {
                    self.phase = Phase::Events;
                    let version = env!("CARGO_PKG_VERSION");
                    Some(event("begin", &json!({ "nowUtc": self.now(), "version": version })))
                }
                Phase::Events => self.event().await,
                Phase::End => return None,
            };
            if let Some(event) = event {
                self.spoke_at = tokio::time::Instant::now();
                self.pending = event.into();
            }
        }
        Some(self.pending.split_to(self.pending.len().min(PIECE_BYTES_MAX)))
    }

    fn now(&self) -> Value {
        json!(Instant(self.site.broker.now()))
    }

    /// Waits for the next event; none if the state of the subject has not changed.
    async fn event(&mut self) -> Option<String> {
        match self.wake().await {
            Wake::Stop => {
                self.phase = Phase::End;
                None
            }
            Wake::Silence => Some(event("clock", &json!({ "nowUtc": self.now() }))),
            Wake::Subject(index) => {
                let read = self.read(index).await;
                if let Some(subject) = self.subjects.get_mut(index) {
                    subject.due = tokio::time::Instant::now() + subject.interval;
                }
                read.unwrap_or_else(|error| self.failed(index, &error))
            }
        }
    }

    /// Waits until a subject is due, nothing was sent for long, or the stream must end.
    async fn wake(&self) -> Wake {
        let active = self.subjects.iter().enumerate();
        let active = active.filter(|(_, subject)| !matches!(subject.source, Source::Ended));
        let next = active.min_by_key(|(_, subject)| subject.due);
        let silent_at = self.spoke_at + SILENCE;
        let (at, wake) = match next {
            Some((index, subject)) if subject.due <= silent_at => {
                (subject.due, Wake::Subject(index))
            }
            _ => (silent_at, Wake::Silence),
        };
        let waiting = self.connection.as_ref().map(|connection| connection.wait_for_message());
        let evicted = poll_fn(|context| match &waiting {
            Some(waiting) => waiting.poll_evicted(context),
            None => std::task::Poll::Pending,
        });
        tokio::select! {
            biased;
            _ = self.site.requests.stop_begun() => Wake::Stop,
            () = evicted => Wake::Stop,
            () = tokio::time::sleep_until(at) => wake,
        }
    }

    /// Reads a subject; returns an event if it has news.
    async fn read(&mut self, index: usize) -> Result<Option<String>, BrokerError> {
        let now = self.site.broker.now();
        let Some(subject) = self.subjects.get_mut(index) else { return Ok(None) };
        let (path, request) = match &mut subject.source {
            Source::Ended => return Ok(None),
            Source::Tap(tap) => {
                let page = tap.next(TimeSpan::ZERO).await?;
                if page.heads.is_empty() && page.omitted == 0 {
                    return Ok(None);
                }
                let view = FindingsView::from(Findings { at: now, found: Found::Tap(page) });
                let FindingsView::Tap(view) = view else { return Ok(None) };
                let mut view = serde_json::to_value(view).unwrap_or_default();
                view["subject"] = index.into();
                return Ok(Some(event("heads", &view)));
            }
            Source::Entity { path } => {
                let path = path.clone();
                let kind = self.access.entity(&path, Action::Overview).await?.kind();
                let request = match kind {
                    EntityKind::Queue => Management::Queue,
                    EntityKind::Topic => Management::Topic,
                    EntityKind::Subscription => Management::Subscription,
                };
                (path, request)
            }
            Source::Question { path, form } => {
                let question = form.to_question(now);
                let question = question.map_err(|reason| self.site.broker.refuse(reason, path))?;
                (path.clone(), Management::Inspect(Box::new(question)))
            }
        };
        let managed = if request.is_large() {
            // The turn ends before the stream waits again.
            let (managed, _turn) = self.access.turn_at(&path, request).await?.carry_out().await?;
            managed
        } else {
            self.access.manage(&path, request).await?
        };
        let sent = self.subjects.iter().enumerate().filter(|(other, _)| *other != index);
        let others: usize = sent.filter_map(|(_, it)| it.sent.as_ref()).map(Sent::bytes).sum();
        let state = State::of(managed, KEPT_BYTES_MAX.saturating_sub(others));
        let Some(subject) = self.subjects.get_mut(index) else { return Ok(None) };
        let (event, sent) = state.news(index, subject.sent.as_ref(), &self.hasher);
        subject.sent = Some(sent);
        Ok(event)
    }

    /// Ends a subject or the stream; a busy broker is asked again later.
    fn failed(&mut self, index: usize, error: &BrokerError) -> Option<String> {
        let told = json!({
            "subject": index,
            "code": error.condition().name(),
            "trackingId": error.tracking_id().to_string(),
        });
        match error.condition() {
            Condition::ServerBusy => None,
            Condition::Unauthorized => {
                self.phase = Phase::End;
                Some(event("end", &told))
            }
            _ => {
                if let Some(subject) = self.subjects.get_mut(index) {
                    subject.source = Source::Ended;
                    subject.sent = None;
                }
                Some(event("error", &told))
            }
        }
    }
}

/// Text of an event. JSON text has no line breaks.
fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

impl State {
    /// Takes an answer apart. Rows beyond the room of an event, or of kept keys, are left out.
    fn of(managed: Managed, kept_bytes_max: usize) -> Self {
        let mut state = Self {
            kind: String::new(),
            values: BTreeMap::new(),
            rows: Vec::new(),
            is_truncated: false,
        };
        let view = match managed {
            Managed::Findings(findings) => serde_json::to_value(FindingsView::from(*findings)),
            Managed::Queue(queue) => serde_json::to_value(QueueView::from(*queue)),
            Managed::Topic(topic) => serde_json::to_value(TopicView::from(*topic)),
            Managed::Subscription(one) => serde_json::to_value(SubscriptionView::from(*one)),
            _ => Ok(Value::Null),
        };
        let Ok(Value::Object(mut view)) = view else { return state };
        let named = (view.len() == 1).then(|| view.iter_mut().next()).flatten();
        if let Some((kind, Value::Object(page))) = named {
            state.kind = kind.clone();
            view = std::mem::take(page);
        }
        let rows = view.remove(&state.kind);
        for (name, value) in view {
            // The clock is in every event of its own.
            if name != "nowUtc" && name != "countedAtUtc" {
                state.values.insert(name, value.to_string());
            }
        }
        let Some(Value::Array(rows)) = rows else { return state };
        let (mut bytes, mut kept) = (0, 0);
        for row in rows {
            let (key, text) = (key_of(&row), row.to_string());
            bytes += text.len() + 2 * key.len() + 8;
            kept += 2 * key.len() + ROW_BYTES;
            if bytes > EVENT_BYTES_MAX || kept > kept_bytes_max {
                state.is_truncated = true;
                break;
            }
            state.rows.push((key.into(), text));
        }
        state
    }

    /// Returns the event that leads from the state that was sent to this one, and the keys to
    /// keep.
    fn news(
        self,
        index: usize,
        before: Option<&Sent>,
        hasher: &RandomState,
    ) -> (Option<String>, Sent) {
        let sent = Sent {
            values: self
                .values
                .iter()
                .map(|(name, text)| (name.clone(), hasher.hash_one(text)))
                .collect(),
            order: self.rows.iter().map(|(key, _)| key.clone()).collect(),
            rows: self
                .rows
                .iter()
                .map(|(key, text)| (key.clone(), hasher.hash_one(text)))
                .collect(),
        };
        let text = match before {
            None => Some(self.whole(index)),
            Some(before) => self.change(index, before, &sent),
        };
        (text, sent)
    }

    fn whole(&self, index: usize) -> String {
        let mut text = format!("event: state\ndata: {{\"subject\":{index},\"state\":{{");
        let mut parts: Vec<String> =
            self.values.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
        if !self.kind.is_empty() && self.has_rows() {
            let rows: Vec<&str> = self.rows.iter().map(|(_, row)| row.as_str()).collect();
            parts.push(format!("{}:[{}]", quoted(&self.kind), rows.join(",")));
        }
        text.push_str(&parts.join(","));
        text.push('}');
        if self.is_truncated {
            text.push_str(",\"truncated\":true");
        }
        text.push_str("}\n\n");
        text
    }

    /// Whether the state is a list, even if it is empty now.
    fn has_rows(&self) -> bool {
        matches!(self.kind.as_str(), "entities" | "clients" | "locks" | "sessions")
    }

    fn change(&self, index: usize, before: &Sent, now: &Sent) -> Option<String> {
        let mut set = Map::new();
        for name in before.values.keys().filter(|name| !now.values.contains_key(*name)) {
            set.insert(name.clone(), Value::Null);
        }
        let changed =
            now.values.iter().filter(|(name, hash)| before.values.get(*name) != Some(hash));
        let changed: Vec<&String> = changed.map(|(name, _)| name).collect();
        let rows: Vec<&(Box<str>, String)> =
            self.rows.iter().filter(|(key, _)| before.rows.get(key) != now.rows.get(key)).collect();
        let there: BTreeSet<&str> = now.rows.keys().map(|key| &**key).collect();
        let gone: Vec<&str> =
            before.order.iter().map(|key| &**key).filter(|key| !there.contains(key)).collect();
        let has_order = before.order != now.order;
        if set.is_empty() && changed.is_empty() && rows.is_empty() && gone.is_empty() && !has_order
        {
            return None;
        }
        let mut text = format!("event: change\ndata: {{\"subject\":{index}");
        let mut values: Vec<String> =
            set.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
        let changed = changed.into_iter().filter_map(|name| Some((name, self.values.get(name)?)));
        values.extend(changed.map(|(name, value)| format!("{}:{value}", quoted(name))));
        let rows: Vec<String> =
            rows.into_iter().map(|(key, row)| format!("{}:{row}", quoted(key))).collect();
        let keys = |keys: &[&str]| keys.iter().map(|key| quoted(key)).collect::<Vec<_>>().join(",");
        let mut part = |name: &str, open: char, inner: &str, close: char| {
            // Writing into a string cannot fail.
            write!(text, ",\"{name}\":{open}{inner}{close}").unwrap_or_default();
        };
        if !values.is_empty() {
            part("set", '{', &values.join(","), '}');
        }
        if !rows.is_empty() {
            part("rows", '{', &rows.join(","), '}');
        }
        if !gone.is_empty() {
            part("gone", '[', &keys(&gone), ']');
        }
        if has_order {
            let order: Vec<&str> = now.order.iter().map(|key| &**key).collect();
            part("order", '[', &keys(&order), ']');
        }
        if self.is_truncated {
            text.push_str(",\"truncated\":true");
        }
        text.push_str("}\n\n");
        Some(text)
    }
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Key of a row, unique in its list.
fn key_of(row: &Value) -> String {
    let text = |name: &str| match &row[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let keys = ["path", "clientId", "sessionId", "sequenceNumber"];
    keys.map(text).into_iter().find(|key| !key.is_empty()).unwrap_or_default()
}
