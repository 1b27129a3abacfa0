//! Questions: their selections, orders and positions.

use peeklock_core::command::SessionFilter;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    BODY_BYTES_MAX, ClientId, ClientQuery, EntityQuery, HeadOrder, HeadQuery, HeadStart, HeadState,
    HeadStates, LockOrder, LockQuery, Question, ROW_COUNT_DEFAULT, ROW_COUNT_MAX, SLOT_COUNT_MAX,
    SLOT_MAX, SLOT_MIN, SessionOrder, SessionQuery, TapId, TimelineOf, TimelineQuery,
};
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::{Deserialize, Serialize};

use super::audit::AuditQueryForm;
use super::checks::ChecksForm;
use super::filters::{ExplainForm, SamplesForm, WhatIfForm};
use super::job::JobQueryForm;
use super::journey::JourneyForm;
use super::search::SearchStepForm;
use super::series::SeriesForm;
use super::topology::TopologyForm;
use super::{
    ConditionName, EntityKindName, EntitySortName, HeadSortName, HeadStateName, LockSortName,
    Paged, SessionSortName, TimelineName, is_false,
};
use crate::text::Instant;

/// Length of a slot in seconds, if the question names none.
const SLOT_SECONDS_DEFAULT: u32 = 60;
/// Number of slots, if the question names none.
const SLOT_COUNT_DEFAULT: u16 = 60;

/// Question about an entity or the namespace, by its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QuestionForm {
    /// Lists messages without their bodies.
    Heads(HeadQueryForm),
    /// Lists locks.
    Locks(LockQueryForm),
    /// Lists sessions with their counts.
    Sessions(SessionQueryForm),
    /// Reads the state of a session.
    SessionState(SessionStateForm),
    /// Counts messages by instant.
    Timeline(TimelineQueryForm),
    /// Reads a part of a body.
    Body(BodyForm),
    /// Lists entities.
    Entities(EntityQueryForm),
    /// Lists clients.
    Clients(ClientQueryForm),
    /// Reads the messages that were accepted since the last page.
    Tap(TapForm),
    /// Searches messages page by page.
    Search(SearchStepForm),
    /// Reads the audit trail.
    Audit(AuditQueryForm),
    /// Reads values over time.
    Series(SeriesForm),
    /// Reads jobs.
    Jobs(JobQueryForm),
    /// Reads entities and their destinations.
    Topology(TopologyForm),
    /// Reads the findings of the last check.
    Checks(ChecksForm),
    /// Reads the journey of a message.
    Journey(JourneyForm),
    /// Reads the last published messages of a topic.
    Samples(SamplesForm),
    /// Explains all rules of a topic for one message.
    Explain(Box<ExplainForm>),
    /// Tries changes of the rules of a topic.
    WhatIf(Box<WhatIfForm>),
}

/// Selection and order of messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HeadQueryForm {
    /// Only messages in these states; by default all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<HeadStateName>,
    /// Order; by default by sequence number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<HeadSortName>,
    /// Whether the order is reversed.
    #[serde(skip_serializing_if = "is_false")]
    pub descending: bool,
    /// First sequence number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// First instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_utc: Option<Instant>,
    /// Only messages of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Maximum number of messages, 1 to 500; by default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Position: the `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Order and position of locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LockQueryForm {
    /// Order; by default by end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<LockSortName>,
    /// Maximum number of locks, 1 to 500; by default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
    /// Position: the `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Selection and order of sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SessionQueryForm {
    /// Order; by default by session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<SessionSortName>,
    /// Whether the order is reversed.
    #[serde(skip_serializing_if = "is_false")]
    pub descending: bool,
    /// Only sessions with active messages.
    #[serde(skip_serializing_if = "is_false")]
    pub with_active_messages: bool,
    /// Only sessions whose state was set after this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_set_after_utc: Option<Instant>,
    /// Maximum number of sessions, 1 to 500; by default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
    /// Position: the `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A part of the state of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionStateForm {
    /// The session.
    pub session_id: String,
    /// First byte.
    #[serde(default)]
    pub from: u64,
    /// Maximum number of bytes, at most 4 MiB; also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// Slots of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TimelineQueryForm {
    /// Counted instants; by default scheduled ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<TimelineName>,
    /// Start of the first slot; by default now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_utc: Option<Instant>,
    /// Length of a slot in seconds, 10 to 86,400; by default 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_seconds: Option<u32>,
    /// Number of slots, 1 to 240; by default 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
}

