//! `peeklock dlq resubmit`: sends copies of dead-lettered messages, and completes the originals
//! after the copies are stored. `dlq.rs` dispatches to it. An interrupted run may send a copy twice
//! but loses none.

use clap::Args;
use peeklock::condition::Condition;
use peeklock::message::{Message, MessageId};
use peeklock::path::dead_letter_path;
use peeklock::time::TimeSpan;
use peeklock::websocket::client::{Received, Receiver, Sender};

use super::super::arguments::{queue_of, sequence_number, span_of};
use super::super::connect::{
    CommandConnection, Common, Output, Patience, code, error_text, may_be_done,
};
use super::super::message::{Form, Writer, messages};
use super::super::property::{Property, property};
use super::super::send::{CONNECTION_LOST, UnknownRun, set_properties};
use super::super::terminal::{Bar, WriteOutcome, note};
use super::super::{Failure, exit};
use super::condition::{MessageCondition, condition, conditions};
use super::copies::{self, Copies};
use super::explain_topic;
use super::origin;
use super::pick::{FoundSelection, ReceivedSelection, Selection};

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

Guarantee (at least once): the command locks each message, sends its copy, and completes the \
original only after the copy is stored. No message is lost. If the client or the broker fails in \
between, the message is in both places and is sent again by the next run. If messages have a \
MessageId, a queue with duplicate detection drops the second copy.

A copy that the queue drops as a duplicate is not stored, so its original stays and the command \
reports it; --new-id gives copies new ids. Copies have no DeadLetterReason and \
DeadLetterErrorDescription, and their time to live starts again. Only messages that were enqueued \
before the command began are resubmitted, so a message that fails again at once is not sent in an \
endless loop.

A broker delivers messages in their order only. Messages in front of a matching message are \
locked for a while and released without counting a delivery. If the connection is lost meanwhile, \
they count one more failed delivery, which has no effect in a dead-letter queue. Deferred dead \
letters and those locked by another receiver stay.

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
    /// Set an application property on the copies, such as `retried:bool=true`; may be repeated
    #[arg(long, value_name = "KEY[:TYPE]=VALUE", value_parser = property)]
    set: Vec<Property>,
    /// Leave an application property out of the copies; may be repeated
    #[arg(long, value_name = "KEY")]
    remove: Vec<String>,
    /// Time to live of the copies, such as 1h [default: as the original]
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    ttl: Option<TimeSpan>,
    /// Give each copy a new message id
    #[arg(long)]
    new_id: bool,
    /// Queue or topic to send the copies to [default: the origin of the dead letters]
    #[arg(long, value_name = "QUEUE")]
    to: Option<String>,
    /// Show the messages that would be sent, without changing anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

/// Totals of a run.
#[derive(Default)]
struct Progress {
    resubmitted: u64,
    duplicates: u64,
    /// Messages whose copy is stored but whose original remains.
    remaining_originals: u64,
    failed: u64,
    code: u8,
}

impl ResubmitFlags {
    /// Destination of the copies.
    fn to(&self) -> Result<&str, Failure> {
        self.to.as_deref().map_or_else(|| origin::destination(&self.queue), Ok)
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

    /// Copy of a dead letter.
    fn copy(&self, message: &Received) -> Result<Message, Failure> {
        let mut copy = message.to_resubmit();
        copy.time_to_live = self.ttl.or(copy.time_to_live);
        copy.application_properties.retain(|(key, _)| !self.remove.contains(key));
        set_properties(&mut copy, &self.set);
        // A copy with the id of its original is dropped if it is sent twice. A dropped copy is
        // detected, and its original stays.
        copy.message_id =
            if self.new_id { Some(new_id()?) } else { message.message().message_id.clone() };
        Ok(copy)
    }
}

fn new_id() -> Result<MessageId, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Failed(format!("cannot get a random number: {error}")))?;
    // Version 4, variant 1 (RFC 9562).
    let id = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    Ok(peeklock::ids::TrackingId(id).to_string().into())
}

