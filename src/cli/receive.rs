//! `peeklock receive`: settles a message only after it has been written to standard output.
//! `cli.rs` dispatches to it.

use clap::{Args, ValueEnum};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use peeklock::command::ReceiveMode;
use peeklock::condition::Condition;
use peeklock::error::BrokerError;
use peeklock::ids::LockToken;
use peeklock::time::TimeSpan;
use peeklock::websocket::client::{LockKeeper, Received, Receiver, Refusal, SessionReceiver};

use super::arguments::{Source, span_of};
use super::connect::{CommandConnection, Common, Patience};
use super::message::{BodyFlags, Writer, messages, tokens};
use super::terminal::{Bar, WriteOutcome, line, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock receive orders                           one message, completed once it is printed
  peeklock receive orders -n 10 --wait 5s
  peeklock receive orders --all -o ndjson > orders.ndjson
  peeklock receive orders --follow -o ndjson | ./handle-each-line
  peeklock receive orders --body-only --follow      only the bodies
  peeklock receive orders --raw > invoice.pdf       one body, byte for byte
  peeklock receive orders --settle none             the message stays locked until its lock ends
  peeklock receive orders --abandon --delay 30s     the message is delivered again in 30 seconds
  peeklock receive orders --settle dead-letter --reason Unpaid    move to the dead-letter queue
  peeklock receive orders --dead-letter             from the dead-letter queue
  peeklock receive steps --next-session --all       all messages of the session with the oldest message
  peeklock receive steps --next-session --follow    one session after the other
  peeklock receive steps --session order-17 --wait 5s

The command receives messages under lock in groups of up to 32. It writes and flushes each \
message, and settles the group when all are written. If the reader of a pipe ends, or after \
Ctrl-C, unwritten messages return to the queue unchanged. Messages that were written but could \
not be completed are reported and delivered again: at least once, not exactly once. A message \
that a pipe has accepted counts as written.

--settle abandon counts a failed delivery for each message, as for a consumer that fails; the \
messages are abandoned together at the end. With --mode receive-and-delete, a failure loses the \
messages that were taken.

From a queue that requires sessions you receive by session. The command locks the session and \
renews the lock while it runs; then it releases the session, and unsettled messages return \
without counting a delivery. With --next-session, --wait also limits the wait for a session. With \
--follow, the command releases a session that has no more messages and takes the next one.

",
    exit_codes!()
);

/// Messages received at once: few, so that a slow reader blocks few messages.
const BATCH: u32 = 32;
/// Maximum messages that `--settle abandon` holds until the end.
const ABANDONED_MAX: u64 = 10_000;
/// Maximum wait of each receive with `--follow`.
const FOLLOW_WAIT: TimeSpan = TimeSpan::from_seconds(60);

