//! `peeklock subscription purge`: deletes what is available now, in calls of bounded size (DEL-06).

use clap::Args;
use peeklock::path::dead_letter_path;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Patience};
use super::super::purge::{Asks, Kind, Purge, purge};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription purge orders eu                      tells how many there are, and asks
  peeklock subscription purge orders eu --dead-letter --yes

Deletes the messages that are available when it begins. Messages that are locked or deferred stay, \
and so does what is published meanwhile, and in a subscription with sessions what is in a session \
that a receiver holds. Other subscriptions keep their copies. Nothing deleted is dead-lettered.

",
    exit_codes!()
);

#[derive(Args)]
pub struct PurgeFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Take its dead-letter queue instead
    #[arg(short, long)]
    dead_letter: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let entity = flags.of.path();
        let path = if flags.dead_letter { dead_letter_path(&entity) } else { entity.clone() };
        let asks = if flags.yes { Asks::No } else { Asks::Yes };
        let what = Purge { kind: Kind::Subscription, entity, path, asks };
        purge(session, &what, flags.common.output).await
    })
}
