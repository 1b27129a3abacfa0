//! `peeklock dlq purge`: deletes all or selected dead letters. `dlq.rs` dispatches to it, and it
//! asks for confirmation first.

use clap::Args;
use peeklock::condition::Condition;
use peeklock::path::dead_letter_path;
use peeklock::websocket::client::Received;

use super::super::arguments::{queue_of, sequence_number};
use super::super::connect::{CommandConnection, Common, Output, Patience};
use super::super::message::{messages, tokens};
use super::super::terminal::{Bar, WriteOutcome, note};
use super::super::{Failure, exit};
use super::condition::{MessageCondition, condition, conditions};
use super::explain_topic;
use super::pick::{ReceivedSelection, Selection};

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

The command counts the dead letters that meet the conditions, asks, and deletes them. Dead letters that arrive \
later stay. Deferred dead letters stay too, and those that another receiver has locked; the command reports how \
many.

A broker delivers messages in their order only. Dead letters that do not meet the conditions and stand before one \
that does are locked meanwhile, and released uncounted.

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
    let bar = Bar::new("deleting", Some(found.count));
    let (mut deleted, mut lost) = (0, 0);
    let mut taken = ReceivedSelection::default();
    let delete = async |meant: Vec<Received>, _: &mut ReceivedSelection| -> Result<bool, Failure> {
        for completed in receiver.complete_many(&tokens(&meant)).await {
            match completed {
                Ok(()) => deleted += 1,
                Err(error) if error.condition() == Condition::MessageLockLost => lost += 1,
                Err(error) => return Err(error.into()),
            }
        }
        bar.advance(meant.len() as u64);
        Ok(true)
    };
    let worked = tokio::select! {
        biased;
        worked = pick.receive_found(session, &receiver, &found, &mut taken, delete) => worked,
        () = session.overdue() => Err(Failure::Reported(exit::INTERRUPTED)),
    };
    drop(bar);
    let left = if worked.is_ok() && deleted < found.count {
        pick.remaining_count(&receiver, &found).await?
    } else {
        0
    };
    if !session.interrupt.is_set() {
        taken.release(&receiver).await;
        receiver.close().await?;
    }
    match flags.common.output {
        Output::Table => {
            session.out.print(&format!("deleted {} of {path}\n", messages(deleted)))?
        }
        Output::Json | Output::Ndjson => {
            let sum = serde_json::json!({ "path": path, "deleted": deleted });
            session.out.print(&format!("{sum}\n"))?;
        }
    }
    if left > 0 {
        let are = if left == 1 { "is" } else { "are" };
        note(&format!(
            "error: {left} {are} still in `{path}`: locked by another receiver, or their locks had \
             expired"
        ));
    }
    match worked {
        Ok(()) if left + lost > 0 => Err(Failure::Reported(exit::IN_PART)),
        Ok(()) => found.refuse_absent(&pick),
        Err(Failure::Ended { text, .. }) if deleted > 0 => Err(Failure::ended(exit::IN_PART, text)),
        Err(failure) => Err(failure),
    }
}
