//! `peeklock queue purge`: deletes what is available now, in calls of bounded size (DEL-06).

use clap::Args;
use peeklock::path::{EntityAddress, EntityName};

use super::super::Failure;
use super::super::arguments::Source;
use super::super::connect::{Common, Patience};
use super::super::purge::{Asks, Kind, Purge, purge};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue purge orders                      tells how many there are, and asks
  peeklock queue purge orders --dead-letter --yes

Deletes the messages that are available when it begins. Messages that are locked, deferred or \
scheduled stay, and so does what is sent meanwhile, and in a queue with sessions what is in a \
session that a receiver holds. Nothing deleted is dead-lettered.

",
    exit_codes!()
);

#[derive(Args)]
pub struct PurgeFlags {
    #[command(flatten)]
    source: Source,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let path = flags.source.path();
        // A sub-queue can be named by its path too.
        let entity = path.split("/$").next().unwrap_or_default().to_owned();
        let kind = match EntityAddress::parse(&entity) {
            Ok(EntityAddress { entity: EntityName::Subscription { .. }, .. }) => Kind::Subscription,
            _ => Kind::Queue,
        };
        let asks = if flags.yes { Asks::No } else { Asks::Yes };
        purge(session, &Purge { kind, entity, path, asks }, flags.common.output).await
    })
}
