//! `peeklock send`: sends a message of the command line, or messages from standard input, with
//! several in flight. `cli.rs` dispatches to it.

mod feed;
mod lost;
mod report;

use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use peeklock::error::BrokerError;
use peeklock::ids::SequenceNumber;
use peeklock::message::Message;
use peeklock::time::{TimeSpan, Timestamp};
use tokio::time::Instant;

use super::Failure;
use super::arguments::{When, span_of, when};
use super::connect::{CommandConnection, Common, Output, Patience};
use super::property::{Property, property};
use super::terminal::Bar;
pub use feed::read_file;
use feed::{Feed, FeedItem};
pub use lost::{CONNECTION_LOST, UnknownRun};
use report::Report;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock send orders 'two coffees'
  peeklock send orders 'one tea' --id order-2 --subject tea --property table:i32=7 --ttl 10m
  peeklock send orders 'not yet' --at +15m          cancel it with the printed number
  peeklock send steps pack --session order-17       into a session
  peeklock send orders --file invoice.pdf --content-type application/pdf
  peeklock peek orders --all -o ndjson | peeklock send copies
  printf 'one\\ntwo\\n' | peeklock send orders --lines
  peeklock send orders ping --repeat 1000 --rate 100

Without a body, the command reads messages from standard input, one per line: as JSON, as printed \
by `receive` and `peek` with -o ndjson, or with --lines the line is the body. Flags override the \
values in the input.

A message that is reported as accepted is stored. Up to --in-flight messages are in flight at \
once. The first failure stops sending after the messages in flight are answered, unless you give \
--keep-going.

",
    exit_codes!()
);

/// Maximum bytes of messages in flight.
const BYTES_IN_FLIGHT_MAX: usize = 32 << 20;

/// Maximum delay that `--rate` makes up for.
const LATE_MAX: Duration = Duration::from_millis(50);

