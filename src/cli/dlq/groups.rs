//! `peeklock dlq groups`: counts dead letters by cause (CON-11). The broker counts them.

use clap::Args;
use peeklock::inspect::{Group, SortedGroups};
use peeklock::path::dead_letter_path;
use peeklock_json::{SearchForm, WhereForm};

use super::super::arguments::queue_of;
use super::super::connect::{CommandConnection, Common, Output, Patience};
use super::super::listing::objects;
use super::super::message::{CELL_CHARS_MAX, instant};
use super::super::search::{note_end, query, read, where_help};
use super::super::terminal::{Cell, Table, WriteOutcome, cut, note};
use super::super::{Failure, exit};
use super::explain_topic;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock dlq groups orders                       by description, without its variable parts
  peeklock dlq groups orders --by reason
  peeklock dlq groups orders --by 'json:$.shop' 'reason:timeout'
  peeklock dlq groups orders --by slot:3600 -o json

Groups have a count, the first and last instant of enqueueing, and up to three sequence numbers. In a description, \
marks in braces stand for numbers, GUIDs, hexadecimal digits and quoted parts. There are at most 1,000 groups; \
messages with further values are counted together as (other).

",
    where_help!(),
    "\n\n",
    exit_codes!()
);

#[derive(Args)]
pub struct GroupsFlags {
    /// Queue or subscription, such as `orders` or `sales/subscriptions/eu`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Count only messages that meet these conditions
    #[arg(value_name = "WHERE", default_value = "", hide_default_value = true)]
    conditions: String,
    /// Property to group by: reason, description, source, subject, property:NAME, json:PATH or
    /// slot:SECONDS
    #[arg(long, value_name = "PROPERTY", default_value = "description")]
    by: String,
    /// Position that an earlier command has printed
    #[arg(long, value_name = "POSITION")]
    after: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &GroupsFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        explain_topic(session, &flags.queue, groups(flags, session).await).await
    })
}

async fn groups(flags: &GroupsFlags, session: &CommandConnection) -> Result<(), Failure> {
    let form = SearchForm {
        entities: vec![dead_letter_path(&flags.queue)],
        conditions: WhereForm::Line(flags.conditions.clone()),
        group_by: Some(flags.by.clone()),
        after: flags.after.clone(),
        ..SearchForm::default()
    };
    let mut last = None;
    let reading = read(session, query(session, &form)?, |page, view| {
        if let Some(end) = page.end {
            last = Some((end.groups.unwrap_or_default(), page.progress, view["end"].clone()));
        }
        Ok(WriteOutcome::Done)
    });
    reading.await?;
    let Some((SortedGroups { groups, other }, progress, end)) = last else { return Ok(()) };
    if flags.common.output == Output::Table {
        let heads = ["COUNT", "GROUP", "FIRST", "LAST", "MESSAGES"];
        let mut table = Table::new(&heads, 4, session.out.colours);
        for group in &groups {
            table.row(row(group.value.as_deref().unwrap_or("(none)"), &group.group));
        }
        if let Some(other) = &other {
            table.row(row("(other)", other));
        }
        if !groups.is_empty() {
            session.out.print(&table.text(&session.out).0)?;
        }
    } else {
        let rows = end["groups"].as_array().into_iter().flatten();
        let rows = rows.chain(end.get("other")).map(ToString::to_string);
        objects(session.out, flags.common.output, rows)?;
    }
    note_end(&progress, &end);
    if groups.is_empty() {
        note(&format!("no dead letter of `{}` meets the conditions", flags.queue));
        return Err(Failure::Reported(exit::NOTHING));
    }
    Ok(())
}

fn row(value: &str, group: &Group) -> Vec<Cell> {
    let samples = group.samples.iter().map(|sample| sample.sequence.to_string());
    vec![
        Cell::Number(group.count),
        Cell::Text(cut(value.as_bytes(), CELL_CHARS_MAX).0),
        Cell::Text(instant(group.first_at)),
        Cell::Text(instant(group.last_at)),
        Cell::Text(samples.collect::<Vec<_>>().join(", ")),
    ]
}
