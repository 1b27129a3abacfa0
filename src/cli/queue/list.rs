//! `peeklock queue list`: lists all queues.

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::Described;
use peeklock::websocket::client::{Client, queue_to_json};

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::listing::{objects, pages};
use super::super::retry::policy_brief;
use super::super::terminal::{Cell, Table, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue list
  peeklock queue list -o ndjson | jq -r 'select(.runtime.deadLetterMessageCount > 0) | .path'

",
    exit_codes!()
);

#[derive(Args)]
pub struct ListFlags {
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let queues = all(&session.client).await?;
        match flags.common.output {
            Output::Table if queues.is_empty() => {
                note("there are no queues; `peeklock queue create orders` creates one");
                Ok(())
            }
            Output::Table => {
                let mut table = table(session.out.colours);
                queues.iter().for_each(|queue| table.row(row(queue)));
                session.out.print(&table.text(&session.out).0)
            }
            output => objects(session.out, output, queues.iter().map(queue_to_json)),
        }
    })
}

/// Reads all queues, page by page.
pub async fn all(client: &Client) -> Result<Vec<Described>, Failure> {
    let admin = client.admin();
    pages(async |skip| admin.queues(skip).await).await
}

fn table(colours: bool) -> Table {
    let heads = [
        "QUEUE",
        "STATUS",
        "ACTIVE",
        "DELAYED",
        "DEAD",
        "SCHEDULED",
        "DEFERRED",
        "SIZE",
        "RETRIES",
    ];
    Table::new(&heads, heads.len(), colours)
}

fn row(queue: &Described) -> Vec<Cell> {
    vec![
        Cell::Text(queue.description.path.to_string()),
        Cell::Text(queue.description.status.name().to_owned()),
        Cell::Number(queue.counts.active),
        Cell::Number(queue.counts.delayed),
        Cell::Alarm(queue.counts.dead_letter),
        Cell::Number(queue.counts.scheduled),
        Cell::Number(queue.counts.deferred),
        Cell::Right(BinaryBytes(queue.size_bytes).to_string()),
        Cell::Text(policy_brief(queue.description.retry_policy.as_ref())),
    ]
}
