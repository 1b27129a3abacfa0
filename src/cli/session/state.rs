//! `peeklock session state` and `set-state`: the state that holders of a session store for each
//! other (SES-24).

use bytes::Bytes;
use clap::Args;
use peeklock::websocket::client::{SessionReceiver, session_state_to_json};

use super::super::arguments::queue_of;
use super::super::connect::{Common, Output, Patience, Session};
use super::super::send::read_file;
use super::super::terminal::{json, note, text};
use super::super::{Failure, exit};

pub const SHOW_HELP: &str = concat!(
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

pub const SET_HELP: &str = concat!(
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
    async fn hold(&self, session: &Session) -> Result<SessionReceiver, Failure> {
        let Self { queue, id } = self;
        Ok(session.client.accept_session(queue, id).await?)
    }
}

pub fn show(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let holder = flags.place.hold(session).await?;
        let state = holder.state().await?;
        holder.close().await?;
        let Place { queue, id } = &flags.place;
        match (&state, flags.common.output) {
            (_, Output::Json | Output::Ndjson) => {
                let told = session_state_to_json(id, state.as_ref());
                session.out.say(&format!("{}\n", json(&told)))?;
            }
            (None, Output::Table) => note(&format!("session `{id}` of `{queue}` has no state")),
            (Some(state), _) if flags.raw => drop(session.out.write(state)?),
            (Some(state), _) if session.out.is_terminal => {
                session.out.say(&format!("{}\n", text(state)))?;
            }
            (Some(state), _) => drop(session.out.write([state, &b"\n"[..]].concat())?),
        }
        if state.is_none() { Err(Failure::Told(exit::NOTHING)) } else { Ok(()) }
    })
}

pub fn set(flags: &SetFlags) -> Result<(), Failure> {
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
