//! `peeklock topic`: topics and what is set on them.

mod create;
mod delete;
mod list;
mod properties;
mod show;
mod update;

use clap::Subcommand;

use super::Failure;

pub use list::all;

pub const HELP: &str = "\
Examples:
  peeklock topic create orders
  peeklock subscription create orders eu --sql \"region = 'eu'\"
  peeklock send orders 'two coffees' --property region=eu
  peeklock receive orders/subscriptions/eu
  peeklock topic list
  peeklock topic show orders
  peeklock topic delete orders

A topic keeps nothing itself: each of its subscriptions gets a copy of what its rules select, and is \
received from like a queue.

`peeklock topic COMMAND --help` has all flags.";

#[derive(Subcommand)]
pub enum TopicCommand {
    /// Create a topic; what is not given has the default of the broker
    #[command(after_help = create::HELP)]
    Create(create::CreateFlags),
    /// Show what is set on a topic, and its subscriptions
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// List all topics
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Change what is given and keep the rest
    #[command(after_help = update::HELP)]
    Update(update::UpdateFlags),
    /// Delete a topic with its subscriptions and everything in them; asks
    #[command(after_help = delete::HELP)]
    Delete(delete::DeleteFlags),
}

pub fn run(command: &TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create(flags) => create::run(flags),
        TopicCommand::Show(flags) => show::run(flags),
        TopicCommand::List(flags) => list::run(flags),
        TopicCommand::Update(flags) => update::run(flags),
        TopicCommand::Delete(flags) => delete::run(flags),
    }
}
