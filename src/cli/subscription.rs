//! `peeklock subscription`: commands for subscriptions and their properties.

mod create;
mod delete;
mod list;
mod show;
mod update;

use clap::Subcommand;

use super::{Failure, purge};

pub use list::{all, table};

pub const HELP: &str = "\
Examples:
  peeklock subscription create orders audit                      gets every message
  peeklock subscription create orders eu --sql \"region = 'eu'\"
  peeklock subscription create orders coffee --correlation sys.Label=coffee
  peeklock subscription list orders
  peeklock subscription show orders eu
  peeklock receive orders/subscriptions/eu
  peeklock dlq list orders/subscriptions/eu
  peeklock subscription purge orders eu --dead-letter
  peeklock subscription delete orders eu

`peeklock subscription COMMAND --help` has all flags, `peeklock rule --help` explains filters.";

#[derive(Subcommand)]
pub enum SubscriptionCommand {
    /// Create a subscription, with a filter or for every message
    #[command(after_help = create::HELP)]
    Create(create::CreateFlags),
    /// Show the properties, message counts and rules of a subscription
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// List the subscriptions of a topic
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Change properties of a subscription; the others stay unchanged
    #[command(after_help = update::HELP)]
    Update(update::UpdateFlags),
    /// Delete a subscription with everything in it; asks first
    #[command(after_help = delete::HELP)]
    Delete(delete::DeleteFlags),
    /// Delete the messages of a subscription; asks first
    #[command(after_help = purge::SUBSCRIPTION_HELP)]
    Purge(purge::SubscriptionPurgeFlags),
}

pub fn run(command: &SubscriptionCommand) -> Result<(), Failure> {
    match command {
        SubscriptionCommand::Create(flags) => create::run(flags),
        SubscriptionCommand::Show(flags) => show::run(flags),
        SubscriptionCommand::List(flags) => list::run(flags),
        SubscriptionCommand::Update(flags) => update::run(flags),
        SubscriptionCommand::Delete(flags) => delete::run(flags),
        SubscriptionCommand::Purge(flags) => purge::subscription(flags),
    }
}
