//! `peeklock topic create`: creates a topic.

use clap::Args;
use peeklock::declaration::DeclaredTopic;
use peeklock::description::TopicDescription;
use peeklock::websocket::client::topic_to_json;

use super::super::Failure;
use super::super::arguments::topic_of;
use super::super::connect::{Common, Output, Patience};
use super::super::creation::Creation;
use super::super::properties::Properties;
use super::super::terminal::{line, object};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topic create orders
  peeklock topic create orders --ttl P1D --max-size-in-megabytes 2048
  peeklock topic create orders --if-not-exists     in scripts that run again

Without a subscription, a topic accepts messages and drops them. Create a subscription with \
`peeklock subscription create`.

",
    exit_codes!()
);

#[derive(Args)]
pub struct CreateFlags {
    /// Path of the topic, such as `orders` or `eu/orders`
    #[arg(value_parser = topic_of)]
    topic: String,
    /// Succeed if the topic already exists; print the properties that differ
    #[arg(long)]
    if_not_exists: bool,
    #[command(flatten)]
    properties: Properties<TopicDescription>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &CreateFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let created = admin.create_topic_with(&flags.topic, flags.properties.update()).await;
        let creation = Creation {
            kind: "topic",
            other: "queue",
            path: &flags.topic,
            if_not_exists: flags.if_not_exists,
        };
        let named = DeclaredTopic::new(&*flags.topic).with(flags.properties.update());
        let there = admin.topic(&flags.topic);
        let (described, said) = creation.finish(session, created, there, named).await?;
        if flags.common.output == Output::Table {
            let path = line(&described.description.path).into_owned();
            return session.out.print(&format!("topic `{path}` {said}\n"));
        }
        session.out.print(&object(&topic_to_json(&described), flags.common.output))
    })
}
