//! `peeklock series`: counts, gauges and times of an entity or of the namespace over time (CON-31).

use clap::{Args, ValueEnum};
use peeklock::inspect::{
    Found, Question, Resolution, Series, SeriesColumn, SeriesQuery, SeriesValues,
};
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::findings_to_json;

use super::arguments::{When, span_of, when};
use super::connect::{Common, Output, Patience};
use super::inspect::ask;
use super::listing::objects;
use super::message::instant;
use super::terminal::{Cell, Table, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock series                                  the namespace, the last hour
  peeklock series orders --span 10m                one entity, second by second if it is busy
  peeklock series orders --span 7d --list          a row for each 15 minutes
  peeklock series orders -o json                   all values

The table has the lowest, highest and last value of each column, and its course. `·` and `-` stand \
for values that are not known, such as before the start of the broker.

",
    exit_codes!()
);

#[derive(Args)]
pub struct SeriesFlags {
    /// Queue, such as `orders`, topic or subscription; without it, the namespace
    entity: Option<String>,
    /// Time to show
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = span_of)]
    span: TimeSpan,
    /// End of that time, such as 2026-05-01T12:00:00Z [default: now]
    #[arg(long, value_name = "WHEN", value_parser = when)]
    until: Option<When>,
    /// Length of a slot [default: the finest with at most 720 slots]
    #[arg(long, value_name = "LENGTH")]
    resolution: Option<Slot>,
    /// Print a row for each slot
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Slot {
    #[value(name = "1s")]
    Second,
    #[value(name = "1m")]
    Minute,
    #[value(name = "15m")]
    QuarterHour,
}

impl From<Slot> for Resolution {
    fn from(slot: Slot) -> Self {
        match slot {
            Slot::Second => Self::Second,
            Slot::Minute => Self::Minute,
            Slot::QuarterHour => Self::QuarterHour,
        }
    }
}

/// Columns of the list.
const LISTED: [(SeriesColumn, &str); 9] = [
    (SeriesColumn::Accepted, "IN"),
    (SeriesColumn::Delivered, "DELIVERED"),
    (SeriesColumn::Completed, "DONE"),
    (SeriesColumn::Failed, "FAILED"),
    (SeriesColumn::Active, "ACTIVE"),
    (SeriesColumn::Locked, "LOCKED"),
    (SeriesColumn::DeadLetters, "DEAD"),
    (SeriesColumn::WaitP95, "WAIT P95"),
    (SeriesColumn::LockP95, "LOCK P95"),
];

/// Width of the longest course.
const COURSE_CHARS: usize = 40;
/// Heights of a course, lowest first.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A part of a course without a known value.
const UNKNOWN: char = '·';

pub fn run(flags: &SeriesFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let (path, output) = (flags.entity.as_deref().unwrap_or_default(), flags.common.output);
        let now = session.client.now();
        let until = flags.until.map_or(now, |until| until.from(now));
        let query = SeriesQuery {
            from: Some(until.minus(flags.span)),
            // Without it, the clock of the broker decides.
            until: flags.until.map(|_| until),
            resolution: flags.resolution.map(Into::into),
            columns: Vec::new(),
        };
        let read = |found: &Found| match found {
            Found::Series(series) => Some(series.clone()),
            _ => None,
        };
        let (series, findings) = ask(session, path, Question::Series(query), read).await?;
        if output != Output::Table {
            return objects(session.out, output, findings_to_json(findings));
        }
        let table = match flags.list {
            true => list(&series, session.out.colours),
            false => summary(&series, session.out.colours),
        };
        let Some(table) = table else {
            note("no value of this time is known; --span shows more time");
            return Err(Failure::Reported(exit::NOTHING));
        };
        let (text, _) = table.text(&session.out);
        session.out.print(&text)
    })
}

/// A row for each column with a value other than 0.
fn summary(series: &Series, colours: bool) -> Option<Table> {
    let seconds = series.resolution.seconds();
    let course =
        if seconds < 60 { "EACH 1s".to_owned() } else { format!("EACH {}m", seconds / 60) };
    let heads =
        ["COLUMN".to_owned(), "LOW".to_owned(), "HIGH".to_owned(), "LAST".to_owned(), course];
    let mut table = Table::new(&heads, 5, colours);
    let mut is_known = false;
    for SeriesValues { column, values } in &series.columns {
        let known = || values.iter().copied().flatten();
        let (low, high) = (known().min(), known().max());
        is_known |= high.is_some();
        let is_basic = matches!(column, SeriesColumn::Accepted | SeriesColumn::Active);
        if high.is_none_or(|high| high == 0 && !is_basic) {
            continue;
        }
        let number = |value| Cell::Right(shown(*column, value));
        table.row(vec![
            Cell::Text(name(*column).to_owned()),
            number(low),
            number(high),
            number(values.last().copied().flatten()),
            Cell::Text(course_of(values)),
        ]);
    }
    is_known.then_some(table)
}

