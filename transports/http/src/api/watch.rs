//! A stream of everything that a page watches (CON-33): first a whole state for each subject, then
//! differences.
//!
//! The stream is pulled. The framework asks for the next bytes when the socket has room; only then
//! the subject that has waited longest is read and compared with the state that was sent last. So a
//! slow reader gets fewer and later values, and nothing queues up. Of a state that was sent, the
//! stream keeps the keys of its rows and hashes.

mod state;
#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, Version, header};
use actix_web::web::{self, Bytes};
use futures_util::stream;
use peeklock_core::clients::ClientGuard;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::inspect::{EntityOrder, EntityQuery, Findings, Found, Question};
use peeklock_core::management::Management;
use peeklock_core::time::TimeSpan;
use peeklock_core::{Access, Tap};
use peeklock_json::{
    ClientQueryForm, EntityQueryForm, FindingsView, Instant, LockQueryForm, QuestionForm,
    SessionQueryForm, TimelineQueryForm,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{OpenApi, ToSchema};

use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::site::Site;
use crate::socket::Connection;

use self::state::{KEPT_BYTES_MAX, STATE_BYTES_MAX, Sent, State};

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
/// Maximum bytes that the stream hands to the socket at once.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Memory of a stream: an event, kept keys, and a piece in the socket's buffer (CON-33).
const STREAM_BYTES: usize = 256 << 10;

const _: () = assert!(
    STATE_BYTES_MAX * 4 / 3 + KEPT_BYTES_MAX + PIECE_BYTES_MAX <= STREAM_BYTES,
    "a stream holds at most 256 KiB (CON-33)"
);

/// Question whose answer has the sums over all entities, with as few rows as possible.
const ONE_ENTITY: Question = Question::Entities(EntityQuery {
    path: None,
    kind: None,
    conditions: Vec::new(),
    order: EntityOrder::Path,
    is_descending: false,
    after: None,
    count_max: 1,
});

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
    /// Sums over the entities that you may read.
    Totals,
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
        client: exchange.request.conn_data::<Rc<ClientGuard>>().map(Rc::clone),
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
    Totals,
    Entity {
        path: String,
    },
    Tap(Tap),
    /// The subject has ended with an error.
    Ended,
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
            SubjectForm::Totals => (Source::Totals, INTERVAL),
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
    client: Option<Rc<ClientGuard>>,
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
        let closed = async {
            match &self.client {
                Some(client) => client.closed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.site.requests.stop_begun() => Wake::Stop,
            () = closed => Wake::Stop,
            () = evicted => Wake::Stop,
            () = tokio::time::sleep_until(at) => wake,
        }
    }

    /// Reads a subject; returns an event if it has news.
    async fn read(&mut self, index: usize) -> Result<Option<String>, BrokerError> {
        let now = self.site.broker.now();
        let Some(subject) = self.subjects.get_mut(index) else { return Ok(None) };
        let is_of_totals = matches!(subject.source, Source::Totals);
        let (path, request) = match &mut subject.source {
            Source::Ended => return Ok(None),
            Source::Totals => (String::new(), Management::Inspect(Box::new(ONE_ENTITY))),
            Source::Tap(tap) => {
                let page = tap.next(TimeSpan::ZERO).await?;
                if page.heads.is_empty() && page.omitted == 0 {
                    return Ok(None);
                }
                let view = FindingsView::from(Findings { at: now, found: Found::Tap(page) });
                let FindingsView::Tap(view) = view else { return Ok(None) };
                let mut view = serde_json::to_value(view).unwrap_or_default();
                omit_heads(&mut view, STATE_BYTES_MAX);
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
        let state = match is_of_totals {
            true => State::of_totals(managed),
            false => State::of(managed, KEPT_BYTES_MAX.saturating_sub(others)),
        };
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
pub(super) fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Leaves out heads of a tap beyond the bytes of an event, and counts them as not shown.
fn omit_heads(page: &mut Value, bytes_max: usize) {
    let Some(heads) = page["heads"].as_array_mut() else { return };
    let sizes = heads.iter().map(|head| head.to_string().len() + 1);
    let sums = sizes.scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    let shown = sums.take_while(|sum| *sum <= bytes_max).count();
    let omitted = heads.len() - shown;
    heads.truncate(shown);
    page["omitted"] = (page["omitted"].as_u64().unwrap_or_default() + omitted as u64).into();
}
