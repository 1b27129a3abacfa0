//! `peeklock dlq list`: lists dead letters with their reasons. `dlq.rs` dispatches to it.

use clap::Args;
use peeklock::ids::SequenceNumber;
use peeklock::path::dead_letter_path;
use peeklock::websocket::client::Received;

use super::super::arguments::queue_of;
use super::super::connect::{CommandConnection, Common, Output, Patience};
use super::super::message::{CELL_CHARS_MAX, Form, Writer, id, instant};
use super::super::peek::{Browse, ROWS_MAX};
use super::super::terminal::{Cell, Table, WriteOutcome, cut, note};
use super::super::{Failure, exit};
use super::condition::{MessageCondition, all_hold, condition, conditions};
use super::explain_topic;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock dlq list orders
  peeklock dlq list orders --where reason=MaxDeliveryCountExceeded
  peeklock dlq list orders --where 'description~timeout' -o ndjson

",
    conditions!(),
    "\n\n",
    exit_codes!()
);

/// Default rows of the table; a note reports that there are more.
const ROWS_DEFAULT: u64 = 100;

#[derive(Args)]
pub struct ListFlags {
    /// Queue, such as `orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// List only messages that meet a condition; may be repeated
    #[arg(long = "where", value_name = "CONDITION", value_parser = condition)]
    conditions: Vec<MessageCondition>,
    /// Sequence number to start from
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// Maximum number of messages to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    count: u64,
    /// Show all messages
    #[arg(long, conflicts_with = "count")]
    all: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        explain_topic(session, &flags.queue, list(flags, session).await).await
    })
}

async fn list(flags: &ListFlags, session: &CommandConnection) -> Result<(), Failure> {
    let path = dead_letter_path(&flags.queue);
    let receiver = session.client.receiver(&path)?;
    let count = if flags.all { u64::MAX } else { flags.count };
    let count = if flags.common.output == Output::Table { count.min(ROWS_MAX) } else { count };
    let form = match flags.common.output {
        Output::Table => None,
        Output::Json => Some(Form::Json),
        Output::Ndjson => Some(Form::Ndjson),
    };
    let mut rows = Rows::new(session.out.colours);
    let mut writer = Writer::new(session.out, form.unwrap_or(Form::Ndjson));
    let mut browse = Browse::new(&receiver, SequenceNumber(flags.from));
    let (mut shown, mut is_more) = (0, false);
    'pages: loop {
        let page = browse.page().await?;
        if page.is_empty() || session.interrupt.is_set() {
            break;
        }
        for message in page.iter().filter(|message| all_hold(&flags.conditions, message)) {
            if shown == count {
                is_more = true;
                break 'pages;
            }
            shown += 1;
            if form.is_none() {
                rows.add(message);
            } else if writer.message(message)? == WriteOutcome::OutputClosed {
                return Ok(());
            }
        }
    }
    receiver.close().await?;
    if form.is_some() {
        writer.end()?;
    } else if shown > 0 {
        rows.show(session)?;
    }
    if session.interrupt.is_set() {
        return Err(Failure::Reported(exit::INTERRUPTED));
    }
    if is_more {
        note("there are more messages; --all -o ndjson shows all");
    }
    if shown == 0 && form.is_none() {
        let is_whole = flags.from == 0 && flags.conditions.is_empty();
        let missing = if is_whole { "messages" } else { "such message" };
        note(&format!("`{path}` has no {missing}"));
    }
    Ok(())
}

/// Table of dead letters.
pub struct Rows {
    table: Table,
    count: u64,
    is_cut: bool,
}

impl Rows {
    pub fn new(colours: bool) -> Self {
        let heads = ["SEQUENCE", "ENQUEUED", "TRIES", "REASON", "DESCRIPTION", "ID", "BODY"];
        Self { table: Table::new(&heads, 4, colours), count: 0, is_cut: false }
    }

    /// Adds a dead letter, up to `ROWS_MAX`.
    pub fn add(&mut self, message: &Received) {
        self.count += 1;
        if self.count > ROWS_MAX {
            return;
        }
        let mut cell = |bytes: &[u8]| {
            let (text, is_cut) = cut(bytes, CELL_CHARS_MAX);
            self.is_cut |= is_cut;
            Cell::Text(text)
        };
        let reason = message.dead_letter_reason().unwrap_or_default();
        let description = message.dead_letter_error_description().unwrap_or_default();
        let cells = vec![
            Cell::Number(message.sequence_number().0),
            Cell::Text(instant(message.enqueued_at())),
            Cell::Number(message.delivery_count().into()),
            cell(reason.as_bytes()),
            cell(description.as_bytes()),
            cell(id(message.message()).as_bytes()),
            cell(message.body()),
        ];
        self.table.row(cells);
    }

    pub fn show(self, session: &CommandConnection) -> Result<(), Failure> {
        let (text, was_narrow) = self.table.text(&session.out);
        session.out.print(&text)?;
        if self.count > ROWS_MAX {
            note(&format!("and {} more; -o ndjson shows all", self.count - ROWS_MAX));
        }
        if self.is_cut || was_narrow {
            note("some text is shortened; `peeklock dlq show` or -o ndjson shows the full text");
        }
        Ok(())
    }
}
