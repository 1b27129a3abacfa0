//! `peeklock schedule`: commands for messages that are not yet due. `cli.rs` dispatches to it.

use clap::{Args, Subcommand};
use peeklock::ids::SequenceNumber;

use super::Failure;
use super::arguments::sequence_number;
use super::connect::{Common, Output, Patience};

pub const HELP: &str = "\
Examples:
  peeklock send orders 'remind me' --at +1h        schedule, and print the sequence number
  peeklock peek orders --state scheduled --all     list scheduled messages
  peeklock schedule cancel orders 1001";

const CANCEL_HELP: &str = concat!(
    "\
Examples:
  peeklock schedule cancel orders 1001
  peeklock schedule cancel orders 1001 1002        both, or none if one does not exist
  peeklock peek orders --state scheduled --all     list messages that can be cancelled
  peeklock send orders 'remind me' --at +1h        schedule a message

",
    exit_codes!()
);

#[derive(Subcommand)]
pub enum ScheduleCommand {
    /// Cancel scheduled messages before they become available: all given ones, or none
    #[command(after_help = CANCEL_HELP)]
    Cancel(CancelFlags),
}

#[derive(Args)]
pub struct CancelFlags {
    /// Queue, such as `orders`
    queue: String,
    /// Sequence numbers, as printed by `send`, such as 1001
    #[arg(required = true, value_name = "NUMBER", num_args = 1..=4096, value_parser = sequence_number)]
    numbers: Vec<u64>,
    #[command(flatten)]
    common: Common,
}

pub fn run(command: &ScheduleCommand) -> Result<(), Failure> {
    let ScheduleCommand::Cancel(flags) = command;
    flags.common.run(Patience::Limited, async |session| {
        let numbers: Vec<_> = flags.numbers.iter().copied().map(SequenceNumber).collect();
        let sender = session.client.sender(&flags.queue)?;
        sender.cancel_scheduled(numbers).await.map_err(|error| {
            Failure::from(error).hint(&format!(
                "nothing was cancelled; `peeklock peek {} --state scheduled` lists the scheduled \
                 messages",
                flags.queue
            ))
        })?;
        let count = flags.numbers.len();
        match flags.common.output {
            Output::Table => {
                let messages = if count == 1 { "message" } else { "messages" };
                session.out.print(&format!("cancelled {count} {messages}\n"))
            }
            Output::Json | Output::Ndjson => {
                let object = serde_json::json!({ "cancelled": flags.numbers });
                session.out.print(&format!("{object}\n"))
            }
        }
    })
}
