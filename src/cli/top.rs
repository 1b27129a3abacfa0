//! `peeklock top`: all queues, what comes in and what goes, again and again.

mod rates;
mod screen;

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use peeklock::time::TimeSpan;

use super::arguments::span_of;
use super::connect::{Common, Output, Patience, Session};
use super::queue::all;
use super::terminal::{Cell, Table, Wrote, json};
use super::{Failure, exit};
use rates::{Rates, Row};
use screen::{Key, Screen};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock top
  peeklock top --interval 1s --sort in
  peeklock top --once                              one table, with the rates of one interval
  peeklock top | jq -c '.queues[] | select(.deadLettered > 0)'

On a terminal: q or Ctrl-C leaves, s sorts by the next column, r turns the order. In a pipe each \
reading is one line of JSON.

IN/s is what was accepted in a second: the growth of the highest sequence number. A scheduled \
message counts when it is accepted, and again when it becomes available. OUT/s is what has gone \
for good: completed, received for good, expired, deleted. Dead-lettered messages are there still.

",
    exit_codes!()
);

#[derive(Args)]
pub struct TopFlags {
    /// Time between two readings
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: TimeSpan,
    /// Column to sort by
    #[arg(long, value_name = "COLUMN", default_value = "active")]
    sort: Sort,
    /// Read twice, one interval apart, and print one table
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Queue,
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
            Self::Queue => Self::Active,
            Self::Active => Self::Dead,
            Self::Dead => Self::Scheduled,
            Self::Scheduled => Self::In,
            Self::In => Self::Out,
            Self::Out => Self::Size,
            Self::Size => Self::Queue,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Active => "active",
            Self::Dead => "dead",
            Self::Scheduled => "scheduled",
            Self::In => "in",
            Self::Out => "out",
            Self::Size => "size",
        }
    }
}

fn interval(text: &str) -> Result<TimeSpan, String> {
    let span = span_of(text)?;
    if (TimeSpan::from_ms(100)..=TimeSpan::from_days(1)).contains(&span) {
        return Ok(span);
    }
    Err("it is not between 100ms and 1day".to_owned())
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
            () = session.tell_connection() => Ok(()),
        }
    })
}

/// One table, with rates.
async fn once(flags: &TopFlags, session: &Session) -> Result<(), Failure> {
    let mut rates = Rates::default();
    rates.read(&all(&session.client).await?, Instant::now());
    tokio::select! {
        () = session.interrupt.hit() => return Err(Failure::Told(exit::INTERRUPTED)),
        () = tokio::time::sleep(flags.interval.to_std()) => {}
    }
    let mut rows = rates.read(&all(&session.client).await?, Instant::now());
    sort(&mut rows, flags.sort, Turned::No);
    match flags.common.output {
        Output::Table => {
            let sorted = (flags.sort, Turned::No);
            let (text, _) = table(&rows, sorted, session.out.colours).text(&session.out);
            session.out.say(&text)
        }
        Output::Json | Output::Ndjson => session.out.say(&snapshot(session, &rows)),
    }
}

/// A line of JSON for each reading.
async fn stream(flags: &TopFlags, session: &Session) -> Result<(), Failure> {
    let mut rates = Rates::default();
    let mut ticks = tokio::time::interval(flags.interval.to_std());
    loop {
        tokio::select! {
            biased;
            () = session.interrupt.hit() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let queues = tokio::select! {
            biased;
            () = session.interrupt.hit() => return Ok(()),
            queues = all(&session.client) => queues,
        };
        let Some(queues) = passing(queues)? else { continue };
        let mut rows = rates.read(&queues, Instant::now());
        sort(&mut rows, flags.sort, Turned::No);
        if session.out.write(snapshot(session, &rows))? == Wrote::Gone {
            return Ok(());
        }
    }
}

/// A lost connection comes back by itself, a busy broker has time again; anything else ends the command.
fn passing<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Ended { code: exit::NO_CONNECTION | exit::BUSY, .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A table that is drawn again and again, until a key or a signal.
async fn live(flags: &TopFlags, session: &Session) -> Result<(), Failure> {
    let mut screen = Screen::enter()?;
    let mut rates = Rates::default();
    let mut rows: Vec<Row> = Vec::new();
    let (mut by, mut turned) = (flags.sort, Turned::No);
    let mut ticks = tokio::time::interval(flags.interval.to_std());
    let mut is_connected = true;
    loop {
        // One thing at a time: a reading that takes long holds up no key.
        let reading = async {
            ticks.tick().await;
            all(&session.client).await
        };
        tokio::pin!(reading);
        let queues = loop {
            draw(&mut screen, session, &mut rows, (by, turned), is_connected)?;
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
                queues = &mut reading => break queues,
            }
        };
        if let Some(queues) = passing(queues)? {
            rows = rates.read(&queues, Instant::now());
        }
    }
}

/// Whether the order of a column is turned round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turned {
    No,
    Yes,
}

