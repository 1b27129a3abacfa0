//! `peeklock rule list`

use clap::Args;
use peeklock::rule::RuleDescription;
use peeklock::websocket::client::{Client, rule_to_json};

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::message::{Form, Writer};
use super::super::terminal::{Cell, Out, Table, Wrote, note};
use super::filter::{shown, with_parameters};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule list orders eu
  peeklock rule list orders eu -o ndjson | jq -r .filter.sql

",
    exit_codes!()
);

/// A broker that says there are always more is not believed for ever.
const RULES_MAX: usize = 1_000_000;

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
        let form = match flags.common.output {
            Output::Table if rules.is_empty() => {
                note("no rules, so it gets nothing; `peeklock rule add` adds one");
                return Ok(());
            }
            Output::Table => {
                return session.out.say(&table(&rules, &session.out));
            }
            Output::Json => Form::Json,
            Output::Ndjson => Form::Ndjson,
        };
        let mut writer = Writer::new(session.out, form);
        for rule in &rules {
            if writer.object(&rule_to_json(rule))? == Wrote::Gone {
                return Ok(());
            }
        }
        writer.end()
    })
}

/// All rules of a subscription, page by page.
pub async fn all(client: &Client, path: &str) -> Result<Vec<RuleDescription>, Failure> {
    let admin = client.admin();
    let mut rules: Vec<RuleDescription> = Vec::new();
    while rules.len() < RULES_MAX {
        let page = admin.rules(path, rules.len(), usize::MAX).await?;
        if page.is_empty() {
            break;
        }
        rules.extend(page);
    }
    Ok(rules)
}

/// Rules as a table; `rule show` has what is cut.
pub fn table(rules: &[RuleDescription], out: &Out) -> String {
    let mut table = Table::new(&["RULE", "SELECTS", "ACTION"], 1, out.colours);
    rules.iter().for_each(|rule| table.row(row(rule)));
    if rules.is_empty() {
        return "no rules: it gets nothing\n".to_owned();
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
