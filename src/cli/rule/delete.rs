//! `peeklock rule delete`

use clap::Args;
use peeklock::condition::Condition;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{line, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule delete orders eu dear
  peeklock rule delete orders eu '$Default'      in quotes, for the sake of the shell
  peeklock rule delete orders eu dear --if-exists

A subscription without rules gets nothing. Messages that are there stay.

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Name of the rule
    rule: String,
    /// Be content if there is no such rule
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let rule = &flags.rule;
        match session.client.admin().delete_rule(&flags.of.path(), rule).await {
            Ok(()) => {}
            Err(error) if flags.if_exists && error.condition() == Condition::EntityNotFound => {
                note(&format!("there is no rule `{rule}`"));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        if flags.common.output == Output::Table {
            return session.out.say(&format!("rule `{}` deleted\n", line(rule)));
        }
        session.out.say(&format!("{}\n", serde_json::json!({ "deleted": rule })))
    })
}
