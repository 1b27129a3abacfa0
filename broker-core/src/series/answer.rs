//! Answers to questions about series.

use super::query::{
    POINT_COUNT_DEFAULT, POINT_COUNT_MAX, Resolution, Series, SeriesColumn, SeriesQuery,
    SeriesValues,
};
use super::row::Row;
use super::track::{Idle, Track};
use super::{instant_of, seconds_of};
use crate::error::Rejection;
use crate::time::{TimeSpan, Timestamp};

/// Rows of an entity for an answer.
pub(super) enum Rows {
    /// It has, or had, messages.
    Busy(Box<Track>),
    /// It is unchanged.
    Idle(Idle),
}

impl Rows {
    fn keeps(&self, place: usize, seconds: u64) -> bool {
        match self {
            Self::Busy(track) => track.keeps(place, seconds),
            Self::Idle(_) => {
                Resolution::ALL.get(place).is_some_and(|it| it.keep_seconds() >= seconds)
            }
        }
    }

    fn read(&self, resolution: Resolution, from: u64, until: u64, visit: impl FnMut(u64, &Row)) {
        let place = resolution as usize;
        match self {
            Self::Busy(track) => track.read(place, from, until, visit),
            Self::Idle(idle) => idle.read(resolution, (from, until), visit),
        }
    }
}

/// Makes the answer to a question.
pub(super) fn answer(
    rows: Option<&Rows>,
    query: &SeriesQuery,
    now: Timestamp,
) -> Result<Series, Rejection> {
    let until = query.until.unwrap_or(now).min(now);
    let from = query.from.unwrap_or_else(|| until.minus(TimeSpan::from_seconds(3_600)));
    let (start, end) = (seconds_of(from), seconds_of(until));
    let slots = |resolution: Resolution| {
        let seconds = resolution.seconds();
        // The open slot has no values yet.
        let last = seconds_of(now) / seconds;
        let first = (start / seconds).min(last);
        (first, end.div_ceil(seconds).clamp(first, last))
    };
    let reach = seconds_of(now).saturating_sub(start);
    let fits = |resolution: &Resolution| {
        let (first, end) = slots(*resolution);
        let is_kept = rows.is_none_or(|rows| rows.keeps(*resolution as usize, reach));
        end - first <= POINT_COUNT_DEFAULT && is_kept
    };
    let resolution = query
        .resolution
        .or_else(|| Resolution::ALL.into_iter().find(fits))
        .unwrap_or(Resolution::QuarterHour);
    let (first, end) = slots(resolution);
    let count = end - first;
    if count > POINT_COUNT_MAX {
        return Err(Rejection::out_of_range(format!(
            "the span has {count} slots of {} s; an answer has at most {POINT_COUNT_MAX}; ask for a \
             shorter span or a coarser resolution",
            resolution.seconds()
        )));
    }
    let count = usize::try_from(count).unwrap_or_default();
    let columns = match &*query.columns {
        [] => &SeriesColumn::ALL[..],
        columns => columns,
    };
    let empty = |column: &SeriesColumn| SeriesValues { column: *column, values: vec![None; count] };
    let mut columns: Vec<SeriesValues> = columns.iter().map(empty).collect();
    let seconds = resolution.seconds();
    if let Some(rows) = rows {
        rows.read(resolution, first, end, |slot, row| {
            let place = usize::try_from(slot - first).unwrap_or(usize::MAX);
            for SeriesValues { column, values } in &mut columns {
                if let Some(value) = values.get_mut(place) {
                    *value = column.value(row, (slot + 1) * seconds * 1_000);
                }
            }
        });
    }
    Ok(Series { from: instant_of(first * seconds), resolution, columns })
}
