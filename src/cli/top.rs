//! `peeklock top`: all queues, topics and subscriptions with their message rates, read repeatedly.
//! `cli.rs` dispatches to it.

mod rates;
mod screen;

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use peeklock::time::TimeSpan;

use super::arguments::span_of;
use super::connect::{CommandConnection, Common, Output, Patience};
use super::terminal::{Cell, Table, WriteOutcome, json};
use super::{Failure, exit};
use rates::{Kind, Rates, Row, read};
use screen::{Key, Screen};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock top
  peeklock top --interval 1s --sort in
  peeklock top --kind topic,subscription
  peeklock top --once                              one table, with the rates of one interval
  peeklock top | jq -c '(.queues + .subscriptions)[] | select(.deadLettered > 0)'

On a terminal: q or Ctrl-C quits, s sorts by the next column, r reverses the order. In a pipe \
each reading is one line of JSON.

IN/s is the number of messages accepted per second: the growth of the highest sequence number. A \
scheduled message counts when it is accepted, and again when it becomes available. OUT/s is the \
number of messages removed per second: completed, received and deleted, expired, or purged. \
Dead-lettered messages are not removed. Messages sent to a topic are counted in each subscription \
that selects them; the size of a topic includes all its subscriptions.

",
    exit_codes!()
);

#[derive(Args)]
pub struct TopFlags {
    /// Time between two readings, such as 1s
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: TimeSpan,
    /// Column to sort by
    #[arg(long, value_name = "COLUMN", default_value = "active")]
    sort: Sort,
    /// Kinds to show, such as `topic,subscription` [default: all]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Read twice, one interval apart, and print one table
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Name,
    Active,
    Dead,
    Scheduled,
    In,
    Out,
    Size,
}

impl Sort {
    const fn next(self) -> Self {
        match self {
            Self::Name => Self::Active,
            Self::Active => Self::Dead,
            Self::Dead => Self::Scheduled,
            Self::Scheduled => Self::In,
            Self::In => Self::Out,
            Self::Out => Self::Size,
            Self::Size => Self::Name,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Active => "active",
            Self::Dead => "dead",
            Self::Scheduled => "scheduled",
            Self::In => "in",
            Self::Out => "out",
            Self::Size => "size",
        }
    }
}

impl TopFlags {
    /// Kinds to show, in output order.
    fn kinds(&self) -> Vec<Kind> {
        let is_wanted = |kind: &Kind| self.kind.is_empty() || self.kind.contains(kind);
        Kind::ALL.into_iter().filter(is_wanted).collect()
    }
}

fn interval(text: &str) -> Result<TimeSpan, String> {
    let span = span_of(text)?;
    if (TimeSpan::from_ms(100)..=TimeSpan::from_days(1)).contains(&span) {
        return Ok(span);
    }
    Err("expected a time between 100ms and 1day".to_owned())
}

pub fn run(flags: &TopFlags) -> Result<(), Failure> {
    let patience = if flags.once { Patience::Limited } else { Patience::Endless };
    flags.common.run(patience, async |session| {
        let is_live = session.out.is_terminal
            && io::stdin().is_terminal()
            && flags.common.output == Output::Table;
        if flags.once {
            return once(flags, session).await;
        }
        if is_live {
            return live(flags, session).await;
        }
        tokio::select! {
            result = stream(flags, session) => result,
            () = session.report_connection() => Ok(()),
        }
    })
}

/// Prints a single table with rates.
async fn once(flags: &TopFlags, session: &CommandConnection) -> Result<(), Failure> {
    let kinds = flags.kinds();
    let mut rates = Rates::default();
    rates.read(&mut read(&session.client, &kinds).await?, Instant::now());
    tokio::select! {
        () = session.interrupt.hit() => return Err(Failure::Reported(exit::INTERRUPTED)),
        () = tokio::time::sleep(flags.interval.to_std()) => {}
    }
    let mut rows = read(&session.client, &kinds).await?;
    rates.read(&mut rows, Instant::now());
    sort(&mut rows, flags.sort, SortDirection::No);
    match flags.common.output {
        Output::Table => {
            let sorted = (flags.sort, SortDirection::No);
            let (text, _) = table(&rows, sorted, session.out.colours).text(&session.out);
            session.out.print(&text)
        }
        Output::Json | Output::Ndjson => session.out.print(&snapshot(session, &kinds, &rows)),
    }
}

