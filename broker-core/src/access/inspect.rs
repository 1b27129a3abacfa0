//! Answers the questions of operators (CON-01 to CON-04, CON-24 to CON-28).
//!
//! A question about an entity becomes a sequence of bounded commands, until the page is full, the
//! state is examined, or the bounds of a request are reached; then the page is short and names the
//! position of the next one. Holders of locks are looked up outside of the entities.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use peeklock_model::inspect::{
    Cursor, Excerpt, HeadFacts, HeadOrder, HeadQuery, HeadStart, HeadStates, Inquiry, LockQuery,
    LockRow, RowKey, SessionOrder, SessionQuery, SessionRow, TimelineQuery,
};

use super::Access;
use crate::audited::end_of;
use crate::broker::{Broker, Entity};
use crate::command::{Command, MessageReadError, Outcome, ReceivedMessage};
use crate::content_ref::ContentRef;
use crate::contract::action::Action;
use crate::error::{BrokerError, Rejection};
use crate::findings::{
    BODY_BYTES_MAX, BodyPart, Findings, Found, Head, HeadPage, Holder, LockPage, Question,
    SessionPage, Timeline,
};
use crate::heads::BodyReader;
use crate::ids::{ReceiverId, SequenceNumber};
use crate::survey::ReadableKeys;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of commands for one answer.
const COMMAND_COUNT_MAX: usize = 128;
/// Time after which a page is answered as it is.
const PAGE_TIME: TimeSpan = TimeSpan::from_ms(250);
/// Maximum bytes that are read from the store for a page of heads, unless the first head needs
/// more.
const PAGE_BYTES_MAX: u64 = 8 << 20;
/// Maximum bytes that are read from the store for one head: it is in two checked parts of a long
/// content at most.
const HEAD_BYTES_MAX: u64 = 512 << 10;
/// Number of heads that are decoded between two yields.
const HEADS_AT_ONCE: usize = 32;

impl Access {
    /// Answers a question about the entity of a path, or about the namespace. The rights were
    /// checked before.
    pub(super) async fn find(
        &self,
        path: &str,
        question: Question,
        readable: &ReadableKeys,
    ) -> Result<Findings, BrokerError> {
        let found = match question {
            Question::Heads(query) => Found::Heads(self.head_page(path, query).await?),
            Question::Locks(query) => Found::Locks(self.lock_page(path, query).await?),
            Question::Sessions(query) => Found::Sessions(self.session_page(path, query).await?),
            Question::SessionState { session, from, length } => {
                let state = self.session_state(path, &session).await?;
                Found::SessionState(match state {
                    Some(state) => Some(self.part(path, state, (from, length)).await?),
                    None => None,
                })
            }
            Question::Timeline(query) if !path.is_empty() => {
                Found::Timeline(self.timeline(path, query).await?)
            }
            Question::Body { sequence, from, length } => {
                let body = self.body(path, sequence).await?;
                Found::Body(self.part(path, body, (from, length)).await?)
            }
            Question::Timeline(query) => {
                Found::Timeline(self.namespace_timeline(query, readable).await?)
            }
            Question::Entities(query) => Found::Entities(self.entity_page(&query, readable).await),
            Question::Clients(query) => Found::Clients(self.client_page(&query, readable).await),
            Question::Tap { tap } => Found::Tap(self.tap_page(path, tap).await?),
            Question::Series(query) => Found::Series(self.series(path, &query)?),
            Question::Search(step) => Found::Search(self.search_page(path, step, readable).await?),
            Question::Audit(query) => Found::Audit(self.audit_page(query).await?),
            Question::Jobs(query) => self.find_jobs(query, readable).await?,
            Question::Topology(query) => Found::Topology(self.topology(&query, readable).await?),
            Question::Checks(query) => Found::Checks(self.checks(&query, readable).await?),
            Question::Journey(query) => Found::Journey(self.journey(path, &query, readable).await?),
            Question::Samples(query) => Found::Samples(self.topic_samples(path, query).await?),
            Question::Explain(query) => {
                let explained = self.explain_topic(path, *query, readable).await?;
                Found::Explanation(Box::new(explained))
            }
            Question::WhatIf(query) => Found::WhatIf(self.what_if(path, &query, readable).await?),
        };
        Ok(Findings { at: self.broker.now(), found })
    }

