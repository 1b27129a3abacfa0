//! `peeklock topic list`

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::DescribedTopic;
use peeklock::websocket::client::{Client, topic_to_json};

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::message::{Form, Writer};
use super::super::terminal::{Cell, Table, Wrote, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topic list
  peeklock topic list -o ndjson | jq -r .path

",
    exit_codes!()
);

/// A broker that says there are always more is not believed for ever.
const TOPICS_MAX: usize = 1_000_000;

#[derive(Args)]
pub struct ListFlags {
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let topics = all(&session.client).await?;
        let form = match flags.common.output {
            Output::Table if topics.is_empty() => {
                note("there are no topics; `peeklock topic create orders` makes one");
                return Ok(());
            }
            Output::Table => {
                let heads = ["TOPIC", "STATUS", "SUBSCRIPTIONS", "SCHEDULED", "DEAD", "SIZE"];
                let mut table = Table::new(&heads, heads.len(), session.out.colours);
                topics.iter().for_each(|topic| table.row(row(topic)));
                return session.out.say(&table.text(&session.out).0);
            }
            Output::Json => Form::Json,
            Output::Ndjson => Form::Ndjson,
        };
        let mut writer = Writer::new(session.out, form);
        for topic in &topics {
            if writer.object(&topic_to_json(topic))? == Wrote::Gone {
                return Ok(());
            }
        }
        writer.end()
    })
}

/// All topics, page by page.
pub async fn all(client: &Client) -> Result<Vec<DescribedTopic>, Failure> {
    let admin = client.admin();
    let mut topics: Vec<DescribedTopic> = Vec::new();
    while topics.len() < TOPICS_MAX {
        let page = admin.topics(topics.len()).await?;
        if page.is_empty() {
            break;
        }
        topics.extend(page);
    }
    Ok(topics)
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