pub fn run(flags: &ResubmitFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let work = async {
            if flags.dry_run {
                dry_run(flags, session).await
            } else {
                resubmit(flags, session).await
            }
        };
        tokio::select! {
            result = work => explain_topic(session, &flags.queue, result).await,
            () = session.report_connection() => Ok(()),
        }
    })
}

async fn dry_run(flags: &ResubmitFlags, session: &CommandConnection) -> Result<(), Failure> {
    let receiver = session.client.receiver(&dead_letter_path(&flags.queue))?;
    let form = match flags.common.output {
        Output::Table => None,
        Output::Json => Some(Form::Json),
        Output::Ndjson => Some(Form::Ndjson),
    };
    let mut rows = Copies::new(session.out.colours);
    let mut writer = Writer::new(session.out, form.unwrap_or(Form::Ndjson));
    let pick = flags.pick();
    let found = pick.find_matches(session, &receiver, |message| {
        let copy = flags.copy(message)?;
        if form.is_some() {
            return writer.object(&copies::to_json(message, &copy));
        }
        rows.add(message, &copy);
        Ok(WriteOutcome::Done)
    });
    let found = found.await?;
    receiver.close().await?;
    if form.is_some() {
        writer.end()?;
    } else if found.count > 0 {
        rows.show(session)?;
    }
    let to = flags.to()?;
    let messages = if found.count == 1 { "message" } else { "messages" };
    note(&format!("dry run: {} {messages} would be sent to `{to}`", found.count));
    result_of(&found, &pick)
}

/// Result of a run without failures.
fn result_of(found: &FoundSelection, pick: &Selection<'_>) -> Result<(), Failure> {
    found.refuse_absent(pick)?;
    if found.count == 0 { Err(Failure::Reported(exit::NOTHING)) } else { Ok(()) }
}

async fn resubmit(flags: &ResubmitFlags, session: &CommandConnection) -> Result<(), Failure> {
    let to = flags.to()?;
    let path = dead_letter_path(&flags.queue);
    let receiver = session.client.receiver(&path)?;
    let sender = session.client.sender(to)?;
    let pick = flags.pick();
    let found = pick.find_matches(session, &receiver, |_| Ok(WriteOutcome::Done)).await?;
    let bar = Bar::new("resubmitting", Some(found.count));
    let mut progress = Progress { code: 1, ..Progress::default() };
    let mut taken = ReceivedSelection::default();
    let move_on =
        async |meant: Vec<Received>, taken: &mut ReceivedSelection| -> Result<bool, Failure> {
            resubmit_group(flags, &receiver, &sender, meant, taken, &mut progress, &bar).await?;
            Ok(progress.failed == 0)
        };
    let worked = tokio::select! {
        biased;
        worked = pick.receive_found(session, &receiver, &found, &mut taken, move_on) => Some(worked),
        // Requests in progress get no answer any more.
        () = session.overdue() => None,
    };
    drop(bar);
    let is_overdue = worked.is_none();
    let worked = worked.unwrap_or(Err(Failure::Reported(exit::INTERRUPTED)));
    if !is_overdue {
        taken.release(&receiver).await;
    }
    let Progress { resubmitted, duplicates, remaining_originals, failed, .. } = progress;
    let done = taken.done;
    // Missing messages may also have been received by others permanently.
    let locked = if worked.is_ok() && failed == 0 && done < found.count {
        let left = pick.remaining_count(&receiver, &found).await?;
        left.saturating_sub(duplicates + remaining_originals).min(found.count - done)
    } else {
        0
    };
    let closed = if is_overdue { Ok(()) } else { receiver.close().await };
    if flags.common.output == Output::Table {
        let messages = if resubmitted == 1 { "message" } else { "messages" };
        session.out.print(&format!("resubmitted {resubmitted} {messages} to {to}\n"))?;
    } else {
        let sum = serde_json::json!({
            "queue": to, "resubmitted": resubmitted, "duplicates": duplicates,
            "sentAndThereStill": remaining_originals, "lockedByOthers": locked, "failed": failed,
        });
        session.out.print(&format!("{sum}\n"))?;
    }
    if duplicates > 0 {
        note(&format!(
            "error: left in `{path}`: {duplicates}; `{to}` dropped their copies as duplicates, \
             because it has or had these message ids; --new-id sends them with new ids"
        ));
    }
    if remaining_originals > 0 {
        note(&format!(
            "error: {remaining_originals} sent but still in `{path}`: their locks had expired, or the \
             connection was lost"
        ));
    }
    let open = if is_overdue { done - resubmitted - duplicates - failed } else { 0 };
    if open > 0 {
        note(&format!(
            "error: {} not answered; copies may have been stored, and originals may still be in \
             `{path}`",
            messages(open)
        ));
    }
    if locked > 0 {
        let are = if locked == 1 { "is" } else { "are" };
        note(&format!(
            "error: {locked} {are} still in `{path}`: locked by another receiver; run the same \
             command again when the locks have expired"
        ));
    }
    match worked {
        Ok(()) if duplicates + remaining_originals + failed + locked == 0 => {
            closed.map_err(Failure::from)?;
            result_of(&found, &pick)
        }
        Ok(()) if resubmitted == 0 && failed > 0 => Err(Failure::Reported(progress.code)),
        Ok(()) => Err(Failure::Reported(exit::IN_PART)),
        Err(Failure::Ended { text, .. }) if resubmitted > 0 => {
            Err(Failure::ended(exit::IN_PART, text))
        }
        Err(failure) => Err(failure),
    }
}

