//! `peeklock subscription list`

use clap::Args;
use peeklock::command::DescribedSubscription;
use peeklock::websocket::client::{Client, subscription_to_json};

use super::super::Failure;
use super::super::arguments::topic_of;
use super::super::connect::{Common, Output, Patience};
use super::super::message::{Form, Writer};
use super::super::terminal::{Cell, Out, Table, Wrote, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription list orders
  peeklock subscription list orders -o ndjson | jq -r .path

",
    exit_codes!()
);

/// A broker that says there are always more is not believed for ever.
const SUBSCRIPTIONS_MAX: usize = 1_000_000;

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
        let form = match flags.common.output {
            Output::Table if subscriptions.is_empty() => {
                let topic = &flags.topic;
                note(&format!(
                    "`{topic}` has no subscriptions; `peeklock subscription create {topic} NAME` \
                     makes one"
                ));
                return Ok(());
            }
            Output::Table => return session.out.say(&table(&subscriptions, &session.out)),
            Output::Json => Form::Json,
            Output::Ndjson => Form::Ndjson,
        };
        let mut writer = Writer::new(session.out, form);
        for subscription in &subscriptions {
            if writer.object(&subscription_to_json(subscription))? == Wrote::Gone {
                return Ok(());
            }
        }
        writer.end()
    })
}

/// All subscriptions of a topic, page by page.
pub async fn all(client: &Client, topic: &str) -> Result<Vec<DescribedSubscription>, Failure> {
    let admin = client.admin();
    let mut subscriptions: Vec<DescribedSubscription> = Vec::new();
    while subscriptions.len() < SUBSCRIPTIONS_MAX {
        let page = admin.subscriptions(topic, subscriptions.len()).await?;
        if page.is_empty() {
            break;
        }
        subscriptions.extend(page);
    }
    Ok(subscriptions)
}

/// Subscriptions as a table.
pub fn table(subscriptions: &[DescribedSubscription], out: &Out) -> String {
    let heads = ["SUBSCRIPTION", "STATUS", "ACTIVE", "DELAYED", "DEAD", "DEFERRED", "FORWARDS TO"];
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
            Cell::Text(description.forward_to.as_deref().unwrap_or("-").to_owned()),
        ]);
    }
    table.text(out).0
}
