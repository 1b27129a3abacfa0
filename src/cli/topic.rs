//! `peeklock topic`: commands for topics and their properties.

mod create;
mod delete;
mod list;
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

A topic stores no messages itself: each subscription gets a copy of the messages that its rules \
select. You receive from a subscription like from a queue.

`peeklock topic COMMAND --help` has all flags.";

#[derive(Subcommand)]
pub enum TopicCommand {
    /// Create a topic; properties that you leave out get the default of the broker
    #[command(after_help = create::HELP)]
    Create(create::CreateFlags),
    /// Show the properties and subscriptions of a topic
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// List all topics
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Change properties of a topic; the others stay unchanged
    #[command(after_help = update::HELP)]
    Update(update::UpdateFlags),
    /// Delete a topic with its subscriptions and everything in them; asks first
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
