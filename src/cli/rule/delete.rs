//! `peeklock rule delete`: deletes a rule of a subscription. `rule.rs` dispatches to it.

use clap::Args;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Patience};
use super::super::deletion::Deletion;
use super::super::terminal::line;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule delete orders eu dear
  peeklock rule delete orders eu '$Default'      quoted, because of the shell
  peeklock rule delete orders eu dear --if-exists

A subscription without rules gets no messages. Messages that it already has stay.

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Name of the rule
    rule: String,
    /// Succeed if there is no such rule
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let rule = &flags.rule;
        let deletion = Deletion {
            shown: format!("rule `{}`", line(rule)),
            name: rule,
            if_exists: flags.if_exists,
            output: flags.common.output,
        };
        let admin = session.client.admin();
        deletion.finish(session, admin.delete_rule(&flags.of.path(), rule).await)
    })
}