/// Prints a JSON line for each reading.
async fn stream(flags: &TopFlags, session: &CommandConnection) -> Result<(), Failure> {
    let kinds = flags.kinds();
    let mut rates = Rates::default();
    let mut ticks = tokio::time::interval(flags.interval.to_std());
    loop {
        tokio::select! {
            biased;
            () = session.interrupt.hit() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let rows = tokio::select! {
            biased;
            () = session.interrupt.hit() => return Ok(()),
            rows = read(&session.client, &kinds) => rows,
        };
        let Some(mut rows) = ignore_transient(rows)? else { continue };
        rates.read(&mut rows, Instant::now());
        sort(&mut rows, flags.sort, SortDirection::No);
        if session.out.write(snapshot(session, &kinds, &rows))? == WriteOutcome::OutputClosed {
            return Ok(());
        }
    }
}

/// Ignores a lost connection and a busy broker, which are temporary; returns other failures.
fn ignore_transient<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Ended { code: exit::NO_CONNECTION | exit::BUSY, .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Redraws a table until a key or a signal ends the command.
async fn live(flags: &TopFlags, session: &CommandConnection) -> Result<(), Failure> {
    let kinds = flags.kinds();
    let mut screen = Screen::enter()?;
    let mut rates = Rates::default();
    let mut rows: Vec<Row> = Vec::new();
    let (mut by, mut turned) = (flags.sort, SortDirection::No);
    let mut ticks = tokio::time::interval(flags.interval.to_std());
    let mut is_connected = true;
    loop {
        // Keys are handled while a reading is in progress.
        let reading = async {
            ticks.tick().await;
            read(&session.client, &kinds).await
        };
        tokio::pin!(reading);
        let seen = loop {
            let order = (by, turned);
            draw(&mut screen, session, &kinds, &mut rows, order, is_connected)?;
            tokio::select! {
                biased;
                () = session.interrupt.hit() => return Ok(()),
                key = screen.key() => match key {
                    Key::Leave => return Ok(()),
                    Key::Sort => by = by.next(),
                    Key::Turn => turned = turned.other(),
                    Key::Redraw => {}
                },
                () = session.client.disconnected(), if is_connected => is_connected = false,
                () = session.client.connected(), if !is_connected => is_connected = true,
                seen = &mut reading => break seen,
            }
        };
        if let Some(seen) = ignore_transient(seen)? {
            rows = seen;
            rates.read(&mut rows, Instant::now());
        }
    }
}

/// Whether the order of the sort column is reversed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SortDirection {
    No,
    Yes,
}

impl SortDirection {
    const fn other(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Yes => Self::No,
        }
    }
}

/// Sorts by name ascending or by number descending; equal rows by name.
fn sort(rows: &mut [Row], by: Sort, turned: SortDirection) {
    rows.sort_by(|a, b| {
        let order = match by {
            Sort::Name => std::cmp::Ordering::Equal,
            Sort::Active => b.active.cmp(&a.active),
            Sort::Dead => b.dead.cmp(&a.dead),
            Sort::Scheduled => b.scheduled.cmp(&a.scheduled),
            Sort::In => b.rate_in.unwrap_or(0.0).total_cmp(&a.rate_in.unwrap_or(0.0)),
            Sort::Out => b.rate_out.unwrap_or(0.0).total_cmp(&a.rate_out.unwrap_or(0.0)),
            Sort::Size => b.size_bytes.cmp(&a.size_bytes),
        };
        order.then_with(|| a.path.cmp(&b.path))
    });
    if turned == SortDirection::Yes {
        rows.reverse();
    }
}

/// Columns that a narrow terminal always shows: name, sort column, and both rates.
const ESSENTIAL: usize = 4;

/// Columns by importance. A narrow terminal hides columns without non-zero numbers first, and rates
/// last.
fn importance(rows: &[Row], by: Sort) -> Vec<usize> {
    let (name, kind, active, dead, scheduled, deferred) = (0, 1, 2, 3, 4, 5);
    let (rate_in, rate_out, size) = (6, 7, 8);
    let sorted = match by {
        // Rates are always shown.
        Sort::Name | Sort::Active | Sort::In | Sort::Out => active,
        Sort::Dead => dead,
        Sort::Scheduled => scheduled,
        Sort::Size => size,
    };
    let is_empty = |of: fn(&Row) -> Option<u64>| rows.iter().filter_map(of).all(|count| count == 0);
    let counts = [
        (dead, is_empty(|row| row.dead)),
        (scheduled, is_empty(|row| row.scheduled)),
        (deferred, is_empty(|row| row.deferred)),
    ];
    let of = |empty: bool| {
        counts.iter().filter(move |(_, is_empty)| *is_empty == empty).map(|(column, _)| *column)
    };
    let mut order = vec![name, rate_in, rate_out, sorted];
    let others = [active].into_iter().chain(of(false)).chain([kind, size]).chain(of(true));
    order.extend(others.filter(|column| *column != sorted));
    order
}

