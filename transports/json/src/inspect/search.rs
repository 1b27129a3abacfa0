//! Searches and their pages, and groups of messages.

use std::sync::Arc;

use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    Group, GroupBy, Head, HeadStates, Hit, HitPlace, Sample, SearchBound, SearchEnd, SearchId,
    SearchOutput, SearchPage, SearchPosition, SearchProgress, SearchQuery, SearchStep,
    SortedGroups, ValueGroup,
};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::clause::WhereForm;
use super::message::HeadView;
use super::question::state_names;
use super::{HeadStateName, Paged, SearchBoundName, SubQueueName, is_false};
use crate::text::Instant;

/// Messages to look at, and their conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SearchForm {
    /// Paths of queues, topics, subscriptions or sub-queues, at most 100; by default all entities
    /// that you may read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entities: Vec<String>,
    /// Queues of each entity; by default `main`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sub_queues: Vec<SubQueueName>,
    /// Only messages in these states; by default all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<HeadStateName>,
    /// Whether the highest sequence numbers of an entity come first.
    #[serde(skip_serializing_if = "is_false")]
    pub descending: bool,
    /// Conditions, all of which must hold.
    #[serde(rename = "where")]
    pub conditions: WhereForm,
    /// Maximum number of hits; by default 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u32>,
    /// Count messages instead: by `reason`, `description`, `source`, `subject`, `property:NAME`,
    /// `json:PATH` or `slot:SECONDS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// Position: the `next` of an earlier search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Request for a page of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SearchStepForm {
    /// Begins a search.
    Begin(Box<SearchForm>),
    /// Continues the search with this number.
    Continue(u64),
}

/// A page of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SearchPageView {
    search: u64,
    /// Messages that meet the conditions, since the last page.
    hits: Vec<HitView>,
    progress: SearchProgressView,
    /// Only on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<SearchEndView>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A message that meets the conditions, without its body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HitView {
    /// Path of its entity or sub-queue.
    path: String,
    #[serde(flatten)]
    head: HeadView,
    /// Place of the match; left out if the conditions have no place.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    place: Option<MatchView>,
}

/// Place of a match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MatchView {
    /// Name of the property; left out for the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    property: Option<String>,
    /// First byte in the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    /// End of the match in the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
    /// Up to 120 characters around the match.
    excerpt: String,
}

/// Progress of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SearchProgressView {
    /// Messages that were looked at.
    messages: u64,
    /// Bytes of these messages that were looked at.
    bytes: u64,
    /// Messages that meet the conditions.
    hits: u64,
    /// Messages for which a condition could not be decided: their body is too long or nested too
    /// deep.
    undecided: u64,
    /// Messages that the store could not read.
    unreadable: u64,
    /// Estimate of the messages that are still to be looked at.
    rest: u64,
    /// Path of the entity or sub-queue that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Number that was reached in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sequence_number: Option<u64>,
}

/// End of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SearchEndView {
    /// Bound that has ended the search; left out if all messages were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound: Option<SearchBoundName>,
    /// Position for `after`; only with a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Groups, the largest first; only if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupView>>,
    /// Messages with further values, if there are more than 1,000 groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other: Option<GroupView>,
}

/// Messages with the same value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// The value; left out for messages without one, and for further values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    count: u64,
    /// Instant at which the first message was enqueued.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    first_utc: Instant,
    /// Instant at which the last message was enqueued.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    last_utc: Instant,
    /// At most three messages.
    samples: Vec<SampleView>,
}

/// Message in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SampleView {
    /// Path of its entity or sub-queue.
    path: String,
    sequence_number: u64,
}

impl SearchForm {
    /// Converts to a query of the core.
    ///
    /// # Errors
    /// As for [`WhereForm::to_where`] and [`GroupBy::parse`]; `ArgumentError` for another position.
    pub fn to_query(&self, now: Timestamp) -> Result<SearchQuery, Rejection> {
        let states: HeadStates = self.states.iter().copied().map(Into::into).collect();
        let output = match &self.group_by {
            Some(_) if self.hits.is_some() => {
                return Err(Rejection::argument("give hits or groupBy, not both"));
            }
            Some(text) => SearchOutput::Groups(GroupBy::parse(text)?),
            None => SearchOutput::Hits(self.hits),
        };
        Ok(SearchQuery {
            paths: self.entities.iter().map(|path| path.as_str().into()).collect(),
            sub_queues: self.sub_queues.iter().copied().map(Into::into).collect(),
            states: if states.is_empty() { HeadStates::ALL } else { states },
            is_descending: self.descending,
            conditions: self.conditions.to_where(now)?,
            output,
            after: self.after.as_deref().map(parse_position).transpose()?,
        })
    }
}

fn parse_position(text: &str) -> Result<SearchPosition, Rejection> {
    let key = Paged::Search.parse_key(text)?;
    Ok(SearchPosition { path: key.name, sequence: SequenceNumber(key.value.cast_unsigned()) })
}

fn position_text(position: &SearchPosition) -> String {
    Paged::Search.text(position.sequence.0.cast_signed(), position.path.as_bytes())
}

impl From<&SearchQuery> for SearchForm {
    fn from(query: &SearchQuery) -> Self {
        let states = state_names(query.states);
        let (hits, group_by) = match &query.output {
            SearchOutput::Hits(hits) => (*hits, None),
            SearchOutput::Groups(by) => (None, Some(by.to_string())),
        };
        Self {
            entities: query.paths.iter().map(ToString::to_string).collect(),
            sub_queues: query.sub_queues.iter().copied().map(Into::into).collect(),
            states,
            descending: query.is_descending,
            conditions: WhereForm::Line(query.conditions.to_string()),
            hits,
            group_by,
            after: query.after.as_ref().map(position_text),
        }
    }
}

