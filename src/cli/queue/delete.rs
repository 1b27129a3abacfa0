//! `peeklock queue delete`

use clap::Args;
use peeklock::condition::Condition;

use super::super::Failure;
use super::super::arguments::queue_of;
use super::super::connect::{Common, Output, Patience};
use super::super::message::messages;
use super::super::terminal::{line, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue delete orders                     tells what is in it, and asks
  peeklock queue delete orders --yes
  peeklock queue delete orders --yes --if-exists   in scripts that run again

",
    exit_codes!()
);

#[derive(Args)]
pub struct DeleteFlags {
    /// Queue, such as `orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Be content if there is no such queue
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &DeleteFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let queue = &flags.queue;
        let gone = |error: peeklock::error::BrokerError| {
            if flags.if_exists && error.condition() == Condition::EntityNotFound {
                note(&format!("there is no queue `{queue}`"));
                return Ok(());
            }
            Err(Failure::from(error))
        };
        if !flags.yes {
            let counts = match admin.queue(queue).await {
                Ok(described) => described.counts,
                Err(error) => return gone(error),
            };
            let question = format!(
                "Delete queue `{queue}` with everything in it: {}, {} of them \
                 dead-lettered?",
                messages(counts.total()),
                counts.dead_letter
            );
            session.confirm(&question).await?;
        }
        if let Err(error) = admin.delete_queue(queue).await {
            return gone(error);
        }
        if flags.common.output == Output::Table {
            return session.out.say(&format!("queue `{}` deleted\n", line(queue)));
        }
        session.out.say(&format!("{}\n", serde_json::json!({ "deleted": queue })))
    })
}
