//! `peeklock topic show`: shows properties and subscriptions of a topic. `topic.rs` dispatches to
//! it.

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::DescribedTopic;
use peeklock::time::Timestamp;
use peeklock::websocket::client::topic_to_json;

use super::super::Failure;
use super::super::arguments::topic_of;
use super::super::connect::{Common, Output, Patience};
use super::super::properties;
use super::super::subscription;
use super::super::terminal::{object, sheet};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topic show orders
  peeklock topic show orders -o json | jq .runtime.subscriptionCount

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    /// Topic, such as `orders`
    #[arg(value_parser = topic_of)]
    topic: String,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let described = session.client.admin().topic(&flags.topic).await?;
        if flags.common.output != Output::Table {
            return session.out.print(&object(&topic_to_json(&described), flags.common.output));
        }
        session.out.print(&sheet(&rows(&described), &session.out))?;
        let subscriptions = subscription::all(&session.client, &flags.topic).await?;
        if subscriptions.is_empty() {
            return Ok(());
        }
        let table = subscription::table(&subscriptions, &session.out);
        session.out.print(&format!("\n{table}"))
    })
}

fn rows(described: &DescribedTopic) -> Vec<(&'static str, String)> {
    let description = &described.description;
    let at = |at: Timestamp| {
        if at == Timestamp::NONE { "never".to_owned() } else { at.to_string() }
    };
    let mut rows = vec![
        ("topic", description.path.to_string()),
        ("status", description.status.name().to_owned()),
        ("subscriptions", described.subscription_count.to_string()),
        ("scheduled", described.scheduled.to_string()),
        ("waiting for transfer", described.transfer.to_string()),
        ("transfer dead-lettered", described.transfer_dead_letter.to_string()),
        ("size", BinaryBytes(described.size_bytes).to_string()),
        ("last sequence number", described.last_sequence.to_string()),
    ];
    rows.extend(properties::rows(description));
    rows.extend([
        ("created", at(described.created_at)),
        ("updated", at(described.updated_at)),
        ("last used", at(described.accessed_at)),
    ]);
    rows
}