#[derive(Args)]
pub struct ReceiveFlags {
    #[command(flatten)]
    source: Source,
    /// Number of messages to receive [default: 1; with --follow unlimited]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Receive all available messages
    #[arg(long, conflicts_with = "count")]
    all: bool,
    /// Wait up to this long for a message, such as 5s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = span_of)]
    wait: TimeSpan,
    /// Receive from this session; other receivers cannot receive from it meanwhile
    #[arg(long, value_name = "ID", conflicts_with_all = ["next_session", "dead_letter"])]
    session: Option<String>,
    /// Receive from the session with the oldest available message
    #[arg(long, conflicts_with = "dead_letter")]
    next_session: bool,
    /// Keep receiving new messages until Ctrl-C
    #[arg(short, long, conflicts_with_all = ["all", "wait"])]
    follow: bool,
    /// How to settle each message after writing it
    #[arg(long, value_name = "HOW", default_value = "complete")]
    settle: Settle,
    /// Same as --settle abandon
    #[arg(long, conflicts_with = "settle")]
    abandon: bool,
    /// Reason for --settle dead-letter, such as Unpaid
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Error description for --settle dead-letter
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Delay before abandoned messages are delivered again, such as 30s; 0s for no delay [default:
    /// the retry policy of the entity]
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    delay: Option<TimeSpan>,
    /// Error to leave on abandoned messages, as a failing consumer does
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Receive mode
    #[arg(long, value_name = "MODE", default_value = "peek-lock")]
    mode: Mode,
    #[command(flatten)]
    body: BodyFlags,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Settle {
    /// Complete it
    Complete,
    /// Abandon it: it is available again, with one more failed delivery
    Abandon,
    /// Move it to the dead-letter queue, with --reason and --description
    DeadLetter,
    /// Leave it locked until its lock ends, and print the lock token; in a session it is available
    /// again at once
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Receive under a lock
    PeekLock,
    /// Remove each message when it is taken; a later failure loses it
    ReceiveAndDelete,
}

/// Progress and totals of a receive.
struct Progress {
    written: u64,
    /// Messages that were written, but whose completion is not confirmed.
    unsettled: u64,
    lost: u64,
    /// Locks of messages that `--settle abandon` holds.
    held: Vec<LockToken>,
    /// Messages that were written, but whose abandoning is not confirmed.
    unabandoned: u64,
    end: End,
}

#[derive(PartialEq, Eq)]
enum End {
    /// The requested number was received, or no more messages are available.
    Done,
    Interrupted,
    /// The reader of standard output has closed it.
    OutputClosed,
}

impl ReceiveFlags {
    const fn settle(&self) -> Settle {
        if self.abandon { Settle::Abandon } else { self.settle }
    }

    /// Settlement of a message after it was written.
    fn outcome(&self) -> Result<(), Refusal> {
        if self.settle() != Settle::DeadLetter {
            return Ok(());
        }
        Err(Refusal::DeadLetter {
            reason: self.reason.clone().unwrap_or_default(),
            description: self.description.clone().unwrap_or_default(),
        })
    }

    const fn is_by_session(&self) -> bool {
        self.next_session || self.session.is_some()
    }

    /// Failure with a hint, for a queue that requires sessions or a topic.
    fn failure_with_hint(&self, error: BrokerError) -> Failure {
        let is_refused = error.condition() == Condition::InvalidOperation;
        let is_of_session = self.is_by_session() || self.source.is_dead_letter();
        // Other details already name the kind of the entity.
        let hint = match error.detail() {
            _ if !is_refused || is_of_session => None,
            detail if detail.contains("is a topic") => {
                let topic = line(&self.source.path()).into_owned();
                Some(format!(
                    "`peeklock subscription list {topic}` lists its subscriptions, `peeklock \
                     receive {topic}/subscriptions/NAME` receives from one"
                ))
            }
            detail if detail.contains("requires sessions") => {
                Some("receive with --next-session or --session ID".to_owned())
            }
            _ => None,
        };
        let failure = Failure::from(error);
        match hint {
            Some(hint) => failure.hint(&hint),
            None => failure,
        }
    }
}

pub fn run(flags: &ReceiveFlags) -> Result<(), Failure> {
    if flags.mode == Mode::ReceiveAndDelete && flags.settle() != Settle::Complete {
        return Err(Failure::usage(
            "--mode receive-and-delete leaves nothing to settle; leave out one of the two",
        ));
    }
    if flags.delay.is_some() && flags.settle() != Settle::Abandon {
        return Err(Failure::usage("--delay requires --abandon or --settle abandon"));
    }
    if flags.error.is_some() && flags.settle() != Settle::Abandon {
        return Err(Failure::usage("--error requires --abandon or --settle abandon"));
    }
    let is_dead_lettered = flags.settle() == Settle::DeadLetter;
    if !is_dead_lettered && (flags.reason.is_some() || flags.description.is_some()) {
        return Err(Failure::usage("--reason and --description require --settle dead-letter"));
    }
    if is_dead_lettered && flags.source.is_dead_letter() {
        return Err(Failure::usage(
            "a dead letter cannot be dead-lettered again; use the commands of `peeklock dlq` \
             instead",
        ));
    }
    let count = match (flags.count, flags.all || flags.follow) {
        (Some(count), _) => count,
        (None, true) => u64::MAX,
        (None, false) => 1,
    };
    if flags.settle() == Settle::Abandon && (flags.follow || count > ABANDONED_MAX) {
        return Err(Failure::usage(format!(
            "--settle abandon returns messages together at the end: give --count of at most \
             {ABANDONED_MAX}, and leave out --follow"
        )));
    }
    let patience = if flags.follow { Patience::Endless } else { Patience::Limited };
    flags.common.run(patience, async |session| {
        tokio::select! {
            result = receive(flags, count, session) => result,
            () = session.report_connection() => Ok(()),
        }
    })
}

/// Source of the messages.
enum MessageSource {
    Queue(Receiver),
    /// A session, whose lock is renewed until the keeper is dropped.
    Session {
        held: SessionReceiver,
        _keeper: LockKeeper,
    },
}

impl MessageSource {
    /// Opens the source. None if no session is available or the command was interrupted.
    async fn open(
        flags: &ReceiveFlags,
        session: &CommandConnection,
        progress: &mut Progress,
    ) -> Result<Option<Self>, BrokerError> {
        let path = flags.source.path();
        let mode = match flags.mode {
            Mode::PeekLock => ReceiveMode::PeekLock,
            Mode::ReceiveAndDelete => ReceiveMode::ReceiveAndDelete,
        };
        if !flags.is_by_session() {
            return session.client.receiver_in(&path, mode).map(Self::Queue).map(Some);
        }
        let wait = if flags.follow { FOLLOW_WAIT } else { flags.wait };
        loop {
            let accept =
                session.client.accept_session_in(&path, flags.session.as_deref(), mode, wait);
            let accepted = tokio::select! {
                biased;
                () = session.interrupt.hit() => {
                    progress.end = End::Interrupted;
                    return Ok(None);
                }
                accepted = accept => accepted,
            };
            match accepted {
                Ok(held) => {
                    let _keeper = held.keep_locked();
                    return Ok(Some(Self::Session { held, _keeper }));
                }
                Err(error) if flags.follow && is_transient(&error) => {}
                Err(error) if error.condition() == Condition::ServiceTimeout => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    const fn receiver(&self) -> &Receiver {
        match self {
            Self::Queue(receiver) => receiver,
            Self::Session { held, .. } => held.as_receiver(),
        }
    }

    /// Keeps the locks of messages renewed; a session has a single lock, which is renewed already.
    fn keep(&self, messages: &[Received]) -> Vec<LockKeeper> {
        match self {
            Self::Queue(receiver) => {
                messages.iter().filter_map(|message| receiver.keep_locked(message).ok()).collect()
            }
            Self::Session { .. } => Vec::new(),
        }
    }

    async fn close(self) -> Result<(), BrokerError> {
        match self {
            Self::Queue(receiver) => receiver.close().await,
            Self::Session { held, .. } => held.close().await,
        }
    }
}

/// Whether `--follow` continues after this error: no session in time, or a lock that ended.
fn is_transient(error: &BrokerError) -> bool {
    let passing =
        [Condition::CommunicationProblem, Condition::ServiceTimeout, Condition::SessionLockLost];
    passing.contains(&error.condition())
}

async fn receive(
    flags: &ReceiveFlags,
    count: u64,
    session: &CommandConnection,
) -> Result<(), Failure> {
    let path = flags.source.path();
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
        loop {
            let taker = match MessageSource::open(flags, session, &mut progress).await {
                Ok(Some(taker)) => taker,
                Ok(None) => return (Ok(()), Ok(())),
                Err(error) => return (Err(flags.failure_with_hint(error)), Ok(())),
            };
            let result = work(flags, count, session, &taker, &mut writer, &mut progress).await;
            abandon(taker.receiver(), flags, &mut progress).await;
            // Closed in order, so that the broker keeps the locks that `--settle none` leaves.
            let closed = taker.close().await;
            let is_done = result.is_err() || progress.written >= count;
            if is_done || !flags.follow || progress.end != End::Done {
                return (result, closed);
            }
        }
    };
    let ended = tokio::select! {
        biased;
        ended = orderly => Some(ended),
        // Requests in progress get no answer any more; the known results are reported.
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
    if progress.end != End::OutputClosed {
        writer.end()?;
    }
    print_losses(&progress, &path);
    match result {
        Err(Failure::Ended { text, .. }) if progress.written > 0 => {
            Err(Failure::ended(exit::IN_PART, text))
        }
        Err(failure) => Err(failure),
        Ok(()) if progress.unsettled + progress.unabandoned + progress.lost > 0 => {
            Err(Failure::Reported(exit::IN_PART))
        }
        // A followed queue has no end, so an interruption is a success.
        Ok(()) if flags.follow => Ok(()),
        Ok(()) if progress.end == End::Interrupted => Err(Failure::Reported(exit::INTERRUPTED)),
        Ok(()) if progress.written == 0 && progress.end == End::Done => {
            let wanted = if flags.next_session { "session with a message" } else { "message" };
            note(&format!("no {wanted} is available in `{path}`"));
            Err(Failure::Reported(exit::NOTHING))
        }
        Ok(()) => Ok(()),
    }
}

async fn work(
    flags: &ReceiveFlags,
    count: u64,
    session: &CommandConnection,
    taker: &MessageSource,
    writer: &mut Writer,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let wait = match (flags.follow, flags.next_session) {
        // The wait applies to the next session, not to more messages of this one.
        (true, true) => TimeSpan::ZERO,
        (true, false) => FOLLOW_WAIT,
        (false, _) => flags.wait,
    };
    // A received-and-deleted message is lost if it cannot be written, so one is taken at a time.
    let batch_max = if flags.mode == Mode::ReceiveAndDelete { 1 } else { BATCH };
    let bar = Bar::for_file_output("receiving");
    while progress.written < count && progress.end == End::Done {
        let left = u32::try_from(count - progress.written).unwrap_or(u32::MAX);
        let stop = session.interrupt.hit();
        let receiver = taker.receiver();
        let received = receiver.receive_many_until(left.min(batch_max), wait, stop).await;
        let messages = match received {
            Ok(messages) => messages,
            // The session is accepted again.
            Err(error) if flags.follow && flags.is_by_session() && is_transient(&error) => {
                return Ok(());
            }
            // The connection is restored automatically; the locks on it have ended.
            Err(error) if flags.follow && error.condition() == Condition::CommunicationProblem => {
                continue;
            }
            Err(error) => return Err(flags.failure_with_hint(error)),
        };
        if session.interrupt.is_set() {
            progress.end = End::Interrupted;
        } else if messages.is_empty() && (!flags.follow || flags.next_session) {
            break;
        }
        let before = progress.written;
        write_and_settle(flags, session, taker, writer, progress, &messages).await?;
        bar.advance(progress.written - before);
    }
    Ok(())
}

/// Writes messages and settles the written ones; the others are released.
async fn write_and_settle(
    flags: &ReceiveFlags,
    session: &CommandConnection,
    taker: &MessageSource,
    writer: &mut Writer,
    progress: &mut Progress,
    messages: &[Received],
) -> Result<(), Failure> {
    let is_locked = flags.mode == Mode::PeekLock;
    // Locks are renewed, so that a slow reader does not lose them.
    let is_kept = is_locked && flags.settle() != Settle::None;
    let keepers = if is_kept { taker.keep(messages) } else { Vec::new() };
    let receiver = taker.receiver();
    let mut done = 0;
    let mut failure = None;
    for message in messages {
        if session.interrupt.is_set() && is_locked {
            progress.end = End::Interrupted;
            break;
        }
        match writer.message(message) {
            Ok(WriteOutcome::Done) => done += 1,
            Ok(WriteOutcome::OutputClosed) => {
                progress.end = End::OutputClosed;
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
        match flags.settle() {
            Settle::Complete | Settle::DeadLetter => {
                progress.unsettled += held.len() as u64;
                // Each message is settled separately, so that the number of settled messages is
                // known at any interruption.
                let mut completed: FuturesUnordered<_> = held
                    .iter()
                    .map(|token| receiver.settle_token(*token, flags.outcome()))
                    .collect();
                while let Some(result) = completed.next().await {
                    progress.unsettled -= u64::from(result.is_ok());
                }
            }
            Settle::Abandon => progress.held.extend(held),
            Settle::None => {}
        }
        if !back.is_empty() {
            // If releasing fails, the locks end by themselves.
            let _released = receiver.release_many(&tokens(back)).await;
        }
    } else {
        progress.lost += back.len() as u64;
    }
    drop(keepers);
    failure.map_or(Ok(()), Err)
}

/// Abandons the held messages, which counts a failed delivery for each.
async fn abandon(receiver: &Receiver, flags: &ReceiveFlags, progress: &mut Progress) {
    let held = std::mem::take(&mut progress.held);
    progress.unabandoned += held.len() as u64;
    let refusal = || {
        let refusal = flags.delay.map_or(Refusal::abandon(), Refusal::retry_after);
        match &flags.error {
            Some(error) => refusal.with_error(error),
            None => refusal,
        }
    };
    let abandoned = held.iter().map(|token| receiver.settle_token(*token, Err(refusal())));
    let mut abandoned = futures_util::stream::iter(abandoned).buffer_unordered(64);
    while let Some(result) = abandoned.next().await {
        // A lock that has ended has counted a failed delivery too.
        let has_counted = match result {
            Ok(()) => true,
            Err(error) => error.condition() == Condition::MessageLockLost,
        };
        progress.unabandoned -= u64::from(has_counted);
    }
}

fn print_losses(progress: &Progress, path: &str) {
    let Progress { unsettled, unabandoned, lost, .. } = progress;
    if *unsettled > 0 {
        note(&format!(
            "error: {unsettled} of the messages written could not be settled: their locks had \
             expired, or the connection was lost; they are delivered again unless another receiver \
             has them"
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
            "error: {} {were} taken from `{path}` but could not be written",
            messages(*lost)
        ));
    }
}