    /// Returns a reader of the body of a message, for downloads (CON-03). Reading changes nothing.
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`, `MessageNotFound`.
    pub async fn body(
        &self,
        path: &str,
        sequence: SequenceNumber,
    ) -> Result<BodyReader, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let audited =
            self.audit_question(path, &Question::Body { sequence, from: 0, length: 0 }).await?;
        let body = self.read_body(path, &entity, sequence).await;
        audited.end_with(end_of(&body)).await;
        body
    }

    async fn read_body(
        &self,
        path: &str,
        entity: &Entity,
        sequence: SequenceNumber,
    ) -> Result<BodyReader, BrokerError> {
        let head = self.find_head(entity, sequence).await?;
        let Some(HeadFacts { message, header_size, .. }) = head else {
            return Err(self.broker.refuse(Rejection::message_not_found(sequence), path));
        };
        message.body(header_size).await.map_err(|error| self.unreadable(path, &error))
    }

    /// Finds a message by its number.
    pub(super) async fn find_head(
        &self,
        entity: &Entity,
        sequence: SequenceNumber,
    ) -> Result<Option<HeadFacts<ReceivedMessage>>, BrokerError> {
        let query = HeadQuery {
            session: None,
            states: HeadStates::ALL,
            order: HeadOrder::Number,
            is_descending: false,
            start: HeadStart::Number(sequence),
            count_max: 1,
        };
        let Excerpt::Heads { heads, .. } = self.excerpt(entity, Inquiry::Heads(query)).await?
        else {
            return Err(entity.refuse(unexpected()));
        };
        Ok(heads.into_iter().find(|head| head.message.facts.sequence == sequence))
    }

    /// Returns a reader of the state of a session, if it has one. Reading changes nothing (CON-27).
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`, `InvalidOperation` without sessions.
    pub async fn session_state(
        &self,
        path: &str,
        session: &str,
    ) -> Result<Option<BodyReader>, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let question = Question::SessionState { session: session.into(), from: 0, length: 0 };
        let audited = self.audit_question(path, &question).await?;
        let state = self.read_session_state(path, &entity, session).await;
        audited.end_with(end_of(&state)).await;
        state
    }

    async fn read_session_state(
        &self,
        path: &str,
        entity: &Entity,
        session: &str,
    ) -> Result<Option<BodyReader>, BrokerError> {
        let inquiry = Inquiry::SessionState { session: session.into() };
        let Excerpt::SessionState(state) = self.excerpt(entity, inquiry).await? else {
            return Err(self.broker.refuse(unexpected(), path));
        };
        let Some(state) = state else { return Ok(None) };
        let reader = BodyReader::of_content(state).await;
        reader.map(Some).map_err(|error| self.unreadable(path, &error))
    }

    pub(super) async fn head_page(
        &self,
        path: &str,
        mut query: HeadQuery,
    ) -> Result<HeadPage, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let mut page = HeadPage { heads: Vec::new(), examined: 0, next: None };
        let mut holders = Holders::of(&self.broker);
        let mut bounds = Bounds::begin(&self.broker);
        let mut bytes = 0;
        loop {
            let excerpt = self.excerpt(&entity, Inquiry::Heads(query.clone())).await?;
            let Excerpt::Heads { heads, next, examined } = excerpt else {
                return Err(self.broker.refuse(unexpected(), path));
            };
            page.examined += examined;
            query.count_max = query.count_max.saturating_sub(count(heads.len()));
            for facts in heads {
                bytes += head_bytes(&facts.message);
                if bytes > PAGE_BYTES_MAX && !page.heads.is_empty() {
                    page.next = page.heads.last().map(|last| position(query.order, last));
                    return Ok(page);
                }
                let facts = facts.with_holder(|receiver| holders.get(receiver));
                page.heads.push(read_head(facts).await);
                if page.heads.len().is_multiple_of(HEADS_AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
            let Some(next) = next else { return Ok(page) };
            if query.count_max == 0 || bounds.are_reached() {
                page.next = Some(next);
                return Ok(page);
            }
            query.start = HeadStart::After(next);
        }
    }

    /// Returns a page of locks. All locks are examined, and the first rows of each excerpt are
    /// merged.
    async fn lock_page(&self, path: &str, mut query: LockQuery) -> Result<LockPage, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let (order, wanted) = (query.order, query.count_max as usize);
        let mut locks: Vec<LockRow> = Vec::new();
        let mut bounds = Bounds::begin(&self.broker);
        let mut total = 0;
        loop {
            let excerpt = self.excerpt(&entity, Inquiry::Locks(query)).await?;
            let Excerpt::Locks { locks: rows, next, count } = excerpt else {
                return Err(self.broker.refuse(unexpected(), path));
            };
            total += count;
            locks.extend(rows);
            locks.sort_by_key(|row| row.key(order));
            locks.truncate(wanted);
            let Some(next) = next else { break };
            if bounds.is_last_command() {
                let detail = "there are too many locks to sort them; try again later";
                return Err(self.broker.refuse(Rejection::server_busy(detail), path));
            }
            query.from = next;
        }
        let next = locks.last().filter(|_| locks.len() == wanted).map(|last| last.key(order));
        let mut holders = Holders::of(&self.broker);
        let locks = locks.into_iter().map(|row| row.with_holder(|receiver| holders.get(receiver)));
        Ok(LockPage { locks: locks.collect(), total, next })
    }

    /// Returns a page of sessions. In the order of names it is made like other pages. In any other
    /// order all sessions are examined, and the first rows of each excerpt are merged.
    async fn session_page(
        &self,
        path: &str,
        mut query: SessionQuery,
    ) -> Result<SessionPage, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let is_by_name = query.order == SessionOrder::Name && !query.is_descending;
        let (order, wanted) = (query.order, query.count_max as usize);
        query.from = query.beyond.as_ref().filter(|_| is_by_name).map(|last| (*last.name).into());
        let mut sessions: Vec<SessionRow> = Vec::new();
        let mut bounds = Bounds::begin(&self.broker);
        let (total, next) = loop {
            let excerpt = self.excerpt(&entity, Inquiry::Sessions(query.clone())).await?;
            let Excerpt::Sessions { rows, next, count: total } = excerpt else {
                return Err(self.broker.refuse(unexpected(), path));
            };
            sessions.extend(rows);
            if is_by_name {
                query.count_max = count(wanted.saturating_sub(sessions.len()));
            } else {
                sessions.sort_by_cached_key(|row| row.key(order));
                if query.is_descending {
                    sessions.reverse();
                }
                sessions.truncate(wanted);
            }
            let Some(next) = next else {
                let is_full = !is_by_name && sessions.len() == wanted;
                break (total, sessions.last().filter(|_| is_full).map(|last| last.key(order)));
            };
            if is_by_name && (query.count_max == 0 || bounds.are_reached()) {
                break (total, Some(RowKey { value: 0, name: next.into() }));
            }
            if !is_by_name && bounds.is_last_command() {
                let detail = "there are too many sessions to sort them; list them by name";
                return Err(self.broker.refuse(Rejection::invalid_operation(detail), path));
            }
            query.from = Some(next);
        };
        let mut holders = Holders::of(&self.broker);
        let sessions =
            sessions.into_iter().map(|row| row.with_holder(|receiver| holders.get(receiver)));
        Ok(SessionPage { sessions: sessions.collect(), total, next })
    }

    pub(super) async fn timeline(
        &self,
        path: &str,
        mut query: TimelineQuery,
    ) -> Result<Timeline, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        let counts = vec![0; usize::from(query.slot_count)];
        let TimelineQuery { from, slot, .. } = query;
        let mut timeline =
            Timeline { from, slot, counts, before: 0, later: 0, omitted_entities: 0 };
        for _ in 0..COMMAND_COUNT_MAX {
            let excerpt = self.excerpt(&entity, Inquiry::Timeline(query)).await?;
            let Excerpt::Timeline { counts, before, later, next } = excerpt else {
                return Err(self.broker.refuse(unexpected(), path));
            };
            timeline.before += before;
            timeline.later += later;
            for (sum, count) in timeline.counts.iter_mut().zip(counts) {
                *sum += count;
            }
            if next.is_none() {
                return Ok(timeline);
            }
            query.after = next;
        }
        let detail = "there are too many messages to count them by slot; ask for fewer slots";
        Err(self.broker.refuse(Rejection::server_busy(detail), path))
    }

    /// Reads a part of a body or session state.
    async fn part(
        &self,
        path: &str,
        mut body: BodyReader,
        (from, length): (u64, u64),
    ) -> Result<BodyPart, BrokerError> {
        let length = length.min(BODY_BYTES_MAX).min(body.length().saturating_sub(from));
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        let failed = |error: MessageReadError| self.unreadable(path, &error);
        let mut bytes = BytesMut::with_capacity(wanted);
        body.skip_to(from).await.map_err(failed)?;
        while bytes.len() < wanted {
            let Some(piece) = body.next().await.map_err(failed)? else { break };
            let end = piece.len().min(wanted - bytes.len());
            bytes.extend_from_slice(piece.get(..end).unwrap_or_default());
        }
        let bytes = bytes.freeze();
        Ok(BodyPart { kind: body.kind(), length: body.length(), from, bytes })
    }

    fn unreadable(&self, path: &str, error: &MessageReadError) -> BrokerError {
        tracing::error!(path, %error, "content cannot be read");
        self.broker.refuse(error.refusal("the stored content"), path)
    }

    /// Sends an inquiry to an entity, with room from the budget of management.
    async fn excerpt(
        &self,
        entity: &Entity,
        inquiry: Inquiry,
    ) -> Result<Excerpt<ReceivedMessage, ContentRef>, BrokerError> {
        match entity.manage(Command::Inspect(inquiry)).await? {
            Outcome::Inspected(excerpt) => Ok(*excerpt),
            _ => Err(entity.refuse(unexpected())),
        }
    }
}

