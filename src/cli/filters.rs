//! `peeklock samples` and `peeklock what-if`: the last published messages of a topic, and changed
//! rules tried on them before they are saved (CON-36, CON-37).

use std::sync::Arc;

use clap::Args;
use peeklock::inspect::{
    Found, Question, ROW_COUNT_MAX, SamplesQuery, TRIED_COUNT_MAX, TopicSample, WhatIf, WhatIfQuery,
};
use peeklock::rule::{DEFAULT_RULE, RuleChange, RuleEdit};
use peeklock::websocket::client::findings_to_json;

use super::arguments::{SubscriptionName, topic_of};
use super::connect::{Common, Output, Patience};
use super::inspect::ask;
use super::listing::objects;
use super::message::{counted, id, instant_exact, plain};
use super::rule::FilterFlags;
use super::terminal::{Cell, Table, note};
use super::{Failure, exit};

pub const SAMPLES_HELP: &str = concat!(
    "\
Examples:
  peeklock samples orders                          the last messages that `orders` published
  peeklock samples orders -n 500 -o ndjson | jq .message.applicationProperties

The broker keeps the properties of the last 256 messages of each topic, in memory and without \
bodies, also of messages that no subscription selected: COPIES is then 0. Try a rule on them with \
`peeklock what-if`, and see with `peeklock rule test TOPIC --sequence NUMBER` which rules select one.

",
    exit_codes!()
);

pub const WHAT_IF_HELP: &str = concat!(
    "\
Examples:
  peeklock what-if orders eu --rule dear --sql 'price > 100'    add or replace the rule `dear`
  peeklock what-if orders eu --rule '$Default' --remove
  peeklock what-if orders eu --rule dear --sql 'price > 100' -o json | jq '.[0].differences'

The broker tries the rules of the topic, with this change and without it, on its samples and on up \
to 1,000 messages of its subscriptions. Nothing changes. The first table counts the messages that \
each subscription would get, the second one has the messages that differ: `+` before a subscription \
that gets it only with the change, `-` only without it, `~` as a different copy.

",
    exit_codes!(),
    "

Here 6 means that no message differs, and that none was left out."
);

#[derive(Args)]
pub struct SamplesFlags {
    /// Topic, such as `orders`
    #[arg(value_parser = topic_of)]
    topic: String,
    /// Maximum number of messages, the newest first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROW_COUNT_MAX)))]
    count: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct WhatIfFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Rule to add, replace or remove
    #[arg(long, value_name = "NAME", default_value = DEFAULT_RULE)]
    rule: String,
    /// Try the topic without the rule
    #[arg(long, conflicts_with_all = ["sql", "correlation", "all", "none", "action"])]
    remove: bool,
    #[command(flatten)]
    filter: FilterFlags,
    /// Maximum number of messages of subscriptions
    #[arg(long, value_name = "N", default_value_t = TRIED_COUNT_MAX,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(TRIED_COUNT_MAX)))]
    messages: u32,
    /// Maximum number of differing messages to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROW_COUNT_MAX)))]
    count: u32,
    #[command(flatten)]
    common: Common,
}

pub fn samples(flags: &SamplesFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let question = Question::Samples(SamplesQuery { count_max: flags.count });
        let read = |found: &Found| match found {
            Found::Samples(page) => Some(page.clone()),
            _ => None,
        };
        let (page, findings) = ask(session, &flags.topic, question, read).await?;
        if flags.common.output != Output::Table {
            return objects(session.out, flags.common.output, findings_to_json(findings));
        }
        if page.samples.is_empty() {
            note("the topic has published no message since the broker started");
            return Err(Failure::Reported(exit::NOTHING));
        }
        let heads = ["NUMBER", "TIME", "SIZE", "COPIES", "ID", "SUBJECT", "PROPERTIES"];
        let mut table = Table::new(&heads, 7, session.out.colours);
        for sample in &page.samples {
            let copies = sample.copy_count.map(|count| count.to_string());
            table.row(vec![
                Cell::Right(sample.sequence.0.to_string()),
                Cell::Text(instant_exact(sample.enqueued_at)),
                Cell::Right(sample.size.to_string()),
                Cell::Right(copies.unwrap_or_default()),
                Cell::Text(id(&sample.message)),
                Cell::Text(sample.message.subject.clone().unwrap_or_default()),
                Cell::Text(properties(sample)),
            ]);
        }
        let (text, _) = table.text(&session.out);
        session.out.print(&text)?;
        if page.total > page.samples.len() as u64 {
            note(&format!("{} of {}; -n shows more", page.samples.len(), page.total));
        }
        Ok(())
    })
}

