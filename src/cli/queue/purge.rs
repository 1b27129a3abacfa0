//! `peeklock queue purge`: deletes the available messages, in calls of bounded size (DEL-06).

use clap::Args;
use peeklock::path::{EntityAddress, EntityName};

use super::super::Failure;
use super::super::arguments::Source;
use super::super::connect::{Common, Patience};
use super::super::purge::{Asks, Kind, Purge, purge};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue purge orders                      show the number of messages and ask
  peeklock queue purge orders --dead-letter --yes

Deletes the messages that are available at the start. Locked, deferred and scheduled messages \
stay, and so do messages that are sent meanwhile. In a queue with sessions, messages in a session \
that a receiver holds stay too. Deleted messages are not dead-lettered.

",
    exit_codes!()
);

#[derive(Args)]
pub struct PurgeFlags {
    #[command(flatten)]
    source: Source,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let path = flags.source.path();
        // The path may name a sub-queue.
        let entity = path.split("/$").next().unwrap_or_default().to_owned();
        let kind = match EntityAddress::parse(&entity) {
            Ok(EntityAddress { entity: EntityName::Subscription { .. }, .. }) => Kind::Subscription,
            _ => Kind::Queue,
        };
        let asks = if flags.yes { Asks::No } else { Asks::Yes };
        purge(session, &Purge { kind, entity, path, asks }, flags.common.output).await
    })
}
