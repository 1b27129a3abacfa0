//! `peeklock message`: an operator acts on messages that are named by sequence number (CON-12).
//! `cli.rs` dispatches to it.

use clap::{Args, Subcommand};
use peeklock::command::{ACT_COUNT_MAX, Act, ActResult, ActedMessage, Deed};
use peeklock::ids::SequenceNumber;
use peeklock::time::TimeSpan;
use peeklock::websocket::client::acted_to_json;

use super::arguments::{When, new_instant, sequence_number, span_of, when};
use super::connect::{Common, Output, Patience};
use super::deed::problem;
use super::message::counted;
use super::terminal::{line, note};
use super::{Failure, exit};

pub const HELP: &str = "\
Examples:
  peeklock message delete orders 1001 1002
  peeklock message dead-letter orders 1001 --reason NotAnOrder
  peeklock message undefer orders 1001
  peeklock message reschedule orders 1001 --later 1h
  peeklock message delete 'orders/$deadletterqueue' 7

`peeklock peek` and `peeklock inspect` print the numbers. Other messages keep their \
locks and delivery counts.";

macro_rules! act_help {
    ($examples:literal) => {
        concat!(
            "Examples:\n",
            $examples,
            "
Up to 256 messages change together, or none. A message that is locked or in another state \
is left alone and reported. The command needs the rights Send and Listen.

",
            exit_codes!()
        )
    };
}

const DELETE_HELP: &str = act_help!(
    "  peeklock message delete orders 1001 1002
  peeklock message delete orders 1001 --break-locks    also if a receiver holds it
  peeklock message delete 'orders/$deadletterqueue' 7
"
);

const DEAD_LETTER_HELP: &str = act_help!(
    "  peeklock message dead-letter orders 1001 --reason NotAnOrder
  peeklock message dead-letter orders 1001 1002 --description 'no customer'
"
);

const UNDEFER_HELP: &str = act_help!(
    "  peeklock message undefer orders 1001
  peeklock inspect orders --state deferred             list deferred messages
"
);

const RESCHEDULE_HELP: &str = act_help!(
    "  peeklock message reschedule orders 1001 --at 2026-05-01T12:00:00Z
  peeklock message reschedule orders 1001 --later 1h
  peeklock message reschedule orders 1001 --earlier 10m
  peeklock message reschedule orders 1001 --now        deliver it now
"
);

#[derive(Subcommand)]
pub enum MessageCommand {
    /// Delete messages in any state
    #[command(after_help = DELETE_HELP)]
    Delete(Target),
    /// Move active or deferred messages to the dead-letter queue
    #[command(after_help = DEAD_LETTER_HELP)]
    DeadLetter(DeadLetterFlags),
    /// Make deferred messages active again, at their place in the queue
    #[command(after_help = UNDEFER_HELP)]
    Undefer(Target),
    /// Give scheduled messages another time
    #[command(after_help = RESCHEDULE_HELP)]
    Reschedule(RescheduleFlags),
}

#[derive(Args)]
pub struct Target {
    /// Queue, such as `orders`, sub-queue, topic or subscription
    entity: String,
    /// Sequence numbers, such as 1001
    #[arg(required = true, value_name = "NUMBER", num_args = 1..=4096, value_parser = sequence_number)]
    numbers: Vec<u64>,
    /// Break the locks of receivers, except in sessions, without counting deliveries as failed
    #[arg(long)]
    break_locks: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct DeadLetterFlags {
    #[command(flatten)]
    target: Target,
    /// Dead-letter reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Dead-letter description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

#[derive(Args)]
pub struct RescheduleFlags {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    to: To,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct To {
    /// New time, such as +1h or 2026-05-01T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = when)]
    at: Option<When>,
    /// Move the time to this much later, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    later: Option<TimeSpan>,
    /// Move the time to this much earlier, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    earlier: Option<TimeSpan>,
    /// Deliver the messages now
    #[arg(long)]
    now: bool,
}

/// A deed with its word in the output.
type Named = (&'static str, Deed);

pub fn run(command: &MessageCommand) -> Result<(), Failure> {
    match command {
        MessageCommand::Delete(target) => act(target, |_| ("deleted", Deed::Delete)),
        MessageCommand::DeadLetter(flags) => act(&flags.target, |_| {
            let text = |text: &Option<String>| text.as_deref().map(Into::into);
            let (reason, description) = (text(&flags.reason), text(&flags.description));
            ("dead-lettered", Deed::DeadLetter { reason, description })
        }),
        MessageCommand::Undefer(target) => act(target, |_| ("undeferred", Deed::Undefer)),
        MessageCommand::Reschedule(flags) => act(&flags.target, |now| {
            let To { at, later, earlier, now: _ } = flags.to;
            ("rescheduled", Deed::Reschedule(new_instant(at, later, earlier, now)))
        }),
    }
}

fn act(target: &Target, deed: impl Fn(peeklock::time::Timestamp) -> Named) -> Result<(), Failure> {
    target.common.run(Patience::Limited, async |session| {
        let (word, deed) = deed(session.client.now());
        let mut numbers = target.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let (mut acted, mut failure) = (Vec::new(), None);
        for numbers in numbers.chunks(ACT_COUNT_MAX) {
            let act = Act {
                step: None,
                sequences: numbers.iter().copied().map(SequenceNumber).collect(),
                deed: deed.clone(),
                breaks_locks: target.break_locks,
                kept: None,
            };
            match session.client.admin().act(&target.entity, act).await {
                Ok(results) => acted.extend(results),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let is_done = |message: &&ActedMessage| message.result == ActResult::Done;
        let done = acted.iter().filter(is_done).count();
        let is_whole = done == acted.len();
        if target.common.output == Output::Table {
            if done > 0 {
                let messages = counted(done as u64, "message");
                session.out.print(&format!("{word} {messages} of {}\n", line(&target.entity)))?;
            }
            for message in acted.iter().filter(|message| !is_done(message)) {
                note(&format!("message {}: {}", message.sequence, problem(message.result)));
            }
        } else if failure.is_none() || !acted.is_empty() {
            session.out.print(&format!("{}\n", acted_to_json(acted)))?;
        }
        // The results of earlier steps are printed: their changes stay.
        if let Some(error) = failure {
            return Err(error.into());
        }
        match (done, is_whole) {
            (_, true) => Ok(()),
            (0, false) => Err(Failure::Reported(exit::NOTHING)),
            (_, false) => Err(Failure::Reported(exit::IN_PART)),
        }
    })
}
