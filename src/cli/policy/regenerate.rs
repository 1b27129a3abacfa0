//! `peeklock policy regenerate`: replaces one of the two keys of a policy and prints both.
//! `policy.rs` dispatches to it; the other key stays valid.

use clap::Args;

use super::super::Failure;
use super::super::connect::{Common, Patience};
use super::{KeyFlag, Named, print_keys};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock policy regenerate shop --entity orders --key primary
  peeklock policy regenerate shop --entity orders --key secondary -o json | jq -r .secondaryKey

To change keys without an interruption: move clients to the secondary key, regenerate the primary \
key, move clients back, and regenerate the secondary key.

",
    exit_codes!()
);

#[derive(Args)]
pub struct RegenerateFlags {
    #[command(flatten)]
    named: Named,
    /// Key to replace
    #[arg(long, value_name = "KEY")]
    key: KeyFlag,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &RegenerateFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let Named { name, owner } = &flags.named;
        let admin = session.client.admin();
        let keys = admin.regenerate_key(owner.path(), name, flags.key.which(), None).await?;
        print_keys(&keys, &flags.common, session)
    })
}
