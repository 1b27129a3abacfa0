//! `peeklock schedule`: commands for messages that are not yet due, and for expiry. `cli.rs` dispatches to
//! it.

use clap::{Args, Subcommand};
use peeklock::ids::SequenceNumber;
use peeklock::inspect::{
    Found, HeadOrder, HeadQuery, HeadStart, Question, SLOT_MAX, SLOT_MIN, Timeline, TimelineOf,
    TimelineQuery,
};
use peeklock::time::TimeSpan;
use peeklock::websocket::client::findings_to_json;

use super::Failure;
use super::arguments::{When, sequence_number, span_of, when};
use super::connect::{Common, Output, Patience};
use super::inspect::{Rows, ask, show_heads};
use super::listing::objects;
use super::message::instant;
use super::terminal::{Cell, Table, note};

pub const HELP: &str = "\
Examples:
  peeklock send orders 'remind me' --at +1h        schedule, and print the sequence number
  peeklock schedule show                           count scheduled messages by time
  peeklock schedule show orders --list             list them by time
  peeklock schedule cancel orders 1001";

const SHOW_HELP: &str = concat!(
    "\
Examples:
  peeklock schedule show                           all entities, the next hour by minute
  peeklock schedule show orders --slot 1h --slots 24
  peeklock schedule show orders --from +1d         from this time tomorrow
  peeklock schedule show orders --expiring         messages that will expire
  peeklock schedule show orders --list -n 50       messages instead of counts

Only messages that are available are counted as expiring. Nothing changes, not even the time of \
the last access.

",
    exit_codes!()
);

const CANCEL_HELP: &str = concat!(
    "\
Examples:
  peeklock schedule cancel orders 1001
  peeklock schedule cancel orders 1001 1002        both, or none if one does not exist
  peeklock peek orders --state scheduled --all     list messages that can be cancelled
  peeklock send orders 'remind me' --at +1h        schedule a message

",
    exit_codes!()
);

#[derive(Subcommand)]
pub enum ScheduleCommand {
    /// Cancel scheduled messages before they become available: all given ones, or none
    #[command(after_help = CANCEL_HELP)]
    Cancel(CancelFlags),
    /// Count scheduled or expiring messages by time, or list them
    #[command(after_help = SHOW_HELP)]
    Show(ShowFlags),
}

#[derive(Args)]
pub struct ShowFlags {
    /// Queue, such as `orders`, topic or subscription; without it, all entities
    entity: Option<String>,
    /// Length of a slot, 10s to 1d
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = slot)]
    slot: TimeSpan,
    /// Number of slots
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=240))]
    slots: u16,
    /// Start of the first slot, such as +1h or 2026-05-01T12:00:00Z [default: now]
    #[arg(long, value_name = "WHEN", value_parser = when)]
    from: Option<When>,
    /// Use the instants at which available messages expire
    #[arg(long)]
    expiring: bool,
    /// List messages instead of counts
    #[arg(long, requires = "entity")]
    list: bool,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    common: Common,
}

fn slot(text: &str) -> Result<TimeSpan, String> {
    let slot = span_of(text)?;
    if (SLOT_MIN..=SLOT_MAX).contains(&slot) {
        return Ok(slot);
    }
    Err("expected a duration of 10s to 1d".to_owned())
}

#[derive(Args)]
pub struct CancelFlags {
    /// Queue, such as `orders`
    queue: String,
    /// Sequence numbers, as printed by `send`, such as 1001
    #[arg(required = true, value_name = "NUMBER", num_args = 1..=4096, value_parser = sequence_number)]
    numbers: Vec<u64>,
    #[command(flatten)]
    common: Common,
}

pub fn run(command: &ScheduleCommand) -> Result<(), Failure> {
    match command {
        ScheduleCommand::Cancel(flags) => cancel(flags),
        ScheduleCommand::Show(flags) => show(flags),
    }
}

/// Width of the longest bar.
const BAR_CHARS: u64 = 40;

fn show(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let (path, output) = (flags.entity.as_deref().unwrap_or_default(), flags.common.output);
        let from = flags.from.map(|when| when.from(session.client.now()));
        if flags.list {
            let order = if flags.expiring { HeadOrder::ExpiresAt } else { HeadOrder::ScheduledAt };
            let start = from.map_or(HeadStart::End, HeadStart::Instant);
            let query = HeadQuery { order, start, ..HeadQuery::default() };
            return show_heads(session, path, query, (&flags.rows, output)).await;
        }
        let query = TimelineQuery {
            of: if flags.expiring { TimelineOf::Expiring } else { TimelineOf::Scheduled },
            from: from.unwrap_or_else(|| session.client.now()),
            slot: flags.slot,
            slot_count: flags.slots,
            after: None,
        };
        let timeline = |found: &Found| match found {
            Found::Timeline(timeline) => Some(timeline.clone()),
            _ => None,
        };
        let (timeline, findings) = ask(session, path, Question::Timeline(query), timeline).await?;
        if output != Output::Table {
            return objects(session.out, output, findings_to_json(findings));
        }
        session.out.print(&chart(&timeline, flags.expiring, session.out.colours))?;
        if timeline.omitted_entities > 0 {
            note(&format!("{} entities were not counted", timeline.omitted_entities));
        }
        Ok(())
    })
}

/// Text of a timeline: the slots with messages, each with a bar.
fn chart(timeline: &Timeline, is_expiring: bool, colours: bool) -> String {
    let head = if is_expiring { "EXPIRING" } else { "SCHEDULED" };
    let mut table = Table::new(&["FROM", head, ""], 3, colours);
    let most = timeline.counts.iter().copied().max().unwrap_or(0).max(1);
    let mut at = timeline.from;
    for count in &timeline.counts {
        if *count > 0 {
            let length = (count.saturating_mul(BAR_CHARS) / most).max(1);
            let bar = "█".repeat(usize::try_from(length).unwrap_or(1));
            table.row(vec![Cell::Text(instant(at)), Cell::Number(*count), Cell::Text(bar)]);
        }
        at = at.plus(timeline.slot);
    }
    for (name, count) in [("before", timeline.before), ("later", timeline.later)] {
        table.row(vec![
            Cell::Text(name.to_owned()),
            Cell::Number(count),
            Cell::Text(String::new()),
        ]);
    }
    let (lines, _) = table.lines(None);
    format!("{}\n", lines.join("\n"))
}

fn cancel(flags: &CancelFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let numbers: Vec<_> = flags.numbers.iter().copied().map(SequenceNumber).collect();
        let sender = session.client.sender(&flags.queue)?;
        sender.cancel_scheduled(numbers).await.map_err(|error| {
            Failure::from(error).hint(&format!(
                "nothing was cancelled; `peeklock peek {} --state scheduled` lists the scheduled \
                 messages",
                flags.queue
            ))
        })?;
        let count = flags.numbers.len();
        match flags.common.output {
            Output::Table => {
                let messages = if count == 1 { "message" } else { "messages" };
                session.out.print(&format!("cancelled {count} {messages}\n"))
            }
            Output::Json | Output::Ndjson => {
                let object = serde_json::json!({ "cancelled": flags.numbers });
                session.out.print(&format!("{object}\n"))
            }
        }
    })
}
