//! `peeklock rule show`: shows one rule in full. `rule.rs` dispatches to it.

use clap::Args;
use peeklock::websocket::client::rule_to_json;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{object, sheet};
use super::filter::{shown, with_parameters};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule show orders eu dear
  peeklock rule show orders eu dear -o json | jq .filter

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Name of the rule
    rule: String,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let rule = session.client.admin().rule(&flags.of.path(), &flags.rule).await?;
        if flags.common.output != Output::Table {
            return session.out.print(&object(&rule_to_json(&rule), flags.common.output));
        }
        let rows = [
            ("rule", rule.name.to_string()),
            ("selects", shown(&rule.filter)),
            ("action", rule.action.as_ref().map_or_else(|| "-".to_owned(), with_parameters)),
            ("created", rule.created_at.to_string()),
        ];
        session.out.print(&sheet(&rows, &session.out))
    })
}
