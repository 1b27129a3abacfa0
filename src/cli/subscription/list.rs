//! `peeklock subscription list`: lists the subscriptions of a topic.

use clap::Args;
use peeklock::command::DescribedSubscription;
use peeklock::websocket::client::{Client, subscription_to_json};

use super::super::Failure;
use super::super::arguments::topic_of;
use super::super::connect::{Common, Output, Patience};
use super::super::listing::{objects, pages};
use super::super::retry::policy_brief;
use super::super::terminal::{Cell, Out, Table, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription list orders
  peeklock subscription list orders -o ndjson | jq -r .path

",
    exit_codes!()
);

#[derive(Args)]
pub struct ListFlags {
    /// Topic, such as `orders`
    #[arg(value_parser = topic_of)]
    topic: String,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let subscriptions = all(&session.client, &flags.topic).await?;
        match flags.common.output {
            Output::Table if subscriptions.is_empty() => {
                let topic = &flags.topic;
                note(&format!(
                    "`{topic}` has no subscriptions; `peeklock subscription create {topic} NAME` \
                     creates one"
                ));
                Ok(())
            }
            Output::Table => session.out.print(&table(&subscriptions, &session.out)),
            output => objects(session.out, output, subscriptions.iter().map(subscription_to_json)),
        }
    })
}

/// Reads all subscriptions of a topic, page by page.
pub async fn all(client: &Client, topic: &str) -> Result<Vec<DescribedSubscription>, Failure> {
    let admin = client.admin();
    pages(async |skip| admin.subscriptions(topic, skip).await).await
}

/// Table of subscriptions.
pub fn table(subscriptions: &[DescribedSubscription], out: &Out) -> String {
    let heads = [
        "SUBSCRIPTION",
        "STATUS",
        "ACTIVE",
        "DELAYED",
        "DEAD",
        "DEFERRED",
        "RETRIES",
        "FORWARDS TO",
    ];
    let mut table = Table::new(&heads, heads.len(), out.colours);
    for one in subscriptions {
        let description = &one.description;
        table.row(vec![
            Cell::Text(description.name.to_string()),
            Cell::Text(description.status.name().to_owned()),
            Cell::Number(one.counts.active),
            Cell::Number(one.counts.delayed),
            Cell::Alarm(one.counts.dead_letter),
            Cell::Number(one.counts.deferred),
            Cell::Text(policy_brief(description.retry_policy.as_ref())),
            Cell::Text(description.forward_to.as_deref().unwrap_or("-").to_owned()),
        ]);
    }
    table.text(out).0
}
