//! `peeklock policy regenerate`

use clap::Args;

use super::super::Failure;
use super::super::connect::{Common, Patience};
use super::{KeyFlag, Named, tell_keys};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock policy regenerate shop --entity orders --key primary
  peeklock policy regenerate shop --entity orders --key secondary -o json | jq -r .secondaryKey

To change keys without stopping anybody: let clients use the secondary one, regenerate the primary one, let them go back, \
regenerate the secondary one.

",
    exit_codes!()
);

#[derive(Args)]
pub struct RegenerateFlags {
    #[command(flatten)]
    named: Named,
    /// Which of its two keys is to be another one
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
        tell_keys(&keys, &flags.common, session)
    })
}
