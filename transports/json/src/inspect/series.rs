//! Values of an entity or of the namespace over time.

use std::collections::BTreeMap;

use peeklock_core::error::Rejection;
use peeklock_core::inspect::{Resolution, Series, SeriesColumn, SeriesQuery, SeriesValues};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{JsonName, SeriesColumnName};
use crate::text::Instant;

/// Time span of a series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SeriesForm {
    /// Start of the span; by default an hour before its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_utc: Option<Instant>,
    /// End of the span; by default now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_utc: Option<Instant>,
    /// Length of a slot: 1, 60 or 900.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution_seconds: Option<u64>,
    /// Columns; by default all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<SeriesColumnName>,
}

/// Values over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SeriesView {
    /// Start of the first slot.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    from_utc: Instant,
    /// Length of each slot: 1, 60 or 900.
    resolution_seconds: u64,
    /// Values by column and slot. `null`: not known, or for a percentile, no message.
    columns: BTreeMap<String, Vec<Option<u64>>>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

impl SeriesForm {
    pub(super) fn to_query(&self) -> Result<SeriesQuery, Rejection> {
        let mut columns: Vec<SeriesColumn> = Vec::new();
        for column in self.columns.iter().copied().map(SeriesColumn::from) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        Ok(SeriesQuery {
            from: self.from_utc.map(|Instant(at)| at),
            until: self.until_utc.map(|Instant(at)| at),
            resolution: self.resolution_seconds.map(resolution).transpose()?,
            columns,
        })
    }
}

fn resolution(seconds: u64) -> Result<Resolution, Rejection> {
    let found = Resolution::ALL.into_iter().find(|resolution| resolution.seconds() == seconds);
    found.ok_or_else(|| {
        Rejection::out_of_range(format!("resolutionSeconds is {seconds}; it must be 1, 60 or 900"))
    })
}

impl From<&SeriesQuery> for SeriesForm {
    fn from(query: &SeriesQuery) -> Self {
        Self {
            from_utc: query.from.map(Instant),
            until_utc: query.until.map(Instant),
            resolution_seconds: query.resolution.map(Resolution::seconds),
            columns: query.columns.iter().copied().map(Into::into).collect(),
        }
    }
}

impl SeriesView {
    pub(super) fn new(series: Series, at: Timestamp) -> Self {
        let columns = series.columns.into_iter().map(|SeriesValues { column, values }| {
            (SeriesColumnName::from(column).text().to_owned(), values)
        });
        Self {
            from_utc: Instant(series.from),
            resolution_seconds: series.resolution.seconds(),
            columns: columns.collect(),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn series(mut self) -> Result<Series, Rejection> {
        // Columns of a later version are left out.
        let columns = SeriesColumn::ALL.into_iter().filter_map(|column| {
            let values = self.columns.remove(SeriesColumnName::from(column).text())?;
            Some(SeriesValues { column, values })
        });
        let columns = columns.collect();
        let resolution = resolution(self.resolution_seconds)?;
        Ok(Series { from: self.from_utc.0, resolution, columns })
    }
}
