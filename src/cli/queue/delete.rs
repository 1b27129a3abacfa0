//! `peeklock queue delete`: deletes a queue after confirmation.

use clap::Args;

use super::super::Failure;
use super::super::arguments::queue_of;
use super::super::connect::{Common, Patience};
use super::super::deletion::Deletion;
use super::super::message::messages;
use super::super::terminal::line;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue delete orders                     show its content and ask
  peeklock queue delete orders --yes
  peeklock queue delete orders --yes --if-exists   in scripts that run again

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    /// Queue, such as `orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Succeed if there is no such queue
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let queue = &flags.queue;
        let deletion = Deletion {
            shown: format!("queue `{}`", line(queue)),
            name: queue,
            if_exists: flags.if_exists,
            output: flags.common.output,
        };
        if !flags.yes {
            let counts = match admin.queue(queue).await {
                Ok(described) => described.counts,
                Err(error) => return deletion.finish(session, Err(error)),
            };
            let question = format!(
                "Delete {} with everything in it: {}, {} of these dead-lettered?",
                deletion.shown,
                messages(counts.total()),
                counts.dead_letter
            );
            session.confirm(&question).await?;
        }
        deletion.finish(session, admin.delete_queue(queue).await)
    })
}
