//! `peeklock queue create`: creates a queue.

use clap::Args;
use peeklock::declaration::DeclaredQueue;
use peeklock::description::QueueDescription;

use super::super::Failure;
use super::super::arguments::queue_of;
use super::super::connect::{Common, Output, Patience};
use super::super::creation::Creation;
use super::super::properties::Properties;
use super::super::terminal::line;
use super::show;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue create orders
  peeklock queue create orders --lock-duration 30s --max-delivery-count 3
  peeklock queue create jobs --ttl P1D --dead-lettering-on-message-expiration
  peeklock queue create once --requires-duplicate-detection \\
    --duplicate-detection-history-time-window 1h
  peeklock queue create orders --if-not-exists     in scripts that run again

",
    exit_codes!()
);

#[derive(Args)]
pub struct CreateFlags {
    /// Path of the queue, such as `orders` or `eu/orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Succeed if the queue already exists; print the properties that differ
    #[arg(long)]
    if_not_exists: bool,
    #[command(flatten)]
    properties: Properties<QueueDescription>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &CreateFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let created = admin.create_queue_with(&flags.queue, flags.properties.update()).await;
        let creation = Creation {
            kind: "queue",
            other: "topic",
            path: &flags.queue,
            if_not_exists: flags.if_not_exists,
        };
        let named = DeclaredQueue::new(&*flags.queue).with(flags.properties.update());
        let there = admin.queue(&flags.queue);
        let (described, said) = creation.finish(session, created, there, named).await?;
        if flags.common.output == Output::Table {
            let path = line(&described.description.path).into_owned();
            return session.out.print(&format!("queue `{path}` {said}\n"));
        }
        session.out.print(&show::form(&described, flags.common.output, &session.out))
    })
}
