//! `peeklock rule update`: replaces the filter and action of a rule. `rule.rs` dispatches to it.

use clap::Args;
use peeklock::websocket::client::rule_to_json;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{line, object};
use super::filter::FilterFlags;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule update orders eu dear --sql 'price > 200'
  peeklock rule update orders eu dear --sql 'price > 200' --action \"SET priority = 'high'\"

Replaces filter and action completely: a part that you leave out is removed. Messages that the \
subscription already has stay.

",
    exit_codes!()
);

#[derive(Args)]
pub struct UpdateFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Name of the rule
    rule: String,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &UpdateFlags) -> Result<(), Failure> {
    if flags.filter.filter().is_none() {
        return Err(Failure::usage(
            "an update replaces the whole rule: give --sql, --correlation, --all or --none, and \
             --action if the rule needs one",
        ));
    }
    let rule = flags.filter.rule(&flags.rule);
    flags.common.run(Patience::Limited, async |session| {
        let rule = session.client.admin().update_rule(&flags.of.path(), rule).await?;
        if flags.common.output == Output::Table {
            return session.out.print(&format!("rule `{}` updated\n", line(&rule.name)));
        }
        session.out.print(&object(&rule_to_json(&rule), flags.common.output))
    })
}