/// A part of a body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BodyForm {
    /// The message.
    pub sequence_number: u64,
    /// First byte.
    #[serde(default)]
    pub from: u64,
    /// Maximum number of bytes, at most 4 MiB; also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// Selection and order of entities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EntityQueryForm {
    /// Part of the path; the case of ASCII letters is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only entities of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<EntityKindName>,
    /// Conditions, all of which must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionName>,
    /// Order; by default by path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<EntitySortName>,
    /// Whether the order is reversed.
    #[serde(skip_serializing_if = "is_false")]
    pub descending: bool,
    /// Maximum number of entities, 1 to 500; by default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
    /// Position: the `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Selection of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClientQueryForm {
    /// Only clients of this transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Only clients with a link to this entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Part of the name; the case of ASCII letters is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Maximum number of clients, 1 to 500; by default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
    /// Position: the `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A tap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TapForm {
    /// The open tap; without it, a tap is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tap: Option<u64>,
}

impl QuestionForm {
    /// Converts to the question of the core. `now` is the broker's clock.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for a number out of its range, `ArgumentError` for a position of
    /// another list and for values that exclude each other.
    pub fn to_question(&self, now: Timestamp) -> Result<Question, Rejection> {
        Ok(match self {
            Self::Heads(form) => Question::Heads(form.to_query()?),
            Self::Locks(form) => Question::Locks(form.to_query()?),
            Self::Sessions(form) => Question::Sessions(form.to_query()?),
            Self::SessionState(SessionStateForm { session_id, from, length }) => {
                let (session, from) = (session_id.as_str().into(), *from);
                Question::SessionState { session, from, length: part_length(*length)? }
            }
            Self::Timeline(form) => Question::Timeline(form.to_query(now)?),
            Self::Body(BodyForm { sequence_number, from, length }) => {
                let (sequence, from) = (SequenceNumber(*sequence_number), *from);
                Question::Body { sequence, from, length: part_length(*length)? }
            }
            Self::Entities(form) => Question::Entities(form.to_query()?),
            Self::Clients(form) => Question::Clients(form.to_query()?),
            Self::Tap(TapForm { tap }) => Question::Tap { tap: tap.map(TapId) },
            Self::Series(form) => Question::Series(form.to_query()?),
            Self::Search(form) => Question::Search(form.to_step(now)?),
            Self::Audit(form) => Question::Audit(form.to_query(rows("top", form.top)?)?),
            Self::Jobs(form) => Question::Jobs(form.to_query()?),
            Self::Topology(form) => Question::Topology(form.to_query()?),
            Self::Checks(form) => Question::Checks(form.to_query()),
            Self::Journey(form) => Question::Journey(form.to_query()?),
            Self::Samples(form) => Question::Samples(form.to_query()?),
            Self::Explain(form) => Question::Explain(Box::new(form.to_query()?)),
            Self::WhatIf(form) => Question::WhatIf(Box::new(form.to_query()?)),
        })
    }
}

/// Returns the number of bytes of a part.
fn part_length(length: Option<u64>) -> Result<u64, Rejection> {
    let length = length.unwrap_or(BODY_BYTES_MAX);
    if length <= BODY_BYTES_MAX {
        return Ok(length);
    }
    let detail = format!("length is {length}; an answer has at most {BODY_BYTES_MAX} bytes");
    Err(Rejection::out_of_range(detail))
}

/// Returns the number of rows of a page; `name` is its property.
pub(super) fn rows(name: &str, count: Option<u32>) -> Result<u32, Rejection> {
    let count = count.unwrap_or(ROW_COUNT_DEFAULT);
    if (1..=ROW_COUNT_MAX).contains(&count) {
        return Ok(count);
    }
    Err(Rejection::out_of_range(format!("{name} is {count}; it must be 1 to {ROW_COUNT_MAX}")))
}

impl HeadQueryForm {
    fn to_query(&self) -> Result<HeadQuery, Rejection> {
        let start = match (self.from, self.from_utc, &self.after) {
            (None, None, None) => HeadStart::End,
            (Some(number), None, None) => HeadStart::Number(SequenceNumber(number)),
            (None, Some(Instant(at)), None) => HeadStart::Instant(at),
            (None, None, Some(text)) => HeadStart::After(Paged::Heads.parse_cursor(text)?),
            _ => return Err(Rejection::argument("give one of from, fromUtc and after")),
        };
        let order = self.sort.map_or(HeadOrder::Number, Into::into);
        if order != HeadOrder::Number && matches!(start, HeadStart::Number(_)) {
            let detail = "from is a sequence number; in the order of instants use fromUtc";
            return Err(Rejection::argument(detail));
        }
        let states = self.states.iter().copied().map(HeadState::from).collect::<HeadStates>();
        Ok(HeadQuery {
            session: self.session_id.as_deref().map(Into::into),
            states: if states.is_empty() { HeadStates::ALL } else { states },
            order,
            is_descending: self.descending,
            start,
            count_max: rows("count", self.count)?,
        })
    }
}