/// Bounds of the commands for an answer.
struct Bounds<'b> {
    broker: &'b Broker,
    until: Timestamp,
    commands: usize,
}

impl<'b> Bounds<'b> {
    fn begin(broker: &'b Broker) -> Self {
        Self { broker, until: broker.now().plus(PAGE_TIME), commands: 0 }
    }

    /// Counts a command, and returns whether it was the last one.
    const fn is_last_command(&mut self) -> bool {
        self.commands += 1;
        self.commands >= COMMAND_COUNT_MAX
    }

    /// Counts a command, and returns whether it or the time was the last.
    fn are_reached(&mut self) -> bool {
        self.is_last_command() || self.broker.now() >= self.until
    }
}

/// Holders of the locks of a page, each looked up once.
pub(super) struct Holders<'b> {
    broker: &'b Broker,
    known: HashMap<ReceiverId, Option<Holder>>,
}

impl<'b> Holders<'b> {
    pub(super) fn of(broker: &'b Broker) -> Self {
        Self { broker, known: HashMap::new() }
    }

    pub(super) fn get(&mut self, receiver: ReceiverId) -> Option<Holder> {
        let known = self.known.entry(receiver);
        known.or_insert_with(|| self.broker.holder(receiver).map(Arc::new)).clone()
    }
}

