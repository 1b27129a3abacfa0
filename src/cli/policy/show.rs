//! `peeklock policy show`: shows the rights of a policy, never its keys. `policy.rs` dispatches to
//! it.

use clap::Args;
use peeklock::websocket::client::policy_to_json;

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{object, sheet};
use super::{Named, shown};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock policy show RootManageSharedAccessKey
  peeklock policy show shop --entity orders -o json | jq .rights

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let Named { name, owner } = &flags.named;
        let policy = session.client.admin().policy(owner.path(), name).await?;
        if flags.common.output != Output::Table {
            return session.out.print(&object(&policy_to_json(&policy), flags.common.output));
        }
        let mut rows = shown(&policy);
        rows.insert(1, ("of", owner.shown()));
        session.out.print(&sheet(&rows, &session.out))
    })
}
