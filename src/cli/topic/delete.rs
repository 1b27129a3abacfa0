//! `peeklock topic delete`: deletes a topic after confirmation.

use clap::Args;

use super::super::Failure;
use super::super::arguments::topic_of;
use super::super::connect::{Common, Patience};
use super::super::deletion::Deletion;
use super::super::terminal::line;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock topic delete orders                     show its content and ask
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
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Succeed if there is no such topic
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let topic = &flags.topic;
        let deletion = Deletion {
            shown: format!("topic `{}`", line(topic)),
            name: topic,
            if_exists: flags.if_exists,
            output: flags.common.output,
        };
        if !flags.yes {
            let described = match admin.topic(topic).await {
                Ok(described) => described,
                Err(error) => return deletion.finish(session, Err(error)),
            };
            let question = format!(
                "Delete {} with everything in it: {} subscriptions, {} scheduled messages, {} bytes?",
                deletion.shown,
                described.subscription_count,
                described.scheduled,
                described.size_bytes
            );
            session.confirm(&question).await?;
        }
        deletion.finish(session, admin.delete_topic(topic).await)
    })
}
