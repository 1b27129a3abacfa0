//! `peeklock session`: sessions of a queue, and their states.

mod list;
mod state;

use clap::Subcommand;

use super::Failure;

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
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Show the state of a session; locks the session meanwhile
    #[command(after_help = state::SHOW_HELP)]
    State(state::ShowFlags),
    /// Set or clear the state of a session; locks the session meanwhile
    #[command(after_help = state::SET_HELP)]
    SetState(state::SetFlags),
}

pub fn run(command: &SessionCommand) -> Result<(), Failure> {
    match command {
        SessionCommand::List(flags) => list::run(flags),
        SessionCommand::State(flags) => state::show(flags),
        SessionCommand::SetState(flags) => state::set(flags),
    }
}
