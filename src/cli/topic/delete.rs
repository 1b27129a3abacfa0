//! `peeklock topic delete`

use clap::Args;
use peeklock::condition::Condition;

use super::super::Failure;
use super::super::arguments::topic_of;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{line, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topic delete orders                     tells what goes with it, and asks
  peeklock topic delete orders --yes
  peeklock topic delete orders --yes --if-exists   in scripts that run again

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    /// Topic, such as `orders`
    #[arg(value_parser = topic_of)]
    topic: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Be content if there is no such topic
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let topic = &flags.topic;
        let gone = |error: peeklock::error::BrokerError| {
            if flags.if_exists && error.condition() == Condition::EntityNotFound {
                note(&format!("there is no topic `{topic}`"));
                return Ok(());
            }
            Err(Failure::from(error))
        };
        if !flags.yes {
            let described = match admin.topic(topic).await {
                Ok(described) => described,
                Err(error) => return gone(error),
            };
            let question = format!(
                "Delete topic `{topic}` with everything in it: {} subscriptions, {} scheduled \
                 messages, {} bytes?",
                described.subscription_count, described.scheduled, described.size_bytes
            );
            session.confirm(&question).await?;
        }
        if let Err(error) = admin.delete_topic(topic).await {
            return gone(error);
        }
        if flags.common.output == Output::Table {
            return session.out.say(&format!("topic `{}` deleted\n", line(topic)));
        }
        session.out.say(&format!("{}\n", serde_json::json!({ "deleted": topic })))
    })
}