fn table(rows: &[Row], (by, turned): (Sort, SortDirection), colours: bool) -> Table {
    let heads =
        ["NAME", "KIND", "ACTIVE", "DEAD", "SCHEDULED", "DEFERRED", "IN/s", "OUT/s", "SIZE"];
    let mut heads = heads.map(str::to_owned);
    let sorted = match by {
        Sort::Name => "NAME",
        Sort::Active => "ACTIVE",
        Sort::Dead => "DEAD",
        Sort::Scheduled => "SCHEDULED",
        Sort::In => "IN/s",
        Sort::Out => "OUT/s",
        Sort::Size => "SIZE",
    };
    // The arrow marks the sort column, because the first line may be too long to name it.
    let goes_up = (by == Sort::Name) != (turned == SortDirection::Yes);
    if let Some(head) = heads.iter_mut().find(|head| *head == sorted) {
        head.push(if goes_up { '↑' } else { '↓' });
    }
    let mut table =
        Table::new(&heads, heads.len(), colours).with_importance(importance(rows, by), ESSENTIAL);
    let rate = |rate: Option<f64>| {
        Cell::Right(rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")))
    };
    // Value that an entity of this kind does not have.
    let none = || Cell::Right("-".to_owned());
    let number = |count: Option<u64>| count.map_or_else(none, Cell::Number);
    for row in rows {
        table.row(vec![
            Cell::Text(row.path.clone()),
            Cell::Text(row.kind.name().to_owned()),
            number(row.active),
            row.dead.map_or_else(none, Cell::Alarm),
            number(row.scheduled),
            number(row.deferred),
            rate(row.rate_in),
            rate(row.rate_out),
            Cell::Right(BinaryBytes(row.size_bytes).to_string()),
        ]);
    }
    table
}

fn draw(
    screen: &mut Screen,
    session: &CommandConnection,
    kinds: &[Kind],
    rows: &mut [Row],
    (by, turned): (Sort, SortDirection),
    is_connected: bool,
) -> Result<(), Failure> {
    sort(rows, by, turned);
    let (columns, lines) = screen.size();
    let state = if is_connected { "" } else { "  connection lost, reconnecting" };
    let order = if turned == SortDirection::Yes { ", turned" } else { "" };
    let now = session.client.now().to_string();
    // The time is shown to the second.
    let now = now.get(..19).unwrap_or(&now).replace('T', " ");
    let total = |of: fn(&Row) -> Option<u64>| rows.iter().filter_map(of).sum::<u64>();
    let count_of = |kind| rows.iter().filter(|row| row.kind == kind).count();
    let counts: Vec<_> = kinds
        .iter()
        .map(|kind| (count_of(*kind), kind.plural()))
        .filter(|(count, _)| *count > 0 || kinds.len() == 1)
        .map(|(count, kinds)| format!("{count} {kinds}, "))
        .collect();
    let head = format!(
        "peeklock top  {now}  {}{} active, {} dead-lettered  by {}{order}{state}",
        counts.concat(),
        total(|row| row.active),
        total(|row| row.dead),
        by.name(),
    );
    let room = usize::from(lines).saturating_sub(4);
    let (shown, hidden) = rows.split_at(room.min(rows.len()));
    let mut all = vec![head, String::new()];
    if !shown.is_empty() {
        all.extend(table(shown, (by, turned), session.out.colours).lines(Some(columns)).0);
    }
    if !hidden.is_empty() {
        all.push(format!("and {} more", hidden.len()));
    }
    screen.show(&all)?;
    Ok(())
}

/// A reading as a line of JSON: a list for each shown kind. Counts that a kind does not have are
/// left out; unknown rates are null.
fn snapshot(session: &CommandConnection, kinds: &[Kind], rows: &[Row]) -> String {
    let mut object = serde_json::Map::new();
    object.insert("at".to_owned(), session.client.now().to_string().into());
    for kind in kinds {
        let of_kind = rows.iter().filter(|row| row.kind == *kind).map(entry).collect();
        object.insert(kind.plural().to_owned(), serde_json::Value::Array(of_kind));
    }
    format!("{}\n", json(&serde_json::Value::Object(object).to_string()))
}

fn entry(row: &Row) -> serde_json::Value {
    let mut entry = serde_json::Map::new();
    entry.insert("path".to_owned(), row.path.as_str().into());
    let counts = [
        ("active", row.active),
        ("deadLettered", row.dead),
        ("scheduled", row.scheduled),
        ("deferred", row.deferred),
        ("sizeInBytes", Some(row.size_bytes)),
    ];
    for (name, count) in counts {
        entry.extend(count.map(|count| (name.to_owned(), count.into())));
    }
    entry.insert("inPerSecond".to_owned(), row.rate_in.into());
    if row.kind != Kind::Topic {
        entry.insert("outPerSecond".to_owned(), row.rate_out.into());
    }
    entry.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal of 80 columns shows both rates even with a long name; columns with only zeros are
    /// hidden first.
    #[test]
    fn a_narrow_terminal_shows_the_rates() {
        for name in ["orders", &"a-queue-with-a-long-name".repeat(5)] {
            let row = Row::for_test(name, Some(7), Some(1));
            let rows = [row];
            let lines =
                |width| table(&rows, (Sort::Active, SortDirection::No), false).lines(Some(width)).0;
            for width in [80, 100] {
                let lines = lines(width);
                assert!(
                    lines.iter().all(|line| line.chars().count() <= usize::from(width)),
                    "{lines:?}"
                );
                let head = &lines[0];
                for shown in ["NAME", "ACTIVE", "IN/s", "OUT/s"] {
                    assert!(head.contains(shown), "{width}: {head}");
                }
            }
            let head = &lines(60)[0];
            assert!(head.contains("OUT/s") && !head.contains("DEFERRED"), "{head}");
        }
    }
}