impl LockQueryForm {
    fn to_query(&self) -> Result<LockQuery, Rejection> {
        let after = self.after.as_deref().map(|text| Paged::Locks.parse_cursor(text));
        Ok(LockQuery {
            order: self.sort.map_or(LockOrder::End, Into::into),
            from: 0,
            after: after.transpose()?,
            count_max: rows("top", self.top)?,
        })
    }
}

impl SessionQueryForm {
    fn to_query(&self) -> Result<SessionQuery, Rejection> {
        let filter = match (self.with_active_messages, self.state_set_after_utc) {
            (false, None) => SessionFilter::All,
            (true, None) => SessionFilter::WithActiveMessages,
            (false, Some(Instant(at))) => SessionFilter::StateSetAfter(at),
            (true, Some(_)) => {
                let detail = "give withActiveMessages or stateSetAfterUtc, not both";
                return Err(Rejection::argument(detail));
            }
        };
        let after = self.after.as_deref().map(|text| Paged::Sessions.parse_key(text));
        Ok(SessionQuery {
            order: self.sort.map_or(SessionOrder::Name, Into::into),
            is_descending: self.descending,
            filter,
            from: None,
            beyond: after.transpose()?,
            count_max: rows("top", self.top)?,
        })
    }
}

impl TimelineQueryForm {
    fn to_query(&self, now: Timestamp) -> Result<TimelineQuery, Rejection> {
        let seconds = self.slot_seconds.unwrap_or(SLOT_SECONDS_DEFAULT);
        let slot = TimeSpan::from_seconds(seconds.into());
        if slot < SLOT_MIN || slot > SLOT_MAX {
            let detail = format!("slotSeconds is {seconds}; it must be 10 to 86,400");
            return Err(Rejection::out_of_range(detail));
        }
        let slot_count = self.slots.unwrap_or(SLOT_COUNT_DEFAULT);
        if !(1..=SLOT_COUNT_MAX).contains(&slot_count) {
            let detail = format!("slots is {slot_count}; it must be 1 to {SLOT_COUNT_MAX}");
            return Err(Rejection::out_of_range(detail));
        }
        Ok(TimelineQuery {
            of: self.of.map_or(TimelineOf::Scheduled, Into::into),
            from: self.from_utc.map_or(now, |Instant(at)| at),
            slot,
            slot_count,
            after: None,
        })
    }
}

impl EntityQueryForm {
    fn to_query(&self) -> Result<EntityQuery, Rejection> {
        let after = self.after.as_deref().map(|text| Paged::Entities.parse_key(text));
        let mut conditions: Vec<_> = Vec::new();
        for condition in self.conditions.iter().copied().map(Into::into) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        Ok(EntityQuery {
            path: self.path.as_deref().map(Into::into),
            kind: self.kind.map(Into::into),
            conditions,
            order: self.sort.unwrap_or(EntitySortName::Path).into(),
            is_descending: self.descending,
            after: after.transpose()?,
            count_max: rows("top", self.top)?,
        })
    }
}

impl ClientQueryForm {
    fn to_query(&self) -> Result<ClientQuery, Rejection> {
        let after = self.after.as_deref().map(|text| Paged::Clients.parse(text)).transpose()?;
        Ok(ClientQuery {
            transport: self.transport.as_deref().map(Into::into),
            path: self.path.as_deref().map(Into::into),
            name: self.name.as_deref().map(Into::into),
            after: after.map(|(id, _)| ClientId(id.cast_unsigned())),
            count_max: rows("top", self.top)?,
        })
    }
}

