//! The journey of a message.

use std::sync::Arc;

use peeklock_core::error::Rejection;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{HolderFacts, Journey, JourneyQuery, MessagePlace, Station};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::lock::HolderView;
use super::{DeadLetterCauseName, LockEndName, StationName, is_false};
use crate::text::{Guid, Instant};

/// Message whose journey is read: one of the two properties.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JourneyForm {
    /// Number of the message in the entity of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
    /// Id of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// The stations of a message, and of its copies before and after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JourneyView {
    /// The stations, the earliest first, at most 500.
    stations: Vec<StationView>,
    /// Instant since which no station of these messages is missing.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    complete_since_utc: Instant,
    /// Whether further stations are left out, since the answer is full or took too long.
    #[serde(default, skip_serializing_if = "is_false")]
    is_cut: bool,
    /// Number of links to entities that you may not read, or that no longer exist.
    #[serde(default, skip_serializing_if = "is_zero")]
    hidden_count: u64,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// An event in the life of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct StationView {
    /// Instant of the event, or of the last of several.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    at_utc: Instant,
    /// Path of the entity.
    path: String,
    /// Number of the message there; 0 for a duplicate that got none.
    sequence_number: u64,
    station: StationName,
    /// Path of the entity of the other message of a copy, hop or materialisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_path: Option<String>,
    /// Number of the other message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_sequence_number: Option<u64>,
    /// Hop of a copy or of a forwarded message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hop: Option<u8>,
    /// Name of the rule that made a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// The client that got, held or settled the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<HolderView>,
    /// Failed deliveries of the message until then, or the number of renewals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<DeadLetterCauseName>,
    /// Reason for which a lock ended without a settlement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock_end: Option<LockEndName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    job: Option<Guid>,
    /// New instant of a scheduled message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    due_at_utc: Option<Instant>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl JourneyForm {
    pub(super) fn to_query(&self) -> Result<JourneyQuery, Rejection> {
        match (self.sequence_number, &self.message_id) {
            (Some(sequence), None) => Ok(JourneyQuery::Sequence(SequenceNumber(sequence))),
            (None, Some(id)) => Ok(JourneyQuery::MessageId(id.as_str().into())),
            _ => Err(Rejection::argument("give one of sequenceNumber and messageId")),
        }
    }
}

impl From<&JourneyQuery> for JourneyForm {
    fn from(query: &JourneyQuery) -> Self {
        match query {
            JourneyQuery::Sequence(SequenceNumber(number)) => {
                Self { sequence_number: Some(*number), message_id: None }
            }
            JourneyQuery::MessageId(id) => {
                Self { sequence_number: None, message_id: Some(id.to_string()) }
            }
        }
    }
}

impl JourneyView {
    pub(super) fn new(journey: Journey, at: Timestamp) -> Self {
        Self {
            stations: journey.stations.into_iter().map(Into::into).collect(),
            complete_since_utc: Instant(journey.complete_since),
            is_cut: journey.is_cut,
            hidden_count: journey.hidden_count,
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn journey(self) -> Journey {
        Journey {
            stations: self.stations.into_iter().map(Into::into).collect(),
            complete_since: self.complete_since_utc.0,
            is_cut: self.is_cut,
            hidden_count: self.hidden_count,
        }
    }
}

impl From<Station> for StationView {
    fn from(station: Station) -> Self {
        let (other_path, other_sequence_number) =
            station.other.map(|other| ((*other.path).to_owned(), other.sequence.0)).unzip();
        Self {
            at_utc: Instant(station.at),
            path: (*station.place.path).to_owned(),
            sequence_number: station.place.sequence.0,
            station: station.kind.into(),
            other_path,
            other_sequence_number,
            hop: station.hop,
            rule: station.rule.map(|rule| (*rule).to_owned()),
            client: station.client.map(|client| HolderView::from(&*client)),
            count: station.count,
            cause: station.cause.map(Into::into),
            lock_end: station.lock_end.map(Into::into),
            job: station.job.map(|JobId(job)| Guid(job)),
            due_at_utc: station.due_at.map(Instant),
        }
    }
}

impl From<StationView> for Station {
    fn from(view: StationView) -> Self {
        let place = |path: String, number: u64| MessagePlace {
            path: path.into(),
            sequence: SequenceNumber(number),
        };
        Self {
            at: view.at_utc.0,
            place: place(view.path, view.sequence_number),
            kind: view.station.into(),
            other: view.other_path.map(|path| place(path, view.other_sequence_number.unwrap_or(0))),
            hop: view.hop,
            rule: view.rule.map(Into::into),
            client: view.client.map(|client| Arc::new(HolderFacts::from(client))),
            count: view.count,
            cause: view.cause.map(Into::into),
            lock_end: view.lock_end.map(Into::into),
            job: view.job.map(|Guid(job)| JobId(job)),
            due_at: view.due_at_utc.map(|Instant(at)| at),
        }
    }
}
