//! `peeklock topic list`: lists all topics.

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::DescribedTopic;
use peeklock::websocket::client::{Client, topic_to_json};

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::listing::{objects, pages};
use super::super::terminal::{Cell, Table, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topic list
  peeklock topic list -o ndjson | jq -r .path

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
        let topics = all(&session.client).await?;
        match flags.common.output {
            Output::Table if topics.is_empty() => {
                note("there are no topics; `peeklock topic create orders` creates one");
                Ok(())
            }
            Output::Table => {
                let heads = ["TOPIC", "STATUS", "SUBSCRIPTIONS", "SCHEDULED", "DEAD", "SIZE"];
                let mut table = Table::new(&heads, heads.len(), session.out.colours);
                topics.iter().for_each(|topic| table.row(row(topic)));
                session.out.print(&table.text(&session.out).0)
            }
            output => objects(session.out, output, topics.iter().map(topic_to_json)),
        }
    })
}

/// Reads all topics, page by page.
pub async fn all(client: &Client) -> Result<Vec<DescribedTopic>, Failure> {
    let admin = client.admin();
    pages(async |skip| admin.topics(skip).await).await
}

fn row(topic: &DescribedTopic) -> Vec<Cell> {
    vec![
        Cell::Text(topic.description.path.to_string()),
        Cell::Text(topic.description.status.name().to_owned()),
        Cell::Number(topic.subscription_count),
        Cell::Number(topic.scheduled),
        Cell::Alarm(topic.transfer_dead_letter),
        Cell::Right(BinaryBytes(topic.size_bytes).to_string()),
    ]
}
