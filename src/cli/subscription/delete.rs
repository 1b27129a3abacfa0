//! `peeklock subscription delete`: deletes a subscription after confirmation.

use clap::Args;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Patience};
use super::super::deletion::Deletion;
use super::super::message::messages;
use super::super::terminal::line;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription delete orders eu                     show its content and ask
  peeklock subscription delete orders eu --yes
  peeklock subscription delete orders eu --yes --if-exists   in scripts that run again

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Succeed if there is no such subscription
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let path = &flags.of.path();
        let deletion = Deletion {
            shown: format!("subscription `{}`", line(path)),
            name: path,
            if_exists: flags.if_exists,
            output: flags.common.output,
        };
        if !flags.yes {
            let counts = match admin.subscription(path).await {
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
        deletion.finish(session, admin.delete_subscription(path).await)
    })
}
