//! `peeklock dlq`: commands for dead-lettered messages. `cli.rs` dispatches to it.

mod condition;
mod copies;
mod groups;
mod job;
mod list;
mod origin;
mod pick;
mod purge;
mod resubmit;
mod show;
mod summary;

use clap::Subcommand;

use super::connect::CommandConnection;
use super::terminal::line;
use super::{Failure, exit};

pub const HELP: &str = "\
Examples:
  peeklock dlq summary orders                      count by reason
  peeklock dlq groups orders                       count by cause
  peeklock dlq list orders
  peeklock dlq list orders --where reason=MaxDeliveryCountExceeded
  peeklock dlq show orders 1001
  peeklock dlq resubmit orders --dry-run
  peeklock dlq resubmit orders
  peeklock dlq resubmit 'orders/$transfer'         messages that could not be forwarded
  peeklock receive orders --dead-letter            remove them permanently
  peeklock dlq purge orders --where 'description~timeout'
  peeklock receive orders --settle dead-letter     dead-letter a message by hand

`peeklock dlq COMMAND --help` has all flags.";

#[derive(Subcommand)]
pub enum DlqCommand {
    /// List dead-lettered messages with their reasons
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Show everything of one dead-lettered message
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// Count dead-lettered messages by reason
    #[command(after_help = summary::HELP)]
    Summary(summary::SummaryFlags),
    /// Count dead-lettered messages by cause or by another property
    #[command(after_help = groups::HELP)]
    Groups(groups::GroupsFlags),
    /// Delete all or some dead-lettered messages; asks first
    #[command(after_help = purge::HELP)]
    Purge(purge::PurgeFlags),
    /// Send dead-lettered messages again
    #[command(after_help = resubmit::HELP)]
    Resubmit(resubmit::ResubmitFlags),
}

/// Returns the result. If it failed because the path is a topic, which has no dead letters, returns
/// a failure with a hint at its subscriptions.
async fn explain_topic(
    session: &CommandConnection,
    path: &str,
    result: Result<(), Failure>,
) -> Result<(), Failure> {
    let Err(Failure::Ended { code: exit::NOT_FOUND, .. }) = result else { return result };
    if !session.client.admin().topic_exists(path).await.unwrap_or(false) {
        return result;
    }
    let path = line(path);
    let text = format!("`{path}` is a topic, whose dead letters are with its subscriptions");
    Err(Failure::ended(exit::NOT_FOUND, text).hint(&format!(
        "`peeklock subscription list {path}` lists them, `peeklock dlq list \
         {path}/subscriptions/NAME` lists its dead letters"
    )))
}

pub fn run(command: &DlqCommand) -> Result<(), Failure> {
    match command {
        DlqCommand::List(flags) => list::run(flags),
        DlqCommand::Show(flags) => show::run(flags),
        DlqCommand::Summary(flags) => summary::run(flags),
        DlqCommand::Groups(flags) => groups::run(flags),
        DlqCommand::Purge(flags) => purge::run(flags),
        DlqCommand::Resubmit(flags) => resubmit::run(flags),
    }
}
