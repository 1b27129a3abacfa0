//! `peeklock locks`, `sessions` and `clients`: locks and sessions with their holders, and connected
//! clients with their links. Nothing changes (CON-01), unless `operate.rs` breaks or closes one.

use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use peeklock::command::SessionFilter;
use peeklock::inspect::{
    ClientFacts, ClientPage, ClientQuery, Found, Holder, LockFacts, LockOrder, LockPage, LockQuery,
    LockRow, Question, SessionOrder, SessionPage, SessionQuery, SessionRow,
};
use peeklock::time::Timestamp;
use peeklock::websocket::client::findings_to_json;

use super::arguments::queue_of;
use super::connect::{CommandConnection, Common, Output, Patience};
use super::inspect::{Rows, ask, holder_text, page_rows, print_table, span};
use super::listing::objects;
use super::message::counted;
use super::operate::{self, ClientsCommand, LocksCommand};
use super::terminal::{Cell, Table, WriteOutcome, note};
use super::{Failure, exit};

pub const LOCKS_HELP: &str = concat!(
    "\
Examples:
  peeklock locks orders                            the next to end first
  peeklock locks orders --sort age                 the oldest first
  peeklock locks steps                             the locks of its sessions
  peeklock locks orders --all -o ndjson
  peeklock locks break orders 1001                 end a lock

The holder of a lock is the client that received the message. A lock may outlive its connection.

",
    exit_codes!()
);

pub const SESSIONS_HELP: &str = concat!(
    "\
Examples:
  peeklock sessions steps
  peeklock sessions steps --sort oldest            the session that waits longest
  peeklock sessions steps --stuck
  peeklock sessions steps --state order-17         the state, also while a receiver holds it

A session is stuck if its oldest message waits longer than ten lock durations. `session list` \
lists only ids.

",
    exit_codes!()
);

