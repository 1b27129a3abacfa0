//! `peeklock rule list`: lists all rules of a subscription, page by page. `rule.rs` dispatches to
//! it, and `subscription show` uses its table.

use clap::Args;
use peeklock::rule::RuleDescription;
use peeklock::websocket::client::{Client, rule_to_json};

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::listing::{objects, pages};
use super::super::terminal::{Cell, Out, Table, note};
use super::filter::{shown, with_parameters};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule list orders eu
  peeklock rule list orders eu -o ndjson | jq -r .filter.sql

",
    exit_codes!()
);

#[derive(Args)]
pub struct ListFlags {
    #[command(flatten)]
    of: SubscriptionName,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let rules = all(&session.client, &flags.of.path()).await?;
        match flags.common.output {
            Output::Table if rules.is_empty() => {
                note(
                    "no rules, so the subscription gets no messages; `peeklock rule add` adds a \
                     rule",
                );
                Ok(())
            }
            Output::Table => session.out.print(&table(&rules, &session.out)),
            output => objects(session.out, output, rules.iter().map(rule_to_json)),
        }
    })
}

/// All rules of a subscription, page by page.
pub async fn all(client: &Client, path: &str) -> Result<Vec<RuleDescription>, Failure> {
    let admin = client.admin();
    pages(async |skip| admin.rules(path, skip, usize::MAX).await).await
}

/// Rules as a table with shortened values; `rule show` prints them in full.
pub fn table(rules: &[RuleDescription], out: &Out) -> String {
    let mut table = Table::new(&["RULE", "SELECTS", "ACTION"], 1, out.colours);
    rules.iter().for_each(|rule| table.row(row(rule)));
    if rules.is_empty() {
        return "no rules: the subscription gets no messages\n".to_owned();
    }
    table.text(out).0
}

fn row(rule: &RuleDescription) -> Vec<Cell> {
    vec![
        Cell::Text(rule.name.to_string()),
        Cell::Text(shown(&rule.filter)),
        Cell::Text(rule.action.as_ref().map_or_else(|| "-".to_owned(), with_parameters)),
    ]
}
