//! `peeklock inspect`: entities with their counts, and messages in any state without their bodies.
//! Nothing changes, not even the time of the last access (CON-01).

use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use peeklock::command::LAST_ERROR_PROPERTY;
use peeklock::description::EntityKind;
use peeklock::ids::SequenceNumber;
use peeklock::inspect::{
    EntityCondition, EntityOrder, EntityPage, EntityQuery, EntityRow, Findings, Found, Head,
    HeadOrder, HeadPage, HeadQuery, HeadStart, HeadState, HeadStates, Holder, HolderFacts,
    LockFacts, Question, ROW_COUNT_MAX,
};
use peeklock::message::{DEAD_LETTER_ERROR_DESCRIPTION, Message, Value};
use peeklock::path::dead_letter_path;
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::findings_to_json;

use super::arguments::{When, when};
use super::connect::{CommandConnection, Common, Output, Patience};
use super::listing::objects;
use super::message::{CELL_CHARS_MAX, id, instant};
use super::terminal::{Cell, Table, WriteOutcome, cut, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock inspect                                 all entities with counts and rates
  peeklock inspect --condition has-dead-letters,grows --sort dead-letter
  peeklock inspect orders                          messages in any state, with their locks
  peeklock inspect orders --state locked,deferred -n 50
  peeklock inspect orders --descending -n 10       the newest messages
  peeklock inspect orders --since 2026-05-01T12:00:00Z --all -o ndjson
  peeklock inspect orders -d                       its dead letters
  peeklock inspect orders --body 1001 > body       the bytes of a body

Unlike `peek`, this command leaves no trace: it does not even count as a use of the entity. It \
reads no body, only its first 256 bytes.

",
    exit_codes!()
);

/// Rows of a table, unless the command line gives a number.
const ROWS_DEFAULT: u32 = 20;
/// Maximum rows of a table, since it is printed only when complete.
const ROWS_MAX: usize = 10_000;
/// Bytes of a body in one request.
const PART_BYTES: u64 = 1 << 20;

#[derive(Args)]
pub struct InspectFlags {
    /// Queue, such as `orders`, topic, subscription or sub-queue; without it, all entities
    entity: Option<String>,
    /// Use its dead-letter queue instead
    #[arg(short, long, requires = "entity")]
    dead_letter: bool,
    /// Show only messages in these states
    #[arg(long, value_name = "STATE", value_delimiter = ',', requires = "entity")]
    state: Vec<State>,
    /// Sequence number to start from
    #[arg(long, value_name = "NUMBER", requires = "entity", conflicts_with = "since")]
    from: Option<u64>,
    /// Start with messages enqueued at this instant, such as 2026-05-01T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = when, requires = "entity")]
    since: Option<When>,
    /// Show only messages of this session
    #[arg(long, value_name = "ID", requires = "entity")]
    session: Option<String>,
    /// Write the bytes of the body of this message, unchanged
    #[arg(long, value_name = "NUMBER", requires = "entity", conflicts_with_all = ["state", "from",
        "since", "session", "count", "all", "descending"])]
    body: Option<u64>,
    /// Show only entities that meet all of these conditions
    #[arg(long, value_name = "CONDITION", value_delimiter = ',', conflicts_with = "entity")]
    condition: Vec<Condition>,
    /// Show only entities of this kind
    #[arg(long, value_name = "KIND", conflicts_with = "entity")]
    kind: Option<Kind>,
    /// Show only entities whose path contains this text
    #[arg(long, value_name = "TEXT", conflicts_with = "entity")]
    filter: Option<String>,
    /// Sort entities by this column, highest first except for `path` and `oldest`
    #[arg(long, value_name = "COLUMN", default_value = "path", conflicts_with = "entity")]
    sort: Sort,
    /// Reverse the order
    #[arg(long)]
    descending: bool,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    common: Common,
}

/// Number of rows to show.
#[derive(Args)]
pub struct Rows {
    /// Number of rows to show [default: 20]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Show all
    #[arg(long, conflicts_with = "count")]
    all: bool,
}

