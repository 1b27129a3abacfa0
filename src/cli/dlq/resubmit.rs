//! `peeklock dlq resubmit`: finds dead letters by their properties, and lets a job of the broker send
//! them again, each exactly once (CON-15). `dlq.rs` dispatches to it.

use std::sync::Arc;

use clap::Args;
use peeklock::command::{ActResult, Deed, Edit};
use peeklock::inspect::BodyChange;
use peeklock::message::Message;
use peeklock::path::dead_letter_path;
use peeklock::websocket::client::Received;

use super::super::arguments::{queue_of, sequence_number};
use super::super::connect::{CommandConnection, Common, Output, Patience};
use super::super::deed::{EditFlags, problem};
use super::super::message::{Form, Writer, messages};
use super::super::terminal::{WriteOutcome, note};
use super::super::{Failure, exit};
use super::condition::{MessageCondition, condition, conditions};
use super::copies::{self, Copies};
use super::pick::{FoundSelection, Selection};
use super::{explain_topic, job, origin};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock dlq resubmit orders --dry-run
  peeklock dlq resubmit orders
  peeklock dlq resubmit orders --where reason=MaxDeliveryCountExceeded --set retried:bool=true
  peeklock dlq resubmit orders --where 'description~timeout' -n 10
  peeklock dlq resubmit orders --number 1001 --to orders-by-hand

",
    conditions!(),
    "

A job of the broker sends the messages, each exactly once, even if the client or the broker is \
killed meanwhile. `peeklock job list` lists the job; an interrupt cancels it. A message that its \
destination refuses stays, and so do deferred dead letters and dead letters that a receiver has \
locked. If a destination is full, the command waits.

By default each message returns to its queue, or to its subscription only. A destination with \
duplicate detection refuses a message whose id it has or had; --new-id gives the messages new ids. \
The messages lose DeadLetterReason and DeadLetterErrorDescription, and their time to live starts \
again. A message that fails again is not sent a second time. The command needs the rights Send and \
Listen.

",
    exit_codes!()
);

#[derive(Args)]
pub struct ResubmitFlags {
    /// Queue or subscription whose dead letters to resubmit, such as `orders`,
    /// `sales/subscriptions/eu`, or `orders/$transfer` for messages that could not be forwarded
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Resubmit only messages that meet a condition; may be repeated
    #[arg(long = "where", value_name = "CONDITION", value_parser = condition)]
    conditions: Vec<MessageCondition>,
    /// Resubmit only the messages with these sequence numbers; may be repeated
    #[arg(long = "number", value_name = "NUMBER", value_parser = sequence_number)]
    numbers: Vec<u64>,
    /// Resubmit at most this many messages [default: all]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    edit: EditFlags,
    /// Queue, topic or subscription for the messages [default: their queue or subscription]
    #[arg(long, value_name = "ENTITY")]
    to: Option<String>,
    /// Show the messages that would be sent, without changing anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

impl ResubmitFlags {
    /// Destination of the messages.
    fn to(&self) -> &str {
        self.to.as_deref().unwrap_or_else(|| origin::entity(&self.queue))
    }

    /// Selection of dead letters.
    fn pick(&self) -> Selection<'_> {
        Selection {
            queue: &self.queue,
            conditions: &self.conditions,
            numbers: &self.numbers,
            count: self.count,
            verb: "resubmit",
        }
    }

    /// A dead letter as it would be sent, with the result if it would stay.
    fn copy(&self, message: &Received, body: Option<&BodyChange>) -> (Message, Option<ActResult>) {
        let mut copy = message.to_resubmit();
        copy.message_id.clone_from(&message.message().message_id);
        let stays = self.edit.apply(&mut copy, body);
        (copy, stays)
    }
}

pub fn run(flags: &ResubmitFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let work = async {
            let edit = flags.edit.edit()?;
            if flags.dry_run {
                dry_run(flags, edit.as_deref(), session).await
            } else {
                resubmit(flags, edit, session).await
            }
        };
        tokio::select! {
            result = work => explain_topic(session, &flags.queue, result).await,
            () = session.report_connection() => Ok(()),
        }
    })
}

async fn dry_run(
    flags: &ResubmitFlags,
    edit: Option<&Edit>,
    session: &CommandConnection,
) -> Result<(), Failure> {
    let body = edit.and_then(|edit| edit.body.as_ref()).map(BodyChange::new);
    let receiver = session.client.receiver(&dead_letter_path(&flags.queue))?;
    let form = match flags.common.output {
        Output::Table => None,
        Output::Json => Some(Form::Json),
        Output::Ndjson => Some(Form::Ndjson),
    };
    let mut rows =
        Copies::new(session.out.colours, body.as_ref().is_some_and(BodyChange::is_patch));
    let mut writer = Writer::new(session.out, form.unwrap_or(Form::Ndjson));
    let pick = flags.pick();
    let mut staying = 0;
    let found = pick.find_matches(session, &receiver, |message| {
        let (copy, stays) = flags.copy(message, body.as_ref());
        staying += u64::from(stays.is_some());
        if form.is_some() {
            return writer.object(&copies::to_json(message, &copy, stays));
        }
        rows.add(message, &copy, stays);
        Ok(WriteOutcome::Done)
    });
    let found = found.await?;
    receiver.close().await?;
    if form.is_some() {
        writer.end()?;
    } else if found.count > 0 {
        rows.show(session)?;
    }
    let sent = messages(found.count - staying);
    note(&format!("dry run: {sent} would be sent to `{}`", flags.to()));
    if staying > 0 {
        let reason = problem(ActResult::NotJson);
        note(&format!("error: {} would stay: {reason}", messages(staying)));
        found.refuse_absent(&pick)?;
        return Err(Failure::Reported(exit::IN_PART));
    }
    result_of(&found, &pick)
}

/// Result of a run without failures.
fn result_of(found: &FoundSelection, pick: &Selection<'_>) -> Result<(), Failure> {
    found.refuse_absent(pick)?;
    if found.count == 0 { Err(Failure::Reported(exit::NOTHING)) } else { Ok(()) }
}

async fn resubmit(
    flags: &ResubmitFlags,
    edit: Option<Arc<Edit>>,
    session: &CommandConnection,
) -> Result<(), Failure> {
    let path = dead_letter_path(&flags.queue);
    let receiver = session.client.receiver(&path)?;
    let pick = flags.pick();
    let found = pick.find_matches(session, &receiver, |_| Ok(WriteOutcome::Done)).await?;
    receiver.close().await?;
    let deed = Deed::Resubmit { to: flags.to.as_deref().map(Into::into), edit };
    let totals = job::run(session, &path, &found.numbers, &deed, "resubmitting").await;
    let (to, resubmitted) = (flags.to(), totals.done);
    if totals.is_unknown {
        // The failure is all that is known.
    } else if flags.common.output == Output::Table {
        session.out.print(&format!("resubmitted {} to {to}\n", messages(resubmitted)))?;
    } else {
        let (duplicates, locked) =
            (totals.count(ActResult::Duplicate), totals.count(ActResult::Locked));
        let sum = serde_json::json!({
            "queue": to, "resubmitted": resubmitted, "duplicates": duplicates,
            "lockedByOthers": locked, "failed": totals.left.len() - duplicates - locked,
        });
        session.out.print(&format!("{sum}\n"))?;
    }
    totals.report(&path);
    totals.result()?;
    result_of(&found, &pick)
}
