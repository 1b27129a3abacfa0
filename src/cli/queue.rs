//! `peeklock queue`: commands for queues and their properties.

mod create;
mod delete;
mod list;
mod show;
mod update;

use clap::Subcommand;

use super::{Failure, purge};

pub use list::all;

pub const HELP: &str = "\
Examples:
  peeklock queue create orders --max-delivery-count 3
  peeklock queue list
  peeklock queue show orders
  peeklock queue update orders --lock-duration 2m
  peeklock queue purge orders --dead-letter
  peeklock queue delete orders

`peeklock queue COMMAND --help` has all flags.";

#[derive(Subcommand)]
pub enum QueueCommand {
    /// Create a queue; properties that you leave out get the default of the broker
    #[command(after_help = create::HELP)]
    Create(create::CreateFlags),
    /// Show the properties and message counts of a queue
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// List all queues
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Change properties of a queue; the others stay unchanged
    #[command(after_help = update::HELP)]
    Update(update::UpdateFlags),
    /// Delete a queue with everything in it; asks first
    #[command(after_help = delete::HELP)]
    Delete(delete::DeleteFlags),
    /// Delete the messages of a queue; asks first
    #[command(after_help = purge::QUEUE_HELP)]
    Purge(purge::QueuePurgeFlags),
}

pub fn run(command: &QueueCommand) -> Result<(), Failure> {
    match command {
        QueueCommand::Create(flags) => create::run(flags),
        QueueCommand::Show(flags) => show::run(flags),
        QueueCommand::List(flags) => list::run(flags),
        QueueCommand::Update(flags) => update::run(flags),
        QueueCommand::Delete(flags) => delete::run(flags),
        QueueCommand::Purge(flags) => purge::queue(flags),
    }
}
