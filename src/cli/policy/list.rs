//! `peeklock policy list`: lists policies with their rights, never with their keys. `policy.rs`
//! dispatches to it.

use clap::Args;
use peeklock::websocket::client::policy_to_json;

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::listing::objects;
use super::super::terminal::{Cell, Table, note};
use super::{Owner, shown};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock policy list                       policies of the namespace
  peeklock policy list --entity orders
  peeklock policy list -o ndjson | jq -r .name

",
    exit_codes!()
);

#[derive(Args)]
pub struct ListFlags {
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let policies = session.client.admin().policies(flags.owner.path()).await?;
        let mut rows = policies.iter().map(shown).peekable();
        match (flags.common.output, rows.peek()) {
            (Output::Table, None) => {
                note(
                    "there are no policies; `peeklock policy create shop --right send` creates one",
                );
                Ok(())
            }
            (Output::Table, Some(first)) => {
                let heads: Vec<_> = first.iter().map(|(label, _)| label.to_uppercase()).collect();
                let mut table = Table::new(&heads, 0, session.out.colours);
                rows.for_each(|row| {
                    table.row(row.into_iter().map(|(_, value)| Cell::Text(value)).collect());
                });
                session.out.print(&table.text(&session.out).0)
            }
            (output, _) => objects(session.out, output, policies.iter().map(policy_to_json)),
        }
    })
}
