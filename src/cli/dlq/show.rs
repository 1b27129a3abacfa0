//! `peeklock dlq show`: shows all details of a dead letter. `dlq.rs` dispatches to it.

use clap::Args;
use peeklock::ids::SequenceNumber;
use peeklock::path::dead_letter_path;

use super::super::arguments::{queue_of, sequence_number};
use super::super::connect::{CommandConnection, Common, Patience};
use super::super::message::{BodyFlags, Form, Writer};
use super::super::{Failure, exit};
use super::explain_topic;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock dlq show orders 1001
  peeklock dlq show orders 1001 --raw > body
  peeklock dlq show orders 1001 -o json | jq .applicationProperties

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    /// Queue, such as `orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Sequence number, as printed by `peeklock dlq list`
    #[arg(value_parser = sequence_number)]
    number: u64,
    #[command(flatten)]
    body: BodyFlags,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        explain_topic(session, &flags.queue, show(flags, session).await).await
    })
}

async fn show(flags: &ShowFlags, session: &CommandConnection) -> Result<(), Failure> {
    let path = dead_letter_path(&flags.queue);
    let receiver = session.client.receiver(&path)?;
    let found = receiver.peek(SequenceNumber(flags.number), 1).await?;
    receiver.close().await?;
    let message = found.first().filter(|found| found.sequence_number().0 == flags.number);
    let Some(message) = message else {
        return Err(Failure::ended(
            exit::NOT_FOUND,
            format!(
                "there is no message {} in `{path}`; `peeklock dlq list {}` lists the messages",
                flags.number, flags.queue
            ),
        ));
    };
    // A single object is not a JSON array.
    let form = match flags.body.form(flags.common.output) {
        Form::Json => Form::Ndjson,
        form => form,
    };
    let _wrote = Writer::new(session.out, form).message(message)?;
    Ok(())
}
