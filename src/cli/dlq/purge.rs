//! `peeklock dlq purge`: deletes all or selected dead letters. `dlq.rs` dispatches to it, and it
//! asks for confirmation first.

use clap::Args;
use peeklock::command::Deed;
use peeklock::path::dead_letter_path;

use super::super::Failure;
use super::super::arguments::{queue_of, sequence_number};
use super::super::connect::{CommandConnection, Common, Output, Patience};
use super::super::message::messages;
use super::super::terminal::{Bar, WriteOutcome};
use super::condition::{MessageCondition, condition, conditions};
use super::pick::Selection;
use super::{explain_topic, job};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock dlq purge orders                                  all of them; asks first
  peeklock dlq purge orders --where reason=TTLExpiredException
  peeklock dlq purge orders --first 100 --yes                the oldest 100
  peeklock dlq purge orders --number 1001 --number 1007

",
    conditions!(),
    "

The command counts the dead letters that meet the conditions, asks, and deletes them in a job of \
the broker. Dead letters that arrive later stay. Deferred dead letters stay too, and letters that \
another receiver has locked; the command reports how many. It needs the rights Send and Listen.

",
    exit_codes!()
);

#[derive(Args)]
pub struct PurgeFlags {
    /// Queue or subscription whose dead letters to delete, such as `orders` or
    /// `sales/subscriptions/eu`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Delete only messages that meet a condition; may be repeated
    #[arg(long = "where", value_name = "CONDITION", value_parser = condition)]
    conditions: Vec<MessageCondition>,
    /// Delete only the messages with these sequence numbers; may be repeated
    #[arg(long = "number", value_name = "NUMBER", value_parser = sequence_number)]
    numbers: Vec<u64>,
    /// Delete at most this many, the oldest first [default: all]
    #[arg(long = "first", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        tokio::select! {
            result = purge(flags, session) => explain_topic(session, &flags.queue, result).await,
            () = session.report_connection() => Ok(()),
        }
    })
}

async fn purge(flags: &PurgeFlags, session: &CommandConnection) -> Result<(), Failure> {
    let path = dead_letter_path(&flags.queue);
    let receiver = session.client.receiver(&path)?;
    let pick = Selection {
        queue: &flags.queue,
        conditions: &flags.conditions,
        numbers: &flags.numbers,
        count: flags.count,
        verb: "delete",
    };
    let counting = Bar::new("counting", None);
    let found = pick
        .find_matches(session, &receiver, |_| {
            counting.advance(1);
            Ok(WriteOutcome::Done)
        })
        .await?;
    drop(counting);
    if found.count > 0 && !flags.yes {
        session.confirm(&format!("Delete {} of `{path}`?", messages(found.count))).await?;
    }
    receiver.close().await?;
    let totals = job::run(session, &path, &found.numbers, &Deed::Delete, "deleting").await;
    match flags.common.output {
        _ if totals.is_unknown => {}
        Output::Table => {
            session.out.print(&format!("deleted {} of {path}\n", messages(totals.done)))?;
        }
        Output::Json | Output::Ndjson => {
            let sum = serde_json::json!({ "path": path, "deleted": totals.done });
            session.out.print(&format!("{sum}\n"))?;
        }
    }
    totals.report(&path);
    totals.result()?;
    found.refuse_absent(&pick)
}
