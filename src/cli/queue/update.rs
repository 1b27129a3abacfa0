//! `peeklock queue update`: changes properties of a queue.

use clap::Args;
use peeklock::description::{QueueDescription, QueueUpdate};

use super::super::Failure;
use super::super::arguments::queue_of;
use super::super::connect::{Common, Output, Patience};
use super::super::properties::{Properties, clearable, cleared};
use super::super::terminal::line;
use super::show;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue update orders --max-delivery-count 5
  peeklock queue update orders --status ReceiveDisabled
  peeklock queue update orders --clear user-metadata

",
    exit_codes!()
);

#[derive(Args)]
pub struct UpdateFlags {
    /// Queue, such as `orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Reset a property to no value, such as user-metadata; may be repeated
    #[arg(long, value_name = "PROPERTY", value_parser = clearable::<QueueDescription>())]
    clear: Vec<String>,
    #[command(flatten)]
    properties: Properties<QueueDescription>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &UpdateFlags) -> Result<(), Failure> {
    let update = flags.properties.update();
    if update == QueueUpdate::default() && flags.clear.is_empty() {
        return Err(Failure::usage(
            "nothing to change: give at least one property, such as --max-delivery-count 5",
        ));
    }
    let cleared = cleared::<QueueDescription>(&flags.clear);
    flags.common.run(Patience::Limited, async |session| {
        let described = session.client.admin().change_queue(&flags.queue, update, cleared).await?;
        if flags.common.output == Output::Table {
            let path = line(&described.description.path).into_owned();
            return session.out.print(&format!("queue `{path}` updated\n"));
        }
        session.out.print(&show::form(&described, flags.common.output, &session.out))
    })
}
