//! `peeklock topic update`: changes properties of a topic.

use clap::Args;
use peeklock::description::{TopicDescription, TopicUpdate};
use peeklock::websocket::client::topic_to_json;

use super::super::Failure;
use super::super::arguments::topic_of;
use super::super::connect::{Common, Output, Patience};
use super::super::properties::{Properties, clearable, cleared};
use super::super::terminal::{line, object};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topic update orders --ttl 1h
  peeklock topic update orders --status SendDisabled
  peeklock topic update orders --clear user-metadata

",
    exit_codes!()
);

#[derive(Args)]
pub struct UpdateFlags {
    /// Topic, such as `orders`
    #[arg(value_parser = topic_of)]
    topic: String,
    /// Reset a property to no value, such as user-metadata; may be repeated
    #[arg(long, value_name = "PROPERTY", value_parser = clearable::<TopicDescription>())]
    clear: Vec<String>,
    #[command(flatten)]
    properties: Properties<TopicDescription>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &UpdateFlags) -> Result<(), Failure> {
    let update = flags.properties.update();
    if update == TopicUpdate::default() && flags.clear.is_empty() {
        return Err(Failure::usage(
            "nothing to change: give at least one property, such as --ttl 1h",
        ));
    }
    let cleared = cleared::<TopicDescription>(&flags.clear);
    flags.common.run(Patience::Limited, async |session| {
        let described = session.client.admin().change_topic(&flags.topic, update, cleared).await?;
        if flags.common.output == Output::Table {
            let path = line(&described.description.path).into_owned();
            return session.out.print(&format!("topic `{path}` updated\n"));
        }
        session.out.print(&object(&topic_to_json(&described), flags.common.output))
    })
}
