//! `peeklock peek`: shows messages without receiving or locking them. `cli.rs` dispatches to it,
//! and the `dlq` commands read pages with it.

use std::time::Duration;

use clap::{Args, ValueEnum};
use peeklock::command::MessageState;
use peeklock::ids::SequenceNumber;
use peeklock::rule::sql::Fault;
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::{Received, Receiver};

use super::arguments::{Source, span_of};
use super::connect::{CommandConnection, Common, Patience};
use super::message::{BodyFlags, CELL_CHARS_MAX, Form, Writer, id, instant, messages, state_name};
use super::sql_condition::{SqlCondition, sql_condition};
use super::terminal::{Bar, Cell, Table, WriteOutcome, cut, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock peek orders
  peeklock peek orders --from 1001 -n 1 --long     one message with all details
  peeklock peek orders --state scheduled --all
  peeklock peek orders --dead-letter
  peeklock peek orders --where 'price > 5 AND sys.DeliveryCount > 0'
  peeklock peek steps --session order-17           also while a receiver holds the session
  peeklock peek orders --follow --body-only        each message that stays in the queue, once
  peeklock peek orders --all -o ndjson | peeklock send copies

Peeking changes nothing: you also see locked, deferred, scheduled and expired messages. The table \
shortens bodies; --long and the formats for programs show them in full.

--follow looks again and again, at most once each --interval, and shows messages that are in the queue at that moment. \
A message that a consumer has completed before the next look is not shown: next to an active consumer you may see \
few messages or none. To see every message, let a subscription of a topic receive copies.

--where takes the SQL of filters (`peeklock rule test --help`). This command evaluates it, with \
application properties, broker properties (`sys.`), and DeadLetterReason in a dead-letter queue.

A message whose time to live is over cannot be received, but you can peek it until a receiver \
reads the queue. The table marks it as expired if it has its own time to live.

",
    exit_codes!()
);

/// Messages per request.
pub const PAGE: u32 = 250;
/// Default rows of a table; a note reports that there are more.
const ROWS_DEFAULT: u64 = 20;
/// Maximum rows of a table, since it is printed only when complete.
pub const ROWS_MAX: u64 = 10_000;

#[derive(Args)]
pub struct PeekFlags {
    #[command(flatten)]
    source: Source,
    /// Sequence number to start from
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// Number of messages to show [default: 20; with --follow unlimited]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show all messages
    #[arg(long, conflicts_with = "count")]
    all: bool,
    /// Show only messages of one session
    #[arg(long, value_name = "ID", conflicts_with = "dead_letter")]
    session: Option<String>,
    /// Show only messages in one state
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Show only messages that meet an SQL condition, such as "price > 5"
    #[arg(long = "where", value_name = "SQL", value_parser = sql_condition)]
    condition: Option<SqlCondition>,
    /// Keep looking for new messages until Ctrl-C; messages that a consumer takes in between are
    /// missed
    #[arg(short, long, conflicts_with = "all")]
    follow: bool,
    /// Time between two looks with --follow
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = span_of, requires = "follow")]
    interval: TimeSpan,
    /// Show everything of each message instead of one line
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    body: BodyFlags,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    /// Available or locked
    Active,
    /// Deferred
    Deferred,
    /// Scheduled, not yet due
    Scheduled,
    /// Waiting for a retry delay to end
    Delayed,
}

impl State {
    fn is(self, state: MessageState) -> bool {
        match self {
            Self::Active => matches!(state, MessageState::Active | MessageState::Delayed),
            Self::Deferred => state == MessageState::Deferred,
            Self::Scheduled => state == MessageState::Scheduled,
            Self::Delayed => state == MessageState::Delayed,
        }
    }
}

pub fn run(flags: &PeekFlags) -> Result<(), Failure> {
    let patience = if flags.follow { Patience::Endless } else { Patience::Limited };
    flags.common.run(patience, async |session| {
        tokio::select! {
            result = peek(flags, session) => result,
            () = session.report_connection() => Ok(()),
        }
    })
}