pub const CLIENTS_HELP: &str = concat!(
    "\
Examples:
  peeklock clients
  peeklock clients --entity orders --links         clients of a queue, with their links
  peeklock clients --transport amqp
  peeklock clients close 17                        end a connection

",
    exit_codes!()
);

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct LocksFlags {
    #[command(subcommand)]
    command: Option<LocksCommand>,
    /// Queue, such as `orders`, or subscription, such as `orders/subscriptions/eu`
    #[arg(required = true)]
    queue: Option<String>,
    /// Order of the locks
    #[arg(long, value_name = "ORDER", default_value = "end")]
    sort: LockSort,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LockSort {
    /// The next to end first
    End,
    /// The oldest first
    Age,
}

#[derive(Args)]
pub struct SessionsFlags {
    /// Queue, such as `steps`, or subscription
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Sort by this column
    #[arg(long, value_name = "COLUMN", default_value = "session")]
    sort: SessionSort,
    /// Reverse the order
    #[arg(long)]
    descending: bool,
    /// Show only sessions that are stuck
    #[arg(long)]
    stuck: bool,
    /// Write the bytes of the state of this session, unchanged
    #[arg(long, value_name = "ID", conflicts_with_all = ["sort", "descending", "stuck", "count", "all"])]
    state: Option<String>,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SessionSort {
    Session,
    Active,
    Deferred,
    Scheduled,
    /// The session whose oldest message waits longest comes first
    Oldest,
    StateSize,
    StateSet,
    LockEnd,
}

impl From<SessionSort> for SessionOrder {
    fn from(sort: SessionSort) -> Self {
        match sort {
            SessionSort::Session => Self::Name,
            SessionSort::Active => Self::Active,
            SessionSort::Deferred => Self::Deferred,
            SessionSort::Scheduled => Self::Scheduled,
            SessionSort::Oldest => Self::Oldest,
            SessionSort::StateSize => Self::StateSize,
            SessionSort::StateSet => Self::StateSetAt,
            SessionSort::LockEnd => Self::LockedUntil,
        }
    }
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct ClientsFlags {
    #[command(subcommand)]
    command: Option<ClientsCommand>,
    /// Show only clients of this transport, such as amqp
    #[arg(long, value_name = "NAME")]
    transport: Option<String>,
    /// Show only clients with a link to this entity
    #[arg(long, value_name = "PATH")]
    entity: Option<String>,
    /// Show only clients whose name contains this text
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Show a row for each link
    #[arg(long)]
    links: bool,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    common: Common,
}

pub fn locks(flags: &LocksFlags) -> Result<(), Failure> {
    if let Some(command) = &flags.command {
        return operate::locks(command);
    }
    let queue = flags.queue.as_deref().unwrap_or_default();
    flags.common.run(Patience::Limited, async |session| {
        let output = flags.common.output;
        let count = flags.rows.count(output);
        let order = match flags.sort {
            LockSort::End => LockOrder::End,
            LockSort::Age => LockOrder::Age,
        };
        let heads =
            ["SEQUENCE", "SESSION", "AGE", "LEFT", "RENEWALS", "HOLDER", "TRANSPORT", "POLICY"];
        let mut table = Table::new(&heads, 5, session.out.colours);
        let (mut all, mut shown, mut after) = (Vec::new(), 0, None);
        let is_more = loop {
            let query = LockQuery { order, from: 0, after, count_max: page_rows(count, shown) };
            let rows = |found: &Found| match found {
                Found::Locks(LockPage { locks, next, .. }) => Some((locks.clone(), *next)),
                _ => None,
            };
            let ((rows, next), findings) =
                ask(session, queue, Question::Locks(query), rows).await?;
            shown += rows.len();
            if output == Output::Table {
                rows.iter().for_each(|row| table.row(lock_row(row, findings.at)));
            } else {
                all.extend(findings_to_json(findings));
            }
            if next.is_none() || shown >= count {
                break next.is_some();
            }
            after = next;
        };
        if output != Output::Table {
            return objects(session.out, output, all);
        }
        print_table(session, table, (shown, is_more), &format!("`{queue}` has no locks"))
    })
}

fn lock_row(row: &LockRow<Holder>, now: Timestamp) -> Vec<Cell> {
    let lock = &row.lock;
    let mut cells = vec![
        Cell::Number(row.sequence.0),
        Cell::Text(row.session.as_deref().unwrap_or("-").to_owned()),
        Cell::Right(span(now.since(lock.taken_at))),
        Cell::Right(span(lock.until.since(now))),
        Cell::Number(lock.renewals.into()),
    ];
    cells.extend(holder_cells(lock));
    cells
}

fn holder_cells(lock: &LockFacts<Holder>) -> [Cell; 3] {
    let or_none = |text: Option<&str>| Cell::Text(text.unwrap_or("-").to_owned());
    let holder = holder_text(lock);
    let facts = lock.holder.as_deref();
    [
        or_none((!holder.is_empty()).then_some(&*holder)),
        or_none(facts.map(|holder| &*holder.transport)),
        or_none(facts.and_then(|holder| holder.policy.as_deref())),
    ]
}

pub fn sessions(flags: &SessionsFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| match &flags.state {
        Some(id) => state(session, &flags.queue, id).await,
        None => list_sessions(flags, session).await,
    })
}

async fn list_sessions(flags: &SessionsFlags, session: &CommandConnection) -> Result<(), Failure> {
    let output = flags.common.output;
    let count = flags.rows.count(output);
    let mut query = SessionQuery {
        order: flags.sort.into(),
        is_descending: flags.descending,
        filter: SessionFilter::All,
        from: None,
        beyond: None,
        count_max: page_rows(count, 0),
    };
    let heads = ["SESSION", "ACTIVE", "DEFERRED", "SCHEDULED", "OLDEST", "STATE", "LEFT", "HOLDER"];
    let mut table = Table::new(&heads, 7, session.out.colours);
    let (mut all, mut shown) = (Vec::new(), 0);
    let is_more = loop {
        let rows = |found: &Found| match found {
            Found::Sessions(SessionPage { sessions, next, .. }) => {
                Some((sessions.clone(), next.clone()))
            }
            _ => None,
        };
        let ((rows, next), findings) =
            ask(session, &flags.queue, Question::Sessions(query.clone()), rows).await?;
        let now = findings.at;
        let texts = if output == Output::Table { Vec::new() } else { findings_to_json(findings) };
        let mut texts = texts.into_iter();
        for row in &rows {
            let text = texts.next();
            if (flags.stuck && !row.is_stuck) || shown == count {
                continue;
            }
            shown += 1;
            match text {
                Some(text) => all.push(text),
                None => table.row(session_row(row, now)),
            }
        }
        if session.interrupt.is_set() {
            return Err(Failure::Reported(exit::INTERRUPTED));
        }
        let Some(next) = next else { break false };
        if shown >= count {
            break true;
        }
        query.beyond = Some(next);
    };
    if output != Output::Table {
        return objects(session.out, output, all);
    }
    let nothing = format!("`{}` has no such session", flags.queue);
    print_table(session, table, (shown, is_more), &nothing)
}

fn session_row(row: &SessionRow<Holder>, now: Timestamp) -> Vec<Cell> {
    let none = || "-".to_owned();
    let stuck = if row.is_stuck { ", stuck" } else { "" };
    let oldest = row.oldest_at.map(|at| format!("{}{stuck}", span(now.since(at))));
    let lock = row.lock.as_ref();
    let holder = lock.map(holder_text).filter(|holder| !holder.is_empty());
    vec![
        Cell::Text((*row.name).to_owned()),
        Cell::Number(row.active),
        Cell::Number(row.deferred),
        Cell::Number(row.scheduled),
        Cell::Right(oldest.unwrap_or_else(none)),
        Cell::Right(row.state.map_or_else(none, |state| BinaryBytes(state.size).to_string())),
        Cell::Right(lock.map_or_else(none, |lock| span(lock.until.since(now)))),
        Cell::Text(holder.unwrap_or_else(none)),
    ]
}

async fn state(session: &CommandConnection, queue: &str, id: &str) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        let question = Question::SessionState { session: id.into(), from, length: 1 << 20 };
        let part = |found: &Found| match found {
            Found::SessionState(part) => Some(part.clone()),
            _ => None,
        };
        let (part, _) = ask(session, queue, question, part).await?;
        let Some(part) = part else {
            note(&format!("session `{id}` of `{queue}` has no state"));
            return Err(Failure::Reported(exit::NOTHING));
        };
        from += part.bytes.len() as u64;
        let is_end = part.bytes.is_empty() || from >= part.length;
        if session.out.write(&part.bytes)? == WriteOutcome::OutputClosed || is_end {
            return Ok(());
        }
    }
}

