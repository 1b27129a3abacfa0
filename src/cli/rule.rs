//! `peeklock rule`: manages the rules of a subscription and explains their results. `cli.rs`
//! dispatches to it.

mod add;
mod delete;
mod filter;
mod list;
mod show;
mod test;
mod update;
mod why;

use clap::Subcommand;

use super::Failure;

pub use filter::FilterFlags;
pub use list::{all, table};

pub const HELP: &str = "\
Examples:
  peeklock rule list orders eu
  peeklock rule add orders eu dear --sql 'price > 100' --action \"SET priority = 'high'\"
  peeklock rule add orders eu coffee --correlation sys.Label=coffee
  peeklock rule delete orders eu '$Default'
  peeklock rule test orders eu --property price:i32=120       show the rules that select it, with reasons
  peeklock rule test --sql 'price > 100' --property price:i32=120    without a broker

A subscription gets a message if one of its rules selects it. All matching rules without an \
action give one copy together; each matching rule with an action gives a separate copy, changed \
by the action. A new subscription has the rule `$Default`, which selects every message: to get \
fewer, delete it or create the subscription with a filter.

`peeklock rule COMMAND --help` has all flags.";

#[derive(Subcommand)]
pub enum RuleCommand {
    /// Add a rule to a subscription
    #[command(after_help = add::HELP)]
    Add(add::AddFlags),
    /// List the rules of a subscription
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Show one rule in full
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// Replace the filter and action of a rule
    #[command(after_help = update::HELP)]
    Update(update::UpdateFlags),
    /// Delete a rule
    #[command(after_help = delete::HELP)]
    Delete(delete::DeleteFlags),
    /// Show the rules that select a message, with reasons
    #[command(after_help = test::HELP)]
    Test(Box<test::TestFlags>),
}

pub fn run(command: &RuleCommand) -> Result<(), Failure> {
    match command {
        RuleCommand::Add(flags) => add::run(flags),
        RuleCommand::List(flags) => list::run(flags),
        RuleCommand::Show(flags) => show::run(flags),
        RuleCommand::Update(flags) => update::run(flags),
        RuleCommand::Delete(flags) => delete::run(flags),
        RuleCommand::Test(flags) => test::run(flags),
    }
}
