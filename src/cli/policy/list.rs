//! `peeklock policy list`: lists policies with their rights, never with their keys. `policy.rs`
//! dispatches to it.

use clap::Args;
use peeklock::websocket::client::policy_to_json;

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::listing::objects;
use super::super::terminal::{Cell, Table, note};
use super::{Owner, names};

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
        match flags.common.output {
            Output::Table if policies.is_empty() => {
                note(
                    "there are no policies; `peeklock policy create shop --right send` creates one",
                );
                Ok(())
            }
            Output::Table => {
                let heads = ["POLICY", "RIGHTS", "CREATED", "UPDATED"];
                let mut table = Table::new(&heads, 0, session.out.colours);
                for policy in &policies {
                    table.row(vec![
                        Cell::Text(policy.name.to_string()),
                        Cell::Text(names(policy.rights)),
                        Cell::Text(policy.created_at.to_string()),
                        Cell::Text(policy.updated_at.to_string()),
                    ]);
                }
                session.out.print(&table.text(&session.out).0)
            }
            output => objects(session.out, output, policies.iter().map(policy_to_json)),
        }
    })
}