async fn peek(flags: &PeekFlags, session: &CommandConnection) -> Result<(), Failure> {
    let path = flags.source.path();
    let receiver = session.client.receiver(&path)?;
    let count = match (flags.count, flags.all || flags.follow) {
        (Some(count), _) => count,
        (None, true) => u64::MAX,
        (None, false) => ROWS_DEFAULT,
    };
    let form = match flags.body.form(flags.common.output) {
        // A table that grows has no fixed column widths.
        Form::Long if !flags.long && !flags.follow => None,
        form => Some(form),
    };
    let condition = flags.condition.as_ref().map(SqlCondition::ready).transpose()?;
    let count = if form.is_some() { count } else { count.min(ROWS_MAX) };
    let mut table = table(session.out.colours);
    let mut writer = Writer::new(session.out, form.unwrap_or(Form::Long));
    let bar = Bar::for_file_output("peeking");
    let from = SequenceNumber(flags.from);
    let mut browse = Browse { session: flags.session.as_deref(), ..Browse::new(&receiver, from) };
    let (mut shown, mut next, mut is_cut, mut is_more) = (0, 0, false, false);
    // Number of messages that the condition cannot be evaluated for, and the first error.
    let mut unjudged: Option<(u64, Fault)> = None;
    'pages: loop {
        let page = tokio::select! {
            biased;
            () = session.interrupt.hit() => break,
            page = browse.page() => page,
        };
        let page = match page {
            // The connection is restored automatically.
            Err(Failure::Ended { code: exit::NO_CONNECTION, .. }) if flags.follow => continue,
            page => page?,
        };
        let is_end = page.is_empty();
        let wanted = |message: &&Received| flags.state.is_none_or(|is| is.is(message.state()));
        for message in page.iter().filter(wanted) {
            match condition.as_ref().map_or(Ok(true), |condition| condition.holds(message)) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(fault) => {
                    unjudged.get_or_insert((0, fault)).0 += 1;
                    continue;
                }
            }
            if shown == count {
                next = message.sequence_number().0;
                is_more = true;
                break 'pages;
            }
            shown += 1;
            if form.is_some() {
                if writer.message(message)? == WriteOutcome::OutputClosed {
                    return Ok(());
                }
                bar.advance(1);
                continue;
            }
            // Messages in dead-letter queues do not expire (EXP-39).
            let now = (!path.contains("/$")).then(|| session.client.now());
            let (cells, was_cut) = row(message, now);
            is_cut |= was_cut;
            table.row(cells);
        }
        if is_end && !flags.follow {
            break;
        }
        if is_end {
            tokio::select! {
                () = session.interrupt.hit() => break,
                () = tokio::time::sleep(flags.interval.to_std().max(Duration::from_millis(10))) => {}
            }
        }
    }
    drop(bar);
    receiver.close().await?;
    if form.is_some() {
        writer.end()?;
    } else if shown > 0 {
        let (text, was_narrow) = table.text(&session.out);
        session.out.print(&text)?;
        if is_cut || was_narrow {
            note("some text is shortened; --long or -o ndjson shows the full text");
        }
        if is_more {
            note(&format!(
                "there are more messages; `--from {next}` continues, --all -o ndjson shows all"
            ));
        }
    }
    if let Some((count, fault)) = unjudged {
        note(&format!(
            "left out, because --where cannot be evaluated for them: {}; {fault}",
            messages(count)
        ));
    }
    if session.interrupt.is_set() && !flags.follow {
        return Err(Failure::Reported(exit::INTERRUPTED));
    }
    if shown == 0 && !flags.follow {
        let is_whole = flags.from == 0
            && flags.session.is_none()
            && flags.state.is_none()
            && flags.condition.is_none();
        let missing = if is_whole { "messages" } else { "such message" };
        note(&format!("`{path}` has no {missing}"));
        return Err(Failure::Reported(exit::NOTHING));
    }
    Ok(())
}

/// Iterates over a queue from a sequence number.
pub struct Browse<'a> {
    receiver: &'a Receiver,
    /// Restricts the messages to this session.
    session: Option<&'a str>,
    next: SequenceNumber,
}

impl<'a> Browse<'a> {
    pub const fn new(receiver: &'a Receiver, from: SequenceNumber) -> Self {
        Self { receiver, session: None, next: from }
    }

    /// Returns the next messages; empty at the end. Dropping the future skips none.
    pub async fn page(&mut self) -> Result<Vec<Received>, Failure> {
        let page = match self.session {
            Some(session) => self.receiver.peek_session(session, self.next, PAGE).await?,
            None => self.receiver.peek(self.next, PAGE).await?,
        };
        if let Some(last) = page.last() {
            self.next = last.sequence_number().next();
        }
        Ok(page)
    }
}

fn table(colours: bool) -> Table {
    Table::new(&["SEQUENCE", "STATE", "ENQUEUED", "TRIES", "ID", "SUBJECT", "BODY"], 4, colours)
}

/// Cells of a message. `now` is present if the message can expire.
fn row(message: &Received, now: Option<Timestamp>) -> (Vec<Cell>, bool) {
    let is_expired = message.state() != MessageState::Scheduled
        && matches!((message.expires_at(), now), (Some(at), Some(now)) if at <= now);
    let mut state = state_name(message.state()).to_owned();
    if is_expired {
        state.push_str(", expired");
    }
    let cell = |text: &str| cut(text.as_bytes(), CELL_CHARS_MAX);
    let (id, id_cut) = cell(&id(message.message()));
    let (subject, subject_cut) = cell(message.message().subject.as_deref().unwrap_or_default());
    let (body, body_cut) = cut(message.body(), CELL_CHARS_MAX);
    let cells = vec![
        Cell::Number(message.sequence_number().0),
        Cell::Text(state),
        Cell::Text(instant(message.enqueued_at())),
        Cell::Number(message.delivery_count().into()),
        Cell::Text(id),
        Cell::Text(subject),
        Cell::Text(body),
    ];
    (cells, id_cut || subject_cut || body_cut)
}
