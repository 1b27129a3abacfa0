//! `peeklock schedule`: messages that are not yet due.

use clap::{Args, Subcommand};
use peeklock::ids::SequenceNumber;

use super::Failure;
use super::arguments::sequence_number;
use super::connect::{Common, Output, Patience};

pub const HELP: &str = "\
Examples:
  peeklock send orders 'remind me' --at +1h        schedules, and tells the number
  peeklock peek orders --state scheduled --all     shows what is scheduled
  peeklock schedule cancel orders 1001";

const CANCEL_HELP: &str = concat!(
    "\
Examples:
  peeklock schedule cancel orders 1001
  peeklock schedule cancel orders 1001 1002        both, or none if one is not there
  peeklock peek orders --state scheduled --all     what could be cancelled
  peeklock send orders 'remind me' --at +1h        schedules

",
    exit_codes!()
);

#[derive(Subcommand)]
pub enum ScheduleCommand {
    /// Take scheduled messages back before they become available: all that are named, or none
    #[command(after_help = CANCEL_HELP)]
    Cancel(CancelFlags),
}

#[derive(Args)]
pub struct CancelFlags {
    /// Queue, such as `orders`
    queue: String,
    /// Sequence numbers, as `send` told them
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
                "nothing was cancelled; `peeklock peek {} --state scheduled` shows what is scheduled",
                flags.queue
            ))
        })?;
        let count = flags.numbers.len();
        match flags.common.output {
            Output::Table => {
                let messages = if count == 1 { "message" } else { "messages" };
                session.out.say(&format!("cancelled {count} {messages}\n"))
            }
            Output::Json | Output::Ndjson => {
                let told = serde_json::json!({ "cancelled": flags.numbers });
                session.out.say(&format!("{told}\n"))
            }
        }
    })
}