impl Turned {
    const fn other(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Yes => Self::No,
        }
    }
}

/// Names go up, numbers go down; equal ones by name.
fn sort(rows: &mut [Row], by: Sort, turned: Turned) {
    rows.sort_by(|a, b| {
        let order = match by {
            Sort::Queue => std::cmp::Ordering::Equal,
            Sort::Active => b.active.cmp(&a.active),
            Sort::Dead => b.dead.cmp(&a.dead),
            Sort::Scheduled => b.scheduled.cmp(&a.scheduled),
            Sort::In => b.rate_in.unwrap_or(0.0).total_cmp(&a.rate_in.unwrap_or(0.0)),
            Sort::Out => b.rate_out.unwrap_or(0.0).total_cmp(&a.rate_out.unwrap_or(0.0)),
            Sort::Size => b.size_bytes.cmp(&a.size_bytes),
        };
        order.then_with(|| a.path.cmp(&b.path))
    });
    if turned == Turned::Yes {
        rows.reverse();
    }
}

fn table(rows: &[Row], (by, turned): (Sort, Turned), colours: bool) -> Table {
    let mut heads = ["QUEUE", "ACTIVE", "DEAD", "SCHEDULED", "DEFERRED", "IN/s", "OUT/s", "SIZE"]
        .map(str::to_owned);
    let sorted = match by {
        Sort::Queue => "QUEUE",
        Sort::Active => "ACTIVE",
        Sort::Dead => "DEAD",
        Sort::Scheduled => "SCHEDULED",
        Sort::In => "IN/s",
        Sort::Out => "OUT/s",
        Sort::Size => "SIZE",
    };
    // The column of the order is seen where the first line is too long to say it.
    let goes_up = (by == Sort::Queue) != (turned == Turned::Yes);
    if let Some(head) = heads.iter_mut().find(|head| *head == sorted) {
        head.push(if goes_up { '↑' } else { '↓' });
    }
    let mut table = Table::new(&heads, heads.len(), colours);
    let rate = |rate: Option<f64>| {
        Cell::Right(rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")))
    };
    for row in rows {
        table.row(vec![
            Cell::Text(row.path.clone()),
            Cell::Number(row.active),
            Cell::Alarm(row.dead),
            Cell::Number(row.scheduled),
            Cell::Number(row.deferred),
            rate(row.rate_in),
            rate(row.rate_out),
            Cell::Right(BinaryBytes(row.size_bytes).to_string()),
        ]);
    }
    table
}

fn draw(
    screen: &mut Screen,
    session: &Session,
    rows: &mut [Row],
    (by, turned): (Sort, Turned),
    is_connected: bool,
) -> Result<(), Failure> {
    sort(rows, by, turned);
    let (columns, lines) = screen.size();
    let state = if is_connected { "" } else { "  connection lost, trying to get it back" };
    let order = if turned == Turned::Yes { ", turned" } else { "" };
    let now = session.client.now().to_string();
    // Seconds are enough.
    let now = now.get(..19).unwrap_or(&now).replace('T', " ");
    let total = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let head = format!(
        "peeklock top  {now}  {} queues, {} active, {} dead-lettered  by {}{order}{state}",
        rows.len(),
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

/// One reading as a line of JSON.
fn snapshot(session: &Session, rows: &[Row]) -> String {
    let queues: Vec<_> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "path": row.path,
                "active": row.active,
                "deadLettered": row.dead,
                "scheduled": row.scheduled,
                "deferred": row.deferred,
                "sizeInBytes": row.size_bytes,
                "inPerSecond": row.rate_in,
                "outPerSecond": row.rate_out,
            })
        })
        .collect();
    let at = session.client.now().to_string();
    format!("{}\n", json(&serde_json::json!({ "at": at, "queues": queues }).to_string()))
}
