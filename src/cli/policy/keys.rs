//! `peeklock policy keys`: prints the keys of a policy. `policy.rs` dispatches to it; among the
//! commands of policies only `keys` and `regenerate` print keys.

use clap::Args;

use super::super::Failure;
use super::super::connect::{Common, Patience};
use super::{Named, print_keys};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock policy keys shop --entity orders
  peeklock policy keys shop --entity orders -o json | jq -r .primaryKey

A client with a key has the rights of the policy. Once this command has printed a key, every \
client needs a token, permanently. `peeklock connection-string` prints the key as a connection \
string for clients.

",
    exit_codes!()
);

#[derive(Args)]
pub struct KeysFlags {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &KeysFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let Named { name, owner } = &flags.named;
        let keys = session.client.admin().policy_keys(owner.path(), name).await?;
        print_keys(&keys, &flags.common, session)
    })
}