pub fn what_if(flags: &WhatIfFlags) -> Result<(), Failure> {
    if !flags.remove && !flags.filter.is_given() {
        let text = "no change to try: give a filter such as --sql 'price > 100', or --remove";
        return Err(Failure::usage(text));
    }
    flags.common.run(Patience::Limited, async |session| {
        let edit = match flags.remove {
            true => RuleEdit::Remove(flags.rule.as_str().into()),
            false => RuleEdit::Set(Box::new(flags.filter.rule(&flags.rule))),
        };
        let change = RuleChange { subscription: flags.of.subscription.as_str().into(), edit };
        let query = WhatIfQuery {
            changes: vec![change],
            message_count_max: flags.messages,
            difference_count_max: flags.count,
        };
        let read = |found: &Found| match found {
            Found::WhatIf(found) => Some(found.clone()),
            _ => None,
        };
        let question = Question::WhatIf(Box::new(query));
        let (found, findings) = ask(session, &flags.of.topic, question, read).await?;
        if flags.common.output == Output::Table {
            let (text, _) = counts(&found, session.out.colours).text(&session.out);
            session.out.print(&text)?;
            if !found.differences.is_empty() {
                let (text, _) = differences(&found, session.out.colours).text(&session.out);
                session.out.print(&format!("\n{text}"))?;
            }
            report(&found);
        } else {
            objects(session.out, flags.common.output, findings_to_json(findings))?;
        }
        match found.difference_count {
            0 if !found.is_cut => Err(Failure::Reported(exit::NOTHING)),
            _ => Ok(()),
        }
    })
}

fn counts(found: &WhatIf, colours: bool) -> Table {
    let heads = ["SUBSCRIPTION", "BEFORE", "AFTER", "GAINED", "LOST", "CHANGED"];
    let mut table = Table::new(&heads, 6, colours);
    for row in &found.subscriptions {
        let mut cells = vec![Cell::Text((*row.name).to_owned())];
        let numbers = [row.before, row.after, row.gained, row.lost, row.changed];
        cells.extend(numbers.map(|number| Cell::Right(number.to_string())));
        table.row(cells);
    }
    table
}

fn differences(found: &WhatIf, colours: bool) -> Table {
    let mut table =
        Table::new(&["IN", "NUMBER", "ID", "SUBJECT", "SUBSCRIPTIONS", "PROPERTIES"], 6, colours);
    for difference in &found.differences {
        let sample = &difference.sample;
        let sides =
            [("+", &difference.gained), ("-", &difference.lost), ("~", &difference.changed)];
        let named = |(sign, names): (&str, &Vec<Arc<str>>)| {
            names.iter().map(|name| format!("{sign}{name}")).collect::<Vec<_>>()
        };
        table.row(vec![
            Cell::Text(sample.subscription.as_deref().unwrap_or("samples").to_owned()),
            Cell::Right(sample.sequence.0.to_string()),
            Cell::Text(id(&sample.message)),
            Cell::Text(sample.message.subject.clone().unwrap_or_default()),
            Cell::Text(sides.into_iter().flat_map(named).collect::<Vec<_>>().join(" ")),
            Cell::Text(properties(sample)),
        ]);
    }
    table
}

/// Prints the number of messages that were tried, and whether something is left out.
fn report(found: &WhatIf) {
    let stored = counted(found.message_count, "message");
    let samples = counted(found.sample_count, "sample");
    note(&format!("tried on {samples} and {stored} of subscriptions"));
    let (shown, all) = (found.differences.len() as u64, found.difference_count);
    match all {
        0 => note("no message differs"),
        all if all > shown => {
            note(&format!("{shown} of {all} messages that differ; -n shows more"))
        }
        _ => {}
    }
    if found.is_cut {
        note("further messages are left out, since the memory or the time was used up");
    }
    if found.hidden_count > 0 {
        let count = counted(found.hidden_count, "subscription");
        note(&format!("{count} that you may not read"));
    }
}

/// Application properties in one cell.
fn properties(sample: &TopicSample) -> String {
    let all = sample.message.application_properties.iter();
    all.map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(" ")
}
