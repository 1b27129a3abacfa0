//! `peeklock session`: the sessions of a queue by id, page by page (SES-29), and the state that their holders leave for each other
//! (SES-24).

use bytes::Bytes;
use clap::{Args, Subcommand};
use peeklock::command::SessionFilter;
use peeklock::websocket::client::{SessionReceiver, session_state_to_json};

use super::arguments::{When, queue_of, when};
use super::connect::{CommandConnection, Common, Output, Patience};
use super::message::{Form, Writer};
use super::send::read_file;
use super::terminal::{WriteOutcome, json, line, note, text};
use super::{Failure, exit};

pub const HELP: &str = "\
Examples:
  peeklock queue create steps --requires-session
  peeklock send steps pack --session order-17        into a session
  peeklock session list steps
  peeklock receive steps --next-session --all        the session with the oldest message
  peeklock receive steps --session order-17
  peeklock session state steps order-17              the state that its last holder set
  peeklock session set-state steps order-17 packed

A queue that requires sessions delivers messages by session: one receiver at a time holds a \
session and gets its messages in order. A session exists while it has a message or a state.";

#[derive(Subcommand)]
pub enum SessionCommand {
    /// List the sessions of a queue, by id
    #[command(after_help = LIST_HELP, visible_alias = "ls")]
    List(ListFlags),
    /// Show the state of a session; locks the session meanwhile
    #[command(after_help = SHOW_HELP)]
    State(ShowFlags),
    /// Set or clear the state of a session; locks the session meanwhile
    #[command(after_help = SET_HELP)]
    SetState(SetFlags),
}

pub fn run(command: &SessionCommand) -> Result<(), Failure> {
    match command {
        SessionCommand::List(flags) => list(flags),
        SessionCommand::State(flags) => show(flags),
        SessionCommand::SetState(flags) => set(flags),
    }
}

const LIST_HELP: &str = concat!(
    "\
Examples:
  peeklock session list steps
  peeklock session list steps --active               only sessions with active messages
  peeklock session list steps --state-set-after 2026-05-01T12:00:00Z
  peeklock session list steps -o ndjson | jq -r .sessionId

",
    exit_codes!()
);

/// Ids per request.
const PAGE: u32 = 1_000;
/// Maximum length of a list, for a broker that never returns an empty page.
const SESSIONS_MAX: u64 = 100_000_000;

#[derive(Args)]
pub struct ListFlags {
    /// Queue, such as `steps`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// List only sessions with active messages
    #[arg(long)]
    active: bool,
    /// List only sessions whose state was set after this instant, such as 2026-05-01T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = when, conflicts_with = "active")]
    state_set_after: Option<When>,
    #[command(flatten)]
    common: Common,
}

fn list(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let client = &session.client;
        let which = match (flags.active, flags.state_set_after) {
            (true, _) => SessionFilter::WithActiveMessages,
            (false, Some(when)) => SessionFilter::StateSetAfter(when.from(client.now())),
            (false, None) => SessionFilter::All,
        };
        let mut writer = match flags.common.output {
            Output::Table => None,
            Output::Json => Some(Writer::new(session.out, Form::Json)),
            Output::Ndjson => Some(Writer::new(session.out, Form::Ndjson)),
        };
        let mut count = 0;
        while count < SESSIONS_MAX {
            let ids = client.sessions(&flags.queue, which, count, PAGE).await?;
            if ids.is_empty() {
                break;
            }
            count += ids.len() as u64;
            match &mut writer {
                Some(writer) => {
                    for id in &ids {
                        let object = serde_json::json!({ "sessionId": &**id });
                        if writer.object(&object.to_string())? == WriteOutcome::OutputClosed {
                            return Ok(());
                        }
                    }
                }
                None => {
                    let lines: String = ids.iter().map(|id| format!("{}\n", line(id))).collect();
                    session.out.print(&lines)?;
                }
            }
            if session.interrupt.is_set() {
                return Err(Failure::Reported(exit::INTERRUPTED));
            }
        }
        if count == 0 {
            note(&format!("`{}` has no such session", flags.queue));
        }
        writer.map_or(Ok(()), Writer::end)
    })
}

const SHOW_HELP: &str = concat!(
    "\
Examples:
  peeklock session state steps order-17
  peeklock session state steps order-17 --raw > state
  peeklock session state steps order-17 -o json

The command locks the session while it reads the state. If a receiver holds the session, the \
command fails. The exit code is 6 if the session has no state.

",
    exit_codes!()
);

const SET_HELP: &str = concat!(
    "\
Examples:
  peeklock session set-state steps order-17 packed
  peeklock session set-state steps order-17 --file state
  peeklock session set-state steps order-17 --clear

The state stays for later holders of the session until it is cleared, even without messages. It \
may be as large as a message. The command locks the session meanwhile; if a receiver holds the \
session, the command fails.

",
    exit_codes!()
);

#[derive(Args)]
struct Place {
    /// Queue, such as `steps`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Session id, such as `order-17`
    id: String,
}

#[derive(Args)]
pub struct ShowFlags {
    #[command(flatten)]
    place: Place,
    /// Write only the bytes of the state, unchanged, also on a terminal
    #[arg(long, conflicts_with = "output", help_heading = "Output")]
    raw: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct SetFlags {
    #[command(flatten)]
    place: Place,
    /// The new state
    #[arg(required_unless_present_any = ["file", "clear"], conflicts_with_all = ["file", "clear"])]
    state: Option<String>,
    /// Read the state from a file, `-` for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "clear")]
    file: Option<String>,
    /// Clear the state
    #[arg(long)]
    clear: bool,
    #[command(flatten)]
    common: Common,
}

impl Place {
    async fn hold(&self, session: &CommandConnection) -> Result<SessionReceiver, Failure> {
        let Self { queue, id } = self;
        Ok(session.client.accept_session(queue, id).await?)
    }
}

fn show(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let holder = flags.place.hold(session).await?;
        let state = holder.state().await?;
        holder.close().await?;
        let Place { queue, id } = &flags.place;
        match (&state, flags.common.output) {
            (_, Output::Json | Output::Ndjson) => {
                let object = session_state_to_json(id, state.as_ref());
                session.out.print(&format!("{}\n", json(&object)))?;
            }
            (None, Output::Table) => note(&format!("session `{id}` of `{queue}` has no state")),
            (Some(state), _) if flags.raw => drop(session.out.write(state)?),
            (Some(state), _) if session.out.is_terminal => {
                session.out.print(&format!("{}\n", text(state)))?;
            }
            (Some(state), _) => drop(session.out.write([state, &b"\n"[..]].concat())?),
        }
        if state.is_none() { Err(Failure::Reported(exit::NOTHING)) } else { Ok(()) }
    })
}

fn set(flags: &SetFlags) -> Result<(), Failure> {
    let state = match (&flags.state, &flags.file) {
        (Some(text), _) => Some(Bytes::from(text.clone())),
        (None, Some(file)) => Some(Bytes::from(read_file(file)?)),
        (None, None) => None,
    };
    flags.common.run(Patience::Limited, async |session| {
        let holder = flags.place.hold(session).await?;
        let set = holder.set_state(state).await;
        holder.close().await?;
        Ok(set?)
    })
}
