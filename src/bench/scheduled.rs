//! A deep pile of scheduled messages: how late those are that fall due.

use std::path::Path;
use std::time::Duration;

use peeklock::Broker;
use peeklock::command::{Command, Outcome, ReceiveMode};
use peeklock::description::QueueUpdate;
use peeklock::message::Message;
use peeklock::store::{Journal, JournalConfig};
use peeklock::time::{TimeSpan, Timestamp};

use super::cycle::{Cycle, in_shares, send};
use super::{BenchError, Scratch};

/// Messages that fall due while somebody waits for them.
const DUE: u32 = 2_000;
/// One falls due every so many milliseconds.
const EVERY_MS: i64 = 5;

/// How late messages came.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// Messages that were pending.
    pub pending: u64,
    /// From the instant a message was to be enqueued to its receipt, ascending.
    pub late: Vec<Duration>,
}

impl Scheduled {
    /// The lateness that so many of a thousand do not exceed.
    pub fn at(&self, of_thousand: usize) -> Duration {
        let index = (self.late.len() * of_thousand / 1_000).min(self.late.len().saturating_sub(1));
        self.late.get(index).copied().unwrap_or_default()
    }
}

/// Schedules all messages for tomorrow, and some for the next seconds, which are received.
pub async fn run(
    place: &Path,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<Scheduled, BenchError> {
    let scratch = Scratch::within(place)?;
    let store = Journal::open(&scratch.at("journal"), JournalConfig::default())?;
    let broker = Broker::builder().store(store).start().await?;
    let update = QueueUpdate { max_size_in_megabytes: Some(4_096), ..QueueUpdate::default() };
    broker.create_queue("load", update).await?;
    let entity = broker.entity("load")?;
    let body = Message::new(vec![7; cycle.body_bytes]);
    let at = |instant: Timestamp| body.clone().with_scheduled_enqueue_time(instant);
    let tomorrow = at(broker.now().plus(TimeSpan::from_days(1)));
    in_shares(cycle, progress, |count| send(&entity, &broker, &tomorrow, count)).await?;

    let begin = broker.now().plus(TimeSpan::from_seconds(2));
    let due: Vec<Timestamp> = (0..DUE)
        .map(|number| begin.plus(TimeSpan::from_ms(EVERY_MS * i64::from(number))))
        .collect();
    let sends = due.iter().map(|due| Command::Send { message: broker.inbound(at(*due)) }).collect();
    for result in entity.call_many(sends).await {
        result?;
    }
    let mut late = Vec::with_capacity(due.len());
    while late.len() < due.len() {
        let receive = Command::Receive {
            mode: ReceiveMode::ReceiveAndDelete,
            count_max: 64,
            bytes_max: u64::MAX,
            wait: TimeSpan::from_seconds(30),
            holder: None,
        };
        let Outcome::Received(messages) = entity.call(receive).await? else { break };
        let now = broker.now();
        let known = due.iter().skip(late.len()).take(messages.len());
        late.extend(known.map(|due| now.since(*due).to_std()));
    }
    broker.stop(Duration::ZERO).await?;
    late.sort();
    Ok(Scheduled { pending: cycle.messages as u64, late })
}