/// A row for each slot.
fn list(series: &Series, colours: bool) -> Option<Table> {
    let mut heads = vec!["FROM"];
    heads.extend(LISTED.map(|(_, head)| head));
    let mut table = Table::new(&heads, heads.len(), colours);
    let values = |column| series.columns.iter().find(|values| values.column == column);
    let columns = LISTED.map(|(column, _)| (column, values(column)));
    let count = series.columns.first().map_or(0, |column| column.values.len());
    let length = TimeSpan::from_seconds(series.resolution.seconds().cast_signed());
    let mut at: Timestamp = series.from;
    for place in 0..count {
        let mut row = vec![Cell::Text(instant(at))];
        for (column, values) in columns {
            let value = values.and_then(|values| values.values.get(place).copied().flatten());
            row.push(Cell::Right(shown(column, value)));
        }
        table.row(row);
        at = at.plus(length);
    }
    (count > 0).then_some(table)
}

/// Text of a value: times with their unit, `-` if it is not known.
fn shown(column: SeriesColumn, value: Option<u64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match column {
        SeriesColumn::WaitP50
        | SeriesColumn::WaitP95
        | SeriesColumn::WaitP99
        | SeriesColumn::LockP50
        | SeriesColumn::LockP95
        | SeriesColumn::LockP99 => duration(value),
        SeriesColumn::OldestAge => duration(value.saturating_mul(1_000)),
        _ => value.to_string(),
    }
}

/// Text of a duration in microseconds.
fn duration(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        10_000..10_000_000 => format!("{} ms", micros / 1_000),
        10_000_000..600_000_000 => format!("{} s", micros / 1_000_000),
        _ => format!("{} min", micros / 60_000_000),
    }
}

/// The course of values, in at most [`COURSE_CHARS`] parts: the highest known value of each.
fn course_of(values: &[Option<u64>]) -> String {
    let most = values.iter().copied().flatten().max().unwrap_or(0).max(1);
    let parts = values.chunks(values.len().div_ceil(COURSE_CHARS).max(1));
    let height = |value: u64| {
        let place = u128::from(value) * (HEIGHTS.len() as u128 - 1) / u128::from(most);
        usize::try_from(place).ok().and_then(|place| HEIGHTS.get(place)).copied()
    };
    parts
        .map(|part| part.iter().copied().flatten().max().and_then(height).unwrap_or(UNKNOWN))
        .collect()
}

const fn name(column: SeriesColumn) -> &'static str {
    match column {
        SeriesColumn::Accepted => "accepted",
        SeriesColumn::Delivered => "delivered",
        SeriesColumn::Completed => "completed",
        SeriesColumn::Failed => "failed deliveries",
        SeriesColumn::Expired => "expired",
        SeriesColumn::ForwardedIn => "forwarded in",
        SeriesColumn::ForwardedOut => "forwarded out",
        SeriesColumn::Duplicates => "dropped as duplicates",
        SeriesColumn::DeadLetteredExpired => "dead-lettered: expired",
        SeriesColumn::DeadLetteredDeliveryCount => "dead-lettered: delivery count",
        SeriesColumn::DeadLetteredApplication => "dead-lettered: receiver",
        SeriesColumn::DeadLetteredRule => "dead-lettered: rule",
        SeriesColumn::DeadLetteredHeaderSize => "dead-lettered: header size",
        SeriesColumn::DeadLetteredNoSession => "dead-lettered: no session",
        SeriesColumn::DeadLetteredForwarding => "dead-lettered: forwarding",
        SeriesColumn::DeadLetteredCopyCount => "dead-lettered: copies",
        SeriesColumn::DeadLetteredOperator => "dead-lettered: operator",
        SeriesColumn::Active => "active",
        SeriesColumn::Locked => "locked",
        SeriesColumn::Deferred => "deferred",
        SeriesColumn::Scheduled => "scheduled",
        SeriesColumn::DeadLetters => "dead letters",
        SeriesColumn::Bytes => "bytes",
        SeriesColumn::OldestAge => "age of the oldest",
        SeriesColumn::WaitP50 => "wait, p50",
        SeriesColumn::WaitP95 => "wait, p95",
        SeriesColumn::WaitP99 => "wait, p99",
        SeriesColumn::LockP50 => "under lock, p50",
        SeriesColumn::LockP95 => "under lock, p95",
        SeriesColumn::LockP99 => "under lock, p99",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-32: an unknown value is never shown as zero.
    #[test]
    fn course_marks_unknown_values() {
        assert_eq!(course_of(&[None, Some(0), Some(7), Some(14)]), "·▁▄█");
        assert_eq!(course_of(&[None; 3]), "···");
        assert_eq!(course_of(&[]), "");
        assert_eq!(course_of(&[Some(1); 1_000]).chars().count(), COURSE_CHARS);
        assert_eq!(shown(SeriesColumn::Accepted, None), "-");
        assert_eq!(shown(SeriesColumn::WaitP50, Some(176)), "0.1 ms");
        assert_eq!(shown(SeriesColumn::OldestAge, Some(61_000)), "61 s");
    }
}
