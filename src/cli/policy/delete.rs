//! `peeklock policy delete`

use clap::Args;
use peeklock::condition::Condition;

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{line, note};
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
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Be content if there is no such policy
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let Named { name, owner } = &flags.named;
        let shown = format!("policy `{}` of {}", line(name), owner.shown());
        if !flags.yes {
            let question = format!("Delete {shown}, and end what was granted by it?");
            session.confirm(&question).await?;
        }
        match session.client.admin().delete_policy(owner.path(), name).await {
            Err(error) if flags.if_exists && error.condition() == Condition::EntityNotFound => {
                note(&format!("there is no {shown}"));
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(()) if flags.common.output == Output::Table => {
                session.out.say(&format!("{shown} deleted\n"))
            }
            Ok(()) => session.out.say(&format!("{}\n", serde_json::json!({ "deleted": name }))),
        }
    })
}
