//! `peeklock dlq`: what a queue has given up on.

mod condition;
mod copies;
mod list;
mod origin;
mod resubmit;
mod show;

use clap::Subcommand;

use super::Failure;

pub const HELP: &str = "\
Examples:
  peeklock dlq list orders
  peeklock dlq list orders --where reason=MaxDeliveryCountExceeded
  peeklock dlq show orders 1001
  peeklock dlq resubmit orders --dry-run
  peeklock dlq resubmit orders
  peeklock dlq resubmit 'orders/$transfer'         what could not be forwarded
  peeklock receive orders --dead-letter            takes them out for good
  peeklock queue purge orders --dead-letter        deletes them

`peeklock dlq COMMAND --help` has all flags.";

#[derive(Subcommand)]
pub enum DlqCommand {
    /// List dead-lettered messages with their reasons
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Show everything of one dead-lettered message
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// Send dead-lettered messages again
    #[command(after_help = resubmit::HELP)]
    Resubmit(resubmit::ResubmitFlags),
}

pub fn run(command: &DlqCommand) -> Result<(), Failure> {
    match command {
        DlqCommand::List(flags) => list::run(flags),
        DlqCommand::Show(flags) => show::run(flags),
        DlqCommand::Resubmit(flags) => resubmit::run(flags),
    }
}
