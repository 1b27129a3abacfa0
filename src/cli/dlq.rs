//! `peeklock dlq`: what a queue has given up on.

mod condition;
mod list;
mod resubmit;
mod show;

use clap::Subcommand;

use super::Failure;

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