impl Rows {
    pub fn count(&self, output: Output) -> usize {
        let count = match self.count {
            Some(count) => count as usize,
            None if self.all => usize::MAX,
            None => ROWS_DEFAULT as usize,
        };
        if output == Output::Table { count.min(ROWS_MAX) } else { count }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// Available
    Active,
    /// Waiting for a retry delay to end
    Delayed,
    /// Locked by a receiver
    Locked,
    /// Deferred
    Deferred,
    /// Scheduled, not yet due
    Scheduled,
    /// Expired, but still stored
    Expired,
    /// Waiting for its transfer to another entity
    Transferring,
}

impl From<State> for HeadState {
    fn from(state: State) -> Self {
        match state {
            State::Active => Self::Active,
            State::Delayed => Self::Delayed,
            State::Locked => Self::Locked,
            State::Deferred => Self::Deferred,
            State::Scheduled => Self::Scheduled,
            State::Expired => Self::Expired,
            State::Transferring => Self::Transferring,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Condition {
    /// Has dead letters
    HasDeadLetters,
    /// Accepts more messages than it removes
    Grows,
    /// Is a queue or subscription without a receiver
    HasNoReceiver,
    /// Has another status than Active
    IsDisabled,
    /// Is over 80 % of its maximum size
    IsNearlyFull,
}

impl From<Condition> for EntityCondition {
    fn from(condition: Condition) -> Self {
        match condition {
            Condition::HasDeadLetters => Self::HasDeadLetters,
            Condition::Grows => Self::Grows,
            Condition::HasNoReceiver => Self::HasNoReceiver,
            Condition::IsDisabled => Self::IsDisabled,
            Condition::IsNearlyFull => Self::IsNearlyFull,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Queue,
    Topic,
    Subscription,
}

impl From<Kind> for EntityKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Queue => Self::Queue,
            Kind::Topic => Self::Topic,
            Kind::Subscription => Self::Subscription,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Path,
    Active,
    Locked,
    DeadLetter,
    Scheduled,
    Total,
    Size,
    Receivers,
    /// Age of the oldest available message
    Oldest,
    /// Messages accepted per second
    In,
    /// Messages removed per second
    Out,
}

impl From<Sort> for EntityOrder {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Path => Self::Path,
            Sort::Active => Self::Active,
            Sort::Locked => Self::Locked,
            Sort::DeadLetter => Self::DeadLetter,
            Sort::Scheduled => Self::Scheduled,
            Sort::Total => Self::Total,
            Sort::Size => Self::Size,
            Sort::Receivers => Self::Receivers,
            Sort::Oldest => Self::Oldest,
            Sort::In => Self::Accepted,
            Sort::Out => Self::Removed,
        }
    }
}

pub fn run(flags: &InspectFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| match (&flags.entity, flags.body) {
        (None, _) => entities(flags, session).await,
        (Some(entity), Some(number)) => body(session, &path(flags, entity), number).await,
        (Some(entity), None) => heads(flags, session, &path(flags, entity)).await,
    })
}

fn path(flags: &InspectFlags, entity: &str) -> String {
    if flags.dead_letter { dead_letter_path(entity) } else { entity.to_owned() }
}

/// Asks a question. An answer of another kind is a fault of the broker.
pub async fn ask<T>(
    session: &CommandConnection,
    path: &str,
    question: Question,
    read: impl FnOnce(&Found) -> Option<T>,
) -> Result<(T, Findings), Failure> {
    let findings = session.client.admin().inspect(path, question).await?;
    match read(&findings.found) {
        Some(found) => Ok((found, findings)),
        None => Err(Failure::Failed("the broker sent an unexpected answer".to_owned())),
    }
}

/// Number of rows in the next page.
pub fn page_rows(count: usize, shown: usize) -> u32 {
    let rest = count.saturating_sub(shown).min(ROW_COUNT_MAX as usize);
    u32::try_from(rest).unwrap_or(ROW_COUNT_MAX)
}

/// Prints a table, and a note if it is not complete.
pub fn print_table(
    session: &CommandConnection,
    table: Table,
    (shown, is_more): (usize, bool),
    nothing: &str,
) -> Result<(), Failure> {
    if shown == 0 {
        note(nothing);
        return Err(Failure::Reported(exit::NOTHING));
    }
    let (text, _) = table.text(&session.out);
    session.out.print(&text)?;
    if is_more {
        note("there are more; -n shows more rows, --all -o ndjson shows all");
    }
    Ok(())
}

async fn heads(
    flags: &InspectFlags,
    session: &CommandConnection,
    path: &str,
) -> Result<(), Failure> {
    let start = match (flags.from, flags.since) {
        (Some(number), _) => HeadStart::Number(SequenceNumber(number)),
        (None, Some(when)) => HeadStart::Instant(when.from(session.client.now())),
        (None, None) => HeadStart::End,
    };
    let states: HeadStates = flags.state.iter().copied().map(HeadState::from).collect();
    let query = HeadQuery {
        session: flags.session.as_deref().map(Into::into),
        states: if states.is_empty() { HeadStates::ALL } else { states },
        is_descending: flags.descending,
        start,
        ..HeadQuery::default()
    };
    show_heads(session, path, query, (&flags.rows, flags.common.output)).await
}

/// Shows messages in the order of a query.
pub async fn show_heads(
    session: &CommandConnection,
    path: &str,
    mut query: HeadQuery,
    (rows, output): (&Rows, Output),
) -> Result<(), Failure> {
    let count = rows.count(output);
    let is_by_instant = query.order != HeadOrder::Number;
    let mut table = head_table(session.out.colours, is_by_instant);
    let (mut all, mut shown) = (Vec::new(), 0);
    let is_more = loop {
        query.count_max = page_rows(count, shown);
        let heads = |found: &Found| match found {
            Found::Heads(HeadPage { heads, next, .. }) => Some((heads.clone(), *next)),
            _ => None,
        };
        let ((heads, next), findings) =
            ask(session, path, Question::Heads(query.clone()), heads).await?;
        shown += heads.len();
        if output == Output::Table {
            for head in &heads {
                table.row(head_row(head, findings.at, query.order));
            }
        } else {
            all.extend(findings_to_json(findings));
        }
        if session.interrupt.is_set() {
            return Err(Failure::Reported(exit::INTERRUPTED));
        }
        let Some(next) = next else { break false };
        if shown >= count {
            break true;
        }
        query.start = HeadStart::After(next);
    };
    if output != Output::Table {
        return objects(session.out, output, all);
    }
    print_table(session, table, (shown, is_more), &format!("`{path}` has no such message"))
}

fn head_table(colours: bool, is_by_instant: bool) -> Table {
    let third = if is_by_instant { "AT" } else { "ENQUEUED" };
    let heads = ["SEQUENCE", "STATE", third, "TRIES", "SIZE", "ID", "SUBJECT", "ERROR", "LOCK"];
    Table::new(&heads, 5, colours)
}

fn head_row(head: &Head, now: Timestamp, order: HeadOrder) -> Vec<Cell> {
    let facts = &head.facts;
    let at = match order {
        HeadOrder::Number | HeadOrder::ScheduledAt => facts.message.enqueued_at,
        HeadOrder::ExpiresAt => facts.expires_at,
    };
    let text = |text: &str| Cell::Text(cut(text.as_bytes(), CELL_CHARS_MAX).0);
    let message = head.content.as_ref().map(|content| &content.message);
    vec![
        Cell::Number(facts.message.sequence.0),
        Cell::Text(state_name(facts.state).to_owned()),
        Cell::Text(instant(at)),
        Cell::Number(facts.message.delivery_count.into()),
        Cell::Right(BinaryBytes(facts.message.size.into()).to_string()),
        text(&message.map(id).unwrap_or_else(|| "(unreadable)".to_owned())),
        text(message.and_then(|message| message.subject.as_deref()).unwrap_or_default()),
        text(message.and_then(error_of).unwrap_or_default()),
        text(&facts.lock.as_ref().map(|lock| lock_text(lock, now)).unwrap_or_default()),
    ]
}

/// Description of a dead letter, or the error of the last attempt (SET-42).
fn error_of(message: &Message) -> Option<&str> {
    let keys = [DEAD_LETTER_ERROR_DESCRIPTION, LAST_ERROR_PROPERTY];
    keys.into_iter().find_map(|key| match message.application_property(key)? {
        Value::String(text) => Some(text.as_str()),
        _ => None,
    })
}

pub const fn state_name(state: HeadState) -> &'static str {
    match state {
        HeadState::Active => "active",
        HeadState::Delayed => "delayed",
        HeadState::Locked => "locked",
        HeadState::Deferred => "deferred",
        HeadState::Scheduled => "scheduled",
        HeadState::Expired => "expired",
        HeadState::Transferring => "transferring",
    }
}

/// Text of a lock: the time that is left, and its holder.
fn lock_text(lock: &LockFacts<Holder>, now: Timestamp) -> String {
    let left = span(lock.until.since(now));
    let renewals = match lock.renewals {
        0 => String::new(),
        1 => ", 1 renewal".to_owned(),
        count => format!(", {count} renewals"),
    };
    let holder = holder_text(lock);
    format!("{left} left{renewals}{}{holder}", if holder.is_empty() { "" } else { ", " })
}

/// Text of the holder of a lock; empty if it is not known.
pub fn holder_text(lock: &LockFacts<Holder>) -> String {
    lock.holder.as_deref().map(client_text).unwrap_or_default()
}

/// Text of a client that holds or held a lock.
pub fn client_text(holder: &HolderFacts) -> String {
    let name = match (&holder.name, &holder.policy) {
        (Some(name), _) => (**name).to_owned(),
        (None, Some(policy)) => format!("policy `{policy}`"),
        (None, None) => format!("client {}", holder.client.0),
    };
    match holder.peer {
        Some(peer) => format!("{name} ({peer})"),
        None => format!("{name} over {}", holder.transport),
    }
}

/// Text of a duration in its two largest units.
pub fn span(span: TimeSpan) -> String {
    let seconds = span.as_ms() / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

async fn body(session: &CommandConnection, path: &str, number: u64) -> Result<(), Failure> {
    let (sequence, mut from) = (SequenceNumber(number), 0);
    loop {
        let question = Question::Body { sequence, from, length: PART_BYTES };
        let part = |found: &Found| match found {
            Found::Body(part) => Some((part.bytes.clone(), part.length)),
            _ => None,
        };
        let ((bytes, length), _) = ask(session, path, question, part).await?;
        from += bytes.len() as u64;
        let is_end = bytes.is_empty() || from >= length;
        if session.out.write(&bytes)? == WriteOutcome::OutputClosed || is_end {
            return Ok(());
        }
        if session.interrupt.is_set() {
            return Err(Failure::Reported(exit::INTERRUPTED));
        }
    }
}

async fn entities(flags: &InspectFlags, session: &CommandConnection) -> Result<(), Failure> {
    let output = flags.common.output;
    let count = flags.rows.count(output);
    // The highest numbers are of most interest; the oldest message has the lowest instant.
    let is_highest_first = !matches!(flags.sort, Sort::Path | Sort::Oldest);
    let mut query = EntityQuery {
        path: flags.filter.as_deref().map(Into::into),
        kind: flags.kind.map(Into::into),
        conditions: flags.condition.iter().copied().map(Into::into).collect(),
        order: flags.sort.into(),
        is_descending: is_highest_first != flags.descending,
        after: None,
        count_max: ROW_COUNT_MAX,
    };
    let heads = [
        "ENTITY", "KIND", "ACTIVE", "LOCKED", "DEAD", "SCHED", "SIZE", "RECV", "OLDEST", "IN/s",
        "OUT/s",
    ];
    let mut table = Table::new(&heads, heads.len(), session.out.colours)
        .with_importance(vec![0, 2, 4, 9, 10, 3, 8, 5, 6, 7, 1], 3);
    let (mut all, mut shown) = (Vec::new(), 0);
    let is_more = loop {
        query.count_max = page_rows(count, shown);
        let rows = |found: &Found| match found {
            Found::Entities(EntityPage { entities, next, .. }) => {
                Some((entities.clone(), next.clone()))
            }
            _ => None,
        };
        let ((rows, next), findings) =
            ask(session, "", Question::Entities(query.clone()), rows).await?;
        shown += rows.len();
        if output == Output::Table {
            rows.iter().for_each(|row| table.row(entity_row(row, findings.at)));
        } else {
            all.extend(findings_to_json(findings));
        }
        let Some(next) = next else { break false };
        if shown >= count {
            break true;
        }
        query.after = Some(next);
    };
    if output != Output::Table {
        return objects(session.out, output, all);
    }
    print_table(session, table, (shown, is_more), "there is no such entity")
}

/// Messages per second; `-` if they are not known.
pub fn rate(rate: Option<f64>) -> Cell {
    Cell::Right(rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")))
}

fn entity_row(row: &EntityRow, now: Timestamp) -> Vec<Cell> {
    let (readings, counts) = (&row.readings, &row.readings.counts);
    let oldest = readings.oldest_at.map(|at| span(now.since(at)));
    vec![
        Cell::Text((*row.path).to_owned()),
        Cell::Text(row.kind.noun().to_owned()),
        Cell::Number(counts.active),
        Cell::Number(readings.locks),
        Cell::Alarm(counts.dead_letter + counts.transfer_dead_letter),
        Cell::Number(counts.scheduled),
        Cell::Right(BinaryBytes(row.total_size).to_string()),
        Cell::Number(readings.receivers),
        Cell::Right(oldest.unwrap_or_else(|| "-".to_owned())),
        rate(row.rates.map(|rates| rates.accepted)),
        rate(row.rates.map(|rates| rates.removed)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_has_its_two_largest_units() {
        let text = |seconds| span(TimeSpan::from_seconds(seconds));
        let all = [0, 59, 60, 250, 3_600, 86_399, 86_400, 180_000].map(text);
        assert_eq!(all, ["0s", "59s", "1m 0s", "4m 10s", "1h 0m", "23h 59m", "1d 0h", "2d 2h"]);
    }
}