/// Sends copies, and completes the originals of the stored ones.
async fn resubmit_group(
    flags: &ResubmitFlags,
    receiver: &Receiver,
    sender: &Sender,
    meant: Vec<Received>,
    taken: &mut ReceivedSelection,
    progress: &mut Progress,
    bar: &Bar,
) -> Result<(), Failure> {
    let copies = meant.iter().map(|message| flags.copy(message)).collect::<Result<Vec<_>, _>>();
    let copies = match copies {
        Ok(copies) => copies,
        Err(failure) => {
            taken.hold(&meant);
            return Err(failure);
        }
    };
    // The locks are new; they are renewed in case sending takes long.
    let keepers: Vec<_> =
        meant.iter().filter_map(|message| receiver.keep_locked(message).ok()).collect();
    let mut stored = Vec::new();
    let mut lost = UnknownRun::new("message", "messages");
    for (message, sent) in meant.iter().zip(sender.send_many(copies).await) {
        match sent {
            Ok(number) if number.0 > 0 => stored.extend(message.lock_token()),
            Ok(_) => {
                progress.duplicates += 1;
                taken.hold([message]);
            }
            Err(error) => {
                progress.failed += 1;
                progress.code = code(error.condition());
                let number = message.sequence_number();
                if error.condition() == Condition::CommunicationProblem {
                    lost.add(number.0);
                } else {
                    let open = if may_be_done(error.condition()) {
                        "\n  the copy may have been stored"
                    } else {
                        ""
                    };
                    bar.note(&format!(
                        "error: message {number} stays: {}{open}",
                        error_text(&error)
                    ));
                }
                taken.hold([message]);
            }
        }
    }
    if let Some(text) = lost.take(CONNECTION_LOST) {
        bar.note(&format!("error: {text}; the originals stay"));
    }
    let completed = receiver.complete_many(&stored).await;
    drop(keepers);
    let failed = completed.iter().filter(|result| result.is_err()).count() as u64;
    progress.remaining_originals += failed;
    progress.resubmitted += stored.len() as u64;
    bar.advance(meant.len() as u64);
    Ok(())
}
