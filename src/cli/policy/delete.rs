//! `peeklock policy delete`: deletes a policy after confirmation, which ends the access granted
//! with its keys. `policy.rs` dispatches to it.

use clap::Args;

use super::super::Failure;
use super::super::connect::{Common, Patience};
use super::super::deletion::Deletion;
use super::super::terminal::line;
use super::Named;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock policy delete shop --entity orders                     asks
  peeklock policy delete shop --entity orders --yes --if-exists   in scripts that run again

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    #[command(flatten)]
    named: Named,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Succeed if there is no such policy
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let Named { name, owner } = &flags.named;
        let deletion = Deletion {
            shown: format!("policy `{}` of {}", line(name), owner.shown()),
            name,
            if_exists: flags.if_exists,
            output: flags.common.output,
        };
        if !flags.yes {
            let question =
                format!("Delete {}, and end the access granted with its keys?", deletion.shown);
            session.confirm(&question).await?;
        }
        deletion.finish(session, session.client.admin().delete_policy(owner.path(), name).await)
    })
}
