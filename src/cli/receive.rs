//! `peeklock receive`: a message is settled when it has left this process, not before.

use clap::{Args, ValueEnum};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use peeklock::command::ReceiveMode;
use peeklock::condition::Condition;
use peeklock::ids::LockToken;
use peeklock::time::TimeSpan;
use peeklock::websocket::client::{Received, Receiver, Refusal};

use super::arguments::{Source, span_of};
use super::connect::{Common, Patience, Session};
use super::message::{BodyFlags, Writer, messages, tokens};
use super::terminal::{Bar, Wrote, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock receive orders                           one message, completed once it is printed
  peeklock receive orders -n 10 --wait 5s
  peeklock receive orders --all -o ndjson > orders.ndjson
  peeklock receive orders --follow -o ndjson | ./handle-each-line
  peeklock receive orders --body-only --follow      bodies alone
  peeklock receive orders --raw > invoice.pdf       one body, byte for byte
  peeklock receive orders --settle none             stays locked until the lock ends
  peeklock receive orders --dead-letter

Messages are received under lock in groups of up to 32. Each is written and flushed by itself; when \
the group is written, it is settled. When the reader of a \
pipe has left, or after Ctrl-C, what was not written goes back unchanged. What was written and \
could not be completed is told, and is delivered again: at least once, not exactly once. A \
message that a pipe has taken counts as written.

--settle abandon counts a failed delivery for each message, as a consumer that fails does; the \
messages are given back together at the end. --mode receive-and-delete loses what it has taken \
when it fails.

",
    exit_codes!()
);

/// Messages received at once: few, so that little is held by who reads slowly.
const BATCH: u32 = 32;
/// Messages that `--settle abandon` holds until the end.
const ABANDONED_MAX: u64 = 10_000;
/// How long one receive of `--follow` waits.
const FOLLOW_WAIT: TimeSpan = TimeSpan::from_seconds(60);

#[derive(Args)]
pub struct ReceiveFlags {
    #[command(flatten)]
    source: Source,
    /// Messages to receive [default: 1; with --follow no end]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Receive all that is there
    #[arg(long, conflicts_with = "count")]
    all: bool,
    /// Wait so long for a message, such as 5s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = span_of)]
    wait: TimeSpan,
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long, conflicts_with_all = ["all", "wait"])]
    follow: bool,
    /// What becomes of a message that was written
    #[arg(long, value_name = "HOW", default_value = "complete")]
    settle: Settle,
    /// How to receive
    #[arg(long, value_name = "MODE", default_value = "peek-lock")]
    mode: Mode,
    #[command(flatten)]
    body: BodyFlags,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Settle {
    /// It is done
    Complete,
    /// It is available again, with one more failed delivery
    Abandon,
    /// It stays locked until its lock ends; lock tokens are told
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Under lock
    PeekLock,
    /// Gone when it is taken, whatever happens then
    ReceiveAndDelete,
}

/// How a receive goes on.
struct Progress {
    written: u64,
    /// Written, and not known to be completed.
    unsettled: u64,
    lost: u64,
    /// Held for `--settle abandon`.
    held: Vec<LockToken>,
    /// Written, and not known to be abandoned.
    unabandoned: u64,
    end: End,
}

#[derive(PartialEq, Eq)]
enum End {
    /// There is no more, or enough.
    Done,
    Interrupted,
    /// Nobody reads any more.
    Gone,
}

pub fn run(flags: &ReceiveFlags) -> Result<(), Failure> {
    if flags.mode == Mode::ReceiveAndDelete && flags.settle != Settle::Complete {
        return Err(Failure::usage("--mode receive-and-delete leaves nothing to settle"));
    }
    let count = match (flags.count, flags.all || flags.follow) {
        (Some(count), _) => count,
        (None, true) => u64::MAX,
        (None, false) => 1,
    };
    if flags.settle == Settle::Abandon && (flags.follow || count > ABANDONED_MAX) {
        return Err(Failure::usage(format!(
            "--settle abandon gives messages back together at the end: it wants --count of at most \
             {ABANDONED_MAX}, and no --follow"
        )));
    }
    let patience = if flags.follow { Patience::Endless } else { Patience::Limited };
    flags.common.run(patience, async |session| {
        tokio::select! {
            result = receive(flags, count, session) => result,
            () = session.tell_connection() => Ok(()),
        }
    })
}

async fn receive(flags: &ReceiveFlags, count: u64, session: &Session) -> Result<(), Failure> {
    let path = flags.source.path();
    let mode = match flags.mode {
        Mode::PeekLock => ReceiveMode::PeekLock,
        Mode::ReceiveAndDelete => ReceiveMode::ReceiveAndDelete,
    };
    let receiver = session.client.receiver_in(&path, mode)?;
    let mut writer = Writer::new(session.out, flags.body.form(flags.common.output));
    let mut progress = Progress {
        written: 0,
        unsettled: 0,
        lost: 0,
        held: Vec::new(),
        unabandoned: 0,
        end: End::Done,
    };
    let orderly = async {
        let result = work(flags, count, session, &receiver, &mut writer, &mut progress).await;
        abandon(&receiver, &mut progress).await;
        // Closed in order, so that locks stay which shall stay.
        (result, receiver.close().await)
    };
    let ended = tokio::select! {
        biased;
        ended = orderly => Some(ended),
        // What is under way is not answered any more; what is known of it is told.
        () = session.overdue() => None,
    };
    let result = match ended {
        Some((Ok(()), Err(error))) if progress.written == 0 => Err(error.into()),
        Some((result, _)) => result,
        None => {
            if progress.end == End::Done {
                progress.end = End::Interrupted;
            }
            Ok(())
        }
    };
    progress.unabandoned += progress.held.len() as u64;
    if progress.end != End::Gone {
        writer.end()?;
    }
    tell(&progress, &path);
    match result {
        Err(Failure::Ended { text, .. }) if progress.written > 0 => {
            Err(Failure::ended(exit::IN_PART, text))
        }
        Err(failure) => Err(failure),
        Ok(()) if progress.unsettled + progress.unabandoned + progress.lost > 0 => {
            Err(Failure::Told(exit::IN_PART))
        }
        // To follow until Ctrl-C is all that was asked for.
        Ok(()) if flags.follow => Ok(()),
        Ok(()) if progress.end == End::Interrupted => Err(Failure::Told(exit::INTERRUPTED)),
        Ok(()) if progress.written == 0 && progress.end == End::Done => {
            note(&format!("no message is available in `{path}`"));
            Err(Failure::Told(exit::NOTHING))
        }
        Ok(()) => Ok(()),
    }
}