/// Reads the head of a message.
pub(super) async fn read_head(facts: HeadFacts<ReceivedMessage, Holder>) -> Head {
    let content = facts.message.head(facts.header_size).await;
    let content = logged(content, facts.message.facts.sequence);
    Head { facts: facts.with_message(|message| message.facts), content }
}

/// Returns the content of a message, or logs that it cannot be read.
pub(super) fn logged<T>(
    content: Result<T, MessageReadError>,
    SequenceNumber(sequence_number): SequenceNumber,
) -> Option<T> {
    let log = |error: &_| tracing::error!(sequence_number, %error, "message cannot be read");
    content.inspect_err(log).ok()
}

/// Upper bound on the bytes that the store reads for a head.
fn head_bytes(message: &ReceivedMessage) -> u64 {
    let overlays = message.overlays.iter().map(ContentRef::length);
    message.content.length().min(HEAD_BYTES_MAX) + overlays.sum::<u64>()
}

/// Position of a head in its list.
fn position(order: HeadOrder, head: &Head) -> Cursor {
    let at = match order {
        HeadOrder::Number => Timestamp::NONE,
        HeadOrder::ScheduledAt => head.facts.message.enqueued_at,
        HeadOrder::ExpiresAt => head.facts.expires_at,
    };
    Cursor { at, sequence: head.facts.message.sequence }
}

fn count(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

fn unexpected() -> Rejection {
    Rejection::internal("unexpected answer to an inquiry")
}
