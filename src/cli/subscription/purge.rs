//! `peeklock subscription purge`: deletes the available messages, in calls of bounded size
//! (DEL-06).

use clap::Args;
use peeklock::path::dead_letter_path;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Patience};
use super::super::purge::{Asks, Kind, Purge, purge};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription purge orders eu                      show the number of messages and ask
  peeklock subscription purge orders eu --dead-letter --yes

Deletes the messages that are available at the start. Locked and deferred messages stay, and so \
do messages that are published meanwhile. In a subscription with sessions, messages in a session \
that a receiver holds stay too. Other subscriptions keep their copies. Deleted messages are not \
dead-lettered.

",
    exit_codes!()
);

#[derive(Args)]
pub struct PurgeFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Use its dead-letter queue instead
    #[arg(short, long)]
    dead_letter: bool,
    /// Do not ask for confirmation
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