pub fn clients(flags: &ClientsFlags) -> Result<(), Failure> {
    if let Some(command) = &flags.command {
        return operate::clients(command);
    }
    flags.common.run(Patience::Limited, async |session| {
        let output = flags.common.output;
        let count = flags.rows.count(output);
        let mut query = ClientQuery {
            transport: flags.transport.as_deref().map(Into::into),
            path: flags.entity.as_deref().map(Into::into),
            name: flags.name.as_deref().map(Into::into),
            after: None,
            count_max: page_rows(count, 0),
        };
        let mut table = client_table(flags.links, session.out.colours);
        let (mut all, mut shown) = (Vec::new(), 0);
        let is_more = loop {
            query.count_max = page_rows(count, shown);
            let rows = |found: &Found| match found {
                Found::Clients(ClientPage { clients, next, .. }) => Some((clients.clone(), *next)),
                _ => None,
            };
            let ((rows, next), findings) =
                ask(session, "", Question::Clients(query.clone()), rows).await?;
            shown += rows.len();
            if output == Output::Table {
                for client in &rows {
                    client_rows(client, flags.links, findings.at, &mut table);
                }
            } else {
                all.extend(findings_to_json(findings));
            }
            if next.is_none() || shown >= count {
                break next.is_some();
            }
            query.after = next;
        };
        if output != Output::Table {
            return objects(session.out, output, all);
        }
        print_table(session, table, (shown, is_more), "there is no such client")
    })
}

fn client_table(has_links: bool, colours: bool) -> Table {
    const LINKS: [&str; 8] =
        ["CLIENT", "NAME", "ENTITY", "ROLE", "SESSION", "DELIVERED", "IN HAND", "CREDIT"];
    const CLIENTS: [&str; 10] = [
        "CLIENT",
        "TRANSPORT",
        "NAME",
        "ADDRESS",
        "POLICY",
        "SINCE",
        "ACTIVE",
        "LINKS",
        "IN HAND",
        "CREDIT",
    ];
    if has_links { Table::new(&LINKS, 8, colours) } else { Table::new(&CLIENTS, 10, colours) }
}

fn client_rows(client: &ClientFacts, has_links: bool, now: Timestamp, table: &mut Table) {
    let or_none = |text: Option<&str>| Cell::Text(text.unwrap_or("-").to_owned());
    if has_links {
        for link in &client.links {
            let role = match link.role {
                peeklock::inspect::LinkRole::Sender => "sender",
                peeklock::inspect::LinkRole::Receiver => "receiver",
                peeklock::inspect::LinkRole::Browser => "browser",
            };
            table.row(vec![
                Cell::Number(client.id.0),
                or_none(client.name.as_deref()),
                Cell::Text((*link.path).to_owned()),
                Cell::Text(role.to_owned()),
                or_none(link.session.as_deref()),
                Cell::Number(link.delivered),
                Cell::Number(link.unsettled.into()),
                Cell::Number(link.credit),
            ]);
        }
        let more = client.link_count.saturating_sub(client.links.len() as u64);
        if more > 0 {
            let links = counted(more, "further link");
            note(&format!("client {} has {links}", client.id.0));
        }
        return;
    }
    let address = client.peer.map(|peer| peer.to_string());
    table.row(vec![
        Cell::Number(client.id.0),
        Cell::Text(client.transport.to_string()),
        or_none(client.name.as_deref()),
        or_none(address.as_deref()),
        or_none(client.policy.as_deref()),
        Cell::Right(span(now.since(client.connected_at))),
        Cell::Right(span(now.since(client.active_at))),
        Cell::Number(client.link_count),
        Cell::Number(client.links.iter().map(|link| u64::from(link.unsettled)).sum()),
        Cell::Number(client.links.iter().map(|link| link.credit).sum()),
    ]);
}