#[derive(Args)]
pub struct SendFlags {
    /// Queue, such as `orders`
    queue: String,
    /// Body of the message
    #[arg(conflicts_with_all = ["file", "lines"])]
    body: Option<String>,
    /// Read the body from a file, `-` for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "lines")]
    file: Option<String>,
    /// Send each line of standard input as the body of a message
    #[arg(long)]
    lines: bool,
    /// Number of times to send the message
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Maximum number of messages to send per second, such as 100
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Maximum number of messages in flight at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    in_flight: u16,
    /// Continue after a message that is refused or cannot be read
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    properties: PropertyFlags,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[command(next_help_heading = "Properties of the message")]
struct PropertyFlags {
    /// Message id, used for duplicate detection
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
    /// Subject, also known as label
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Application property as text, or with a type, such as `table:i32=7`, `paid:bool=true`,
    /// `due:timestamp=2026-05-01T12:00:00Z`, `wait:timeSpan=PT30S`, `digest:binary=AAE=`
    /// (Base64), decimal128 as 32 hexadecimal digits; may be repeated
    #[arg(short, long, value_name = "KEY[:TYPE]=VALUE", value_parser = property)]
    property: Vec<Property>,
    /// Time to live, such as 10m. An expired message is not delivered; it is removed or
    /// dead-lettered when a receiver reads the queue
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    ttl: Option<TimeSpan>,
    /// Time when the message becomes available: 2026-05-01T12:00:00Z, or +10m from now
    #[arg(long, value_name = "WHEN", value_parser = when)]
    at: Option<When>,
    /// Media type of the body
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Correlation id, such as the message id of the request
    #[arg(long, value_name = "TEXT")]
    correlation_id: Option<String>,
    /// Address for replies
    #[arg(long, value_name = "ADDRESS")]
    reply_to: Option<String>,
    /// Session for replies
    #[arg(long, value_name = "TEXT")]
    reply_to_session_id: Option<String>,
    /// Address that the sender intends (To)
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Partition key
    #[arg(long, value_name = "TEXT")]
    partition_key: Option<String>,
    /// Session of the message; required by a queue that requires sessions
    #[arg(long, value_name = "ID", alias = "session-id")]
    session: Option<String>,
}

impl PropertyFlags {
    /// Replaces properties of the message by the values of flags.
    fn apply(&self, message: &mut Message, now: Timestamp) {
        fn over<T: Clone>(field: &mut Option<T>, given: Option<&T>) {
            if let Some(value) = given {
                *field = Some(value.clone());
            }
        }
        over(&mut message.message_id, self.id.as_deref().map(Into::into).as_ref());
        over(&mut message.subject, self.subject.as_ref());
        over(&mut message.time_to_live, self.ttl.as_ref());
        over(&mut message.scheduled_enqueue_time, self.at.map(|at| at.from(now)).as_ref());
        over(&mut message.content_type, self.content_type.as_ref());
        over(&mut message.correlation_id, self.correlation_id.as_deref().map(Into::into).as_ref());
        over(&mut message.reply_to, self.reply_to.as_ref());
        over(&mut message.reply_to_session_id, self.reply_to_session_id.as_ref());
        over(&mut message.to, self.to.as_ref());
        over(&mut message.partition_key, self.partition_key.as_ref());
        over(&mut message.session_id, self.session.as_ref());
        set_properties(message, &self.property);
    }
}

/// Adds or replaces application properties.
pub fn set_properties(message: &mut Message, properties: &[Property]) {
    for (key, value) in properties {
        let held = message.application_properties.iter_mut().find(|(held, _)| held == key);
        match held {
            Some((_, held)) => *held = value.clone(),
            None => message.application_properties.push((key.clone(), value.clone())),
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if (0.001..=1_000_000.0).contains(&rate) {
        return Ok(rate);
    }
    Err("expected a number between 0.001 and 1000000".to_owned())
}

/// Result of a message, and its place in the input.
struct SendResult {
    line: u64,
    bytes: usize,
    result: Result<SequenceNumber, BrokerError>,
}

pub fn run(flags: &SendFlags) -> Result<(), Failure> {
    let feed = Feed::open(flags)?;
    flags.common.run(Patience::Limited, async |session| {
        let report = tokio::select! {
            report = send(flags, feed, session) => report?,
            () = session.report_connection() => return Ok(()),
        };
        report.end(&flags.queue)
    })
}

/// Sends all messages of the feed, within the bounds on messages in flight.
async fn send(
    flags: &SendFlags,
    mut feed: Feed,
    session: &CommandConnection,
) -> Result<Report, Failure> {
    let in_flight_max = usize::from(flags.in_flight);
    let sender = session.client.sender(&flags.queue)?.with_in_flight_max(in_flight_max);
    let mut report = Report::new(session.out, flags.common.output, feed.names_lines());
    // A progress bar must not mix with typed input or printed results on the same terminal.
    let shares_terminal =
        feed.is_typed() || (session.out.is_terminal && flags.common.output == Output::Ndjson);
    let bar = if shares_terminal { Bar::hidden() } else { Bar::new("sending", feed.total()) };
    let mut pace = flags.rate.map(Pace::new);
    let mut under_way = FuturesOrdered::new();
    let mut overdue = std::pin::pin!(session.overdue());
    let (mut bytes_under_way, mut may_go_on, mut is_end) = (0_usize, true, false);
    loop {
        let has_room = under_way.len() < in_flight_max && bytes_under_way < BYTES_IN_FLIGHT_MAX;
        tokio::select! {
            biased;
            () = session.interrupt.hit(), if may_go_on => {
                report.record_interrupt(&bar);
                may_go_on = false;
            }
            // Messages in flight get no answer any more.
            () = &mut overdue, if !under_way.is_empty() => {
                report.record_unanswered(under_way.len() as u64, &bar);
                break;
            }
            Some(answered) = under_way.next(), if !under_way.is_empty() => {
                let answered: SendResult = answered;
                bytes_under_way -= answered.bytes;
                bar.advance(1);
                let is_taken = report.record_result(answered, &bar);
                may_go_on &= (is_taken || flags.keep_going) && !report.is_output_closed();
            }
            fed = paced(&mut pace, &mut feed), if may_go_on && has_room => match fed {
                FeedItem::Message(line, mut message) => {
                    report.record_sent(line, &bar);
                    flags.properties.apply(&mut message, session.client.now());
                    let bytes = message.body.as_bytes().len();
                    bytes_under_way += bytes;
                    let sender = &sender;
                    under_way.push_back(async move {
                        SendResult { line, bytes, result: sender.send(*message).await }
                    });
                }
                FeedItem::Unreadable(line, error) => {
                    may_go_on &= report.record_unreadable(line, &error, &bar) && flags.keep_going;
                }
                FeedItem::Failed(error) => {
                    report.record_input_error(&error);
                    may_go_on = false;
                }
                FeedItem::End => {
                    is_end = true;
                    may_go_on = false;
                }
            },
            else => break,
        }
    }
    report.set_stopped(!is_end);
    report.print_lost(&bar);
    drop(bar);
    Ok(report)
}

/// The next message of the feed, once `--rate` allows it. Dropping the future loses no message.
async fn paced(pace: &mut Option<Pace>, feed: &mut Feed) -> FeedItem {
    if let Some(pace) = pace {
        pace.due().await;
    }
    let fed = feed.next().await;
    if let Some(pace) = pace {
        pace.next_at += pace.period;
    }
    fed
}

/// Instant from which the next message may be sent, and the period of `--rate`.
struct Pace {
    period: Duration,
    next_at: Instant,
}

impl Pace {
    fn new(rate: f64) -> Self {
        Self { period: Duration::from_secs_f64(1.0 / rate), next_at: Instant::now() }
    }

    /// Waits for that instant. A longer delay is not made up for; `LATE_MAX` compensates for the
    /// coarse timer.
    async fn due(&mut self) {
        if let Some(earliest) = Instant::now().checked_sub(LATE_MAX) {
            self.next_at = self.next_at.max(earliest);
        }
        tokio::time::sleep_until(self.next_at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pause_is_not_made_up_for() {
        let mut pace = Pace::new(1.0);
        let now = Instant::now();
        pace.next_at = now.checked_sub(Duration::from_secs(60)).unwrap();
        pace.due().await;
        assert!(pace.next_at >= now.checked_sub(LATE_MAX).unwrap());
    }
}