async fn work(
    flags: &ReceiveFlags,
    count: u64,
    session: &Session,
    receiver: &Receiver,
    writer: &mut Writer,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let wait = if flags.follow { FOLLOW_WAIT } else { flags.wait };
    // What is received for good and cannot be written is lost: one at a time.
    let batch_max = if flags.mode == Mode::ReceiveAndDelete { 1 } else { BATCH };
    let bar = Bar::beside_output("receiving");
    while progress.written < count && progress.end == End::Done {
        let left = u32::try_from(count - progress.written).unwrap_or(u32::MAX);
        let stop = session.interrupt.hit();
        let received = receiver.receive_many_until(left.min(batch_max), wait, stop).await;
        let messages = match received {
            Ok(messages) => messages,
            // The connection comes back by itself; the locks it had are gone.
            Err(error) if flags.follow && error.condition() == Condition::CommunicationProblem => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if session.interrupt.is_set() {
            progress.end = End::Interrupted;
        } else if messages.is_empty() && !flags.follow {
            break;
        }
        let before = progress.written;
        written(flags, session, receiver, writer, progress, &messages).await?;
        bar.advance(progress.written - before);
    }
    Ok(())
}

/// Writes messages and settles those that were written; the others go back unchanged.
async fn written(
    flags: &ReceiveFlags,
    session: &Session,
    receiver: &Receiver,
    writer: &mut Writer,
    progress: &mut Progress,
    messages: &[Received],
) -> Result<(), Failure> {
    let is_locked = flags.mode == Mode::PeekLock;
    // Who reads slowly shall not lose the locks.
    let keepers: Vec<_> = messages
        .iter()
        .filter(|_| is_locked && flags.settle != Settle::None)
        .filter_map(|message| receiver.keep_locked(message).ok())
        .collect();
    let mut done = 0;
    let mut failure = None;
    for message in messages {
        if session.interrupt.is_set() && is_locked {
            progress.end = End::Interrupted;
            break;
        }
        match writer.message(message) {
            Ok(Wrote::Done) => done += 1,
            Ok(Wrote::Gone) => {
                progress.end = End::Gone;
                break;
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let (out, back) = messages.split_at(done);
    progress.written += out.len() as u64;
    if is_locked {
        let held = tokens(out);
        match flags.settle {
            Settle::Complete => {
                progress.unsettled += held.len() as u64;
                // Each by itself: whatever ends this, it is known how far it came.
                let mut completed: FuturesUnordered<_> =
                    held.iter().map(|token| receiver.settle_token(*token, Ok(()))).collect();
                while let Some(result) = completed.next().await {
                    progress.unsettled -= u64::from(result.is_ok());
                }
            }
            Settle::Abandon => progress.held.extend(held),
            Settle::None => {}
        }
        if !back.is_empty() {
            // Should this fail, their locks end by themselves.
            let _released = receiver.release_many(&tokens(back)).await;
        }
    } else {
        progress.lost += back.len() as u64;
    }
    drop(keepers);
    failure.map_or(Ok(()), Err)
}

/// Gives messages back, each with a failed delivery.
async fn abandon(receiver: &Receiver, progress: &mut Progress) {
    let held = std::mem::take(&mut progress.held);
    progress.unabandoned += held.len() as u64;
    let abandoned = held.iter().map(|token| {
        receiver.settle_token(*token, Err(Refusal::Abandon { properties: Vec::new() }))
    });
    let mut abandoned = futures_util::stream::iter(abandoned).buffer_unordered(64);
    while let Some(result) = abandoned.next().await {
        // A lock that has ended has counted the same.
        let has_counted = match result {
            Ok(()) => true,
            Err(error) => error.condition() == Condition::MessageLockLost,
        };
        progress.unabandoned -= u64::from(has_counted);
    }
}

fn tell(progress: &Progress, path: &str) {
    let Progress { unsettled, unabandoned, lost, .. } = progress;
    if *unsettled > 0 {
        note(&format!(
            "error: {unsettled} of the messages written could not be completed: their locks had \
             ended, or the connection was lost; unless another receiver has them, they are delivered \
             again"
        ));
    }
    if *unabandoned > 0 {
        note(&format!(
            "error: {unabandoned} of the messages written could not be abandoned: the connection was \
             lost; they are delivered again when their locks end"
        ));
    }
    if *lost > 0 {
        let were = if *lost == 1 { "was" } else { "were" };
        note(&format!(
            "error: {} {were} taken from `{path}` and could not be written",
            messages(*lost)
        ));
    }
}