/// The form of a question that a client asks.
impl From<&Question> for QuestionForm {
    fn from(question: &Question) -> Self {
        match question {
            Question::Heads(query) => Self::Heads(query.into()),
            Question::Locks(LockQuery { order, after, count_max, .. }) => {
                Self::Locks(LockQueryForm {
                    sort: Some((*order).into()),
                    top: Some(*count_max),
                    after: after.map(|cursor| Paged::Locks.cursor_text(cursor)),
                })
            }
            Question::Sessions(query) => Self::Sessions(query.into()),
            Question::SessionState { session, from, length } => {
                Self::SessionState(SessionStateForm {
                    session_id: session.to_string(),
                    from: *from,
                    length: Some(*length),
                })
            }
            Question::Timeline(query) => Self::Timeline(query.into()),
            Question::Body { sequence, from, length } => Self::Body(BodyForm {
                sequence_number: sequence.0,
                from: *from,
                length: Some(*length),
            }),
            Question::Entities(query) => Self::Entities(query.into()),
            Question::Clients(query) => Self::Clients(query.into()),
            Question::Tap { tap } => Self::Tap(TapForm { tap: tap.map(|TapId(tap)| tap) }),
            Question::Series(query) => Self::Series(query.into()),
            Question::Search(step) => Self::Search(step.into()),
            Question::Audit(query) => Self::Audit(query.into()),
            Question::Jobs(query) => Self::Jobs(query.into()),
            Question::Topology(query) => Self::Topology(query.into()),
            Question::Checks(query) => Self::Checks(query.into()),
            Question::Journey(query) => Self::Journey(query.into()),
            Question::Samples(query) => Self::Samples(query.into()),
            Question::Explain(query) => Self::Explain(Box::new((&**query).into())),
            Question::WhatIf(query) => Self::WhatIf(Box::new((&**query).into())),
        }
    }
}

/// Names of states; none for all.
pub(super) fn state_names(states: HeadStates) -> Vec<HeadStateName> {
    let named = HeadState::ALL.into_iter().filter(|state| states.contains(*state));
    if states == HeadStates::ALL { Vec::new() } else { named.map(Into::into).collect() }
}

impl From<&HeadQuery> for HeadQueryForm {
    fn from(query: &HeadQuery) -> Self {
        let (mut from, mut from_utc, mut after) = (None, None, None);
        match query.start {
            HeadStart::End => {}
            HeadStart::Number(SequenceNumber(number)) => from = Some(number),
            HeadStart::Instant(at) => from_utc = Some(Instant(at)),
            HeadStart::After(cursor) => after = Some(Paged::Heads.cursor_text(cursor)),
        }
        Self {
            states: state_names(query.states),
            sort: Some(query.order.into()),
            descending: query.is_descending,
            from,
            from_utc,
            session_id: query.session.as_deref().map(str::to_owned),
            count: Some(query.count_max),
            after,
        }
    }
}

impl From<&SessionQuery> for SessionQueryForm {
    fn from(query: &SessionQuery) -> Self {
        let (with_active_messages, state_set_after_utc) = match query.filter {
            SessionFilter::All => (false, None),
            SessionFilter::WithActiveMessages => (true, None),
            SessionFilter::StateSetAfter(at) => (false, Some(Instant(at))),
        };
        Self {
            sort: Some(query.order.into()),
            descending: query.is_descending,
            with_active_messages,
            state_set_after_utc,
            top: Some(query.count_max),
            after: query.beyond.as_ref().map(|key| Paged::Sessions.key_text(key)),
        }
    }
}

impl From<&TimelineQuery> for TimelineQueryForm {
    fn from(query: &TimelineQuery) -> Self {
        let seconds = query.slot.as_ms() / 1_000;
        Self {
            of: Some(query.of.into()),
            from_utc: Some(Instant(query.from)),
            slot_seconds: Some(u32::try_from(seconds).unwrap_or(u32::MAX)),
            slots: Some(query.slot_count),
        }
    }
}

impl From<&EntityQuery> for EntityQueryForm {
    fn from(query: &EntityQuery) -> Self {
        Self {
            path: query.path.as_deref().map(str::to_owned),
            kind: query.kind.map(Into::into),
            conditions: query.conditions.iter().copied().map(Into::into).collect(),
            sort: Some(query.order.into()),
            descending: query.is_descending,
            top: Some(query.count_max),
            after: query.after.as_ref().map(|key| Paged::Entities.key_text(key)),
        }
    }
}

impl From<&ClientQuery> for ClientQueryForm {
    fn from(query: &ClientQuery) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        Self {
            transport: text(&query.transport),
            path: text(&query.path),
            name: text(&query.name),
            top: Some(query.count_max),
            after: query.after.map(|ClientId(id)| Paged::Clients.text(id.cast_signed(), &[])),
        }
    }
}