impl SearchStepForm {
    /// Converts to a step of the core.
    pub(super) fn to_step(&self, now: Timestamp) -> Result<SearchStep, Rejection> {
        Ok(match self {
            Self::Begin(form) => SearchStep::Begin(Box::new(form.to_query(now)?)),
            Self::Continue(id) => SearchStep::Continue(SearchId(*id)),
        })
    }
}

impl From<&SearchStep> for SearchStepForm {
    fn from(step: &SearchStep) -> Self {
        match step {
            SearchStep::Begin(query) => Self::Begin(Box::new(SearchForm::from(&**query))),
            SearchStep::Continue(SearchId(id)) => Self::Continue(*id),
        }
    }
}

impl SearchPageView {
    /// Converts a page of the core.
    #[must_use]
    pub fn new(page: SearchPage, at: Timestamp) -> Self {
        let SearchPage { search: SearchId(search), hits, progress, end } = page;
        let position = progress.position.as_ref();
        let end = end.map(|end| SearchEndView::new(end, position));
        let hits = hits.into_iter().map(HitView::from).collect();
        Self { search, hits, progress: (&progress).into(), end, now_utc: Instant(at) }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<SearchPage, Rejection> {
        let hits = self.hits.into_iter().map(Hit::try_from).collect::<Result<_, _>>()?;
        let progress = self.progress.progress();
        let end = self.end.map(SearchEndView::end).transpose()?;
        Ok(SearchPage { search: SearchId(self.search), hits, progress, end })
    }

    /// Whether the search has ended.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.end.is_some()
    }
}

impl From<Hit> for HitView {
    fn from(hit: Hit) -> Self {
        let place = hit.place.map(|place| match place {
            HitPlace::Property { name, excerpt } => {
                MatchView { property: Some(name), from: None, to: None, excerpt }
            }
            HitPlace::Body { found, excerpt } => {
                let (from, to) = (Some(found.start), Some(found.end));
                MatchView { property: None, from, to, excerpt }
            }
        });
        Self { path: hit.path.to_string(), head: hit.head.into(), place }
    }
}

impl TryFrom<HitView> for Hit {
    type Error = Rejection;

    fn try_from(view: HitView) -> Result<Self, Rejection> {
        let place = view.place.map(|place| match place {
            MatchView { property: Some(name), excerpt, .. } => HitPlace::Property { name, excerpt },
            MatchView { from, to, excerpt, .. } => {
                HitPlace::Body { found: from.unwrap_or(0)..to.unwrap_or(0), excerpt }
            }
        });
        Ok(Self { path: view.path.into(), head: Head::try_from(view.head)?, place })
    }
}

impl From<&SearchProgress> for SearchProgressView {
    fn from(progress: &SearchProgress) -> Self {
        let position = progress.position.as_ref();
        Self {
            messages: progress.messages,
            bytes: progress.bytes,
            hits: progress.hits,
            undecided: progress.undecided,
            unreadable: progress.unreadable,
            rest: progress.rest,
            path: position.map(|position| position.path.to_string()),
            sequence_number: position.map(|position| position.sequence.0),
        }
    }
}

impl SearchProgressView {
    fn progress(self) -> SearchProgress {
        let position = self.path.zip(self.sequence_number).map(|(path, number)| SearchPosition {
            path: path.into(),
            sequence: SequenceNumber(number),
        });
        SearchProgress {
            messages: self.messages,
            bytes: self.bytes,
            hits: self.hits,
            undecided: self.undecided,
            unreadable: self.unreadable,
            rest: self.rest,
            position,
        }
    }
}

impl SearchEndView {
    fn new(end: SearchEnd, position: Option<&SearchPosition>) -> Self {
        let next = end.bound.and(position).map(position_text);
        let (groups, other) = match end.groups {
            None => (None, None),
            Some(SortedGroups { groups, other }) => {
                let views = groups
                    .into_iter()
                    .map(|it| GroupView::new(it.value.map(String::from), it.group));
                (Some(views.collect()), other.map(|group| GroupView::new(None, group)))
            }
        };
        Self { bound: end.bound.map(Into::into), next, groups, other }
    }

    fn end(self) -> Result<SearchEnd, Rejection> {
        let other = self.other.map(|view| view.group().group);
        let groups = self.groups.map(|groups| SortedGroups {
            groups: groups.into_iter().map(GroupView::group).collect(),
            other,
        });
        Ok(SearchEnd { bound: self.bound.map(SearchBound::from), groups })
    }
}

impl GroupView {
    fn new(value: Option<String>, group: Group) -> Self {
        let samples = group.samples.into_iter().map(|sample| SampleView {
            path: sample.path.to_string(),
            sequence_number: sample.sequence.0,
        });
        Self {
            value,
            count: group.count,
            first_utc: Instant(group.first_at),
            last_utc: Instant(group.last_at),
            samples: samples.collect(),
        }
    }

    fn group(self) -> ValueGroup {
        let samples = self.samples.into_iter().map(|sample| Sample {
            path: Arc::from(sample.path),
            sequence: SequenceNumber(sample.sequence_number),
        });
        let group = Group {
            count: self.count,
            first_at: self.first_utc.0,
            last_at: self.last_utc.0,
            samples: samples.collect(),
        };
        ValueGroup { value: self.value.map(Into::into), group }
    }
}
