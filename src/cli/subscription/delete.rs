//! `peeklock subscription delete`

use clap::Args;
use peeklock::condition::Condition;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::message::messages;
use super::super::terminal::{line, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription delete orders eu                     tells what is in it, and asks
  peeklock subscription delete orders eu --yes
  peeklock subscription delete orders eu --yes --if-exists   in scripts that run again

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Be content if there is no such subscription
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let path = flags.of.path();
        let gone = |error: peeklock::error::BrokerError| {
            if flags.if_exists && error.condition() == Condition::EntityNotFound {
                note(&format!("there is no subscription `{path}`"));
                return Ok(());
            }
            Err(Failure::from(error))
        };
        if !flags.yes {
            let counts = match admin.subscription(&path).await {
                Ok(described) => described.counts,
                Err(error) => return gone(error),
            };
            let question = format!(
                "Delete subscription `{path}` with everything in it: {}, {} of them dead-lettered?",
                messages(counts.total()),
                counts.dead_letter
            );
            session.confirm(&question).await?;
        }
        if let Err(error) = admin.delete_subscription(&path).await {
            return gone(error);
        }
        if flags.common.output == Output::Table {
            return session.out.say(&format!("subscription `{}` deleted\n", line(&path)));
        }
        session.out.say(&format!("{}\n", serde_json::json!({ "deleted": path })))
    })
}
