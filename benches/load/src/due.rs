//! Many messages that become available at a future instant: measures the delay of messages that are
//! due.

use std::path::Path;
use std::time::Duration;

use peeklock::Broker;
use peeklock::command::{Command, Outcome, ReceiveMode, ReceivedMessage, Settlement};
use peeklock::core::Entity;
use peeklock::description::QueueUpdate;
use peeklock::message::Message;
use peeklock::store::{Journal, JournalConfig};
use peeklock::time::{TimeSpan, Timestamp};

use super::cycle::{Cycle, in_shares, send};
use super::process::Process;
use super::{BenchError, Scratch};

/// Maximum number of messages that fall due during the measurement.
const DUE_MAX: usize = 2_000;
/// Interval between due messages, in milliseconds.
const EVERY_MS: i64 = 5;
/// Time before the first due message, in which the others are scheduled or delayed.
const LEAD: TimeSpan = TimeSpan::from_seconds(2);

/// The reason why messages are not available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// They were sent with an instant at which they are enqueued (SCH-01).
    Scheduled,
    /// They were received and abandoned with a delay (RTY-01).
    Delayed,
}

/// Delay of due messages.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// Number of messages that were pending.
    pub pending: u64,
    /// Time from the due instant of each message to its receipt, ascending.
    pub late: Vec<Duration>,
    /// Resident memory of this process while messages were pending, if the system reports it.
    pub resident_bytes: Option<u64>,
}

impl Lateness {
    /// The delay that `of_thousand` of a thousand messages do not exceed.
    pub fn at(&self, of_thousand: usize) -> Duration {
        let index = (self.late.len() * of_thousand / 1_000).min(self.late.len().saturating_sub(1));
        self.late.get(index).copied().unwrap_or_default()
    }
}

/// Makes all messages wait until tomorrow, and some for the next seconds, which are received.
pub async fn run(
    place: &Path,
    wait: Wait,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<Lateness, BenchError> {
    let scratch = Scratch::within(place)?;
    let store = Journal::open(&scratch.at("journal"), JournalConfig::default())?;
    let broker = Broker::builder().store(store).start().await?;
    let update = QueueUpdate { max_size_in_megabytes: Some(4_096), ..QueueUpdate::default() };
    broker.create_queue("load", update).await?;
    let entity = broker.entity("load")?;
    let body = Message::new(vec![7; cycle.body_bytes]);
    let tomorrow = broker.now().plus(TimeSpan::from_days(1));
    let (broker, entity, body) = (&broker, &entity, &body);
    in_shares(cycle, progress, |count| async move {
        let all = vec![tomorrow; count];
        have_wait(broker, entity, wait, body, &all).await.map(drop)
    })
    .await?;

    let resident_bytes = Process::own().resident_bytes();
    let begin = broker.now().plus(LEAD);
    let due: Vec<Timestamp> = (0_i64..)
        .map(|number| begin.plus(TimeSpan::from_ms(EVERY_MS * number)))
        .take(cycle.messages.min(DUE_MAX))
        .collect();
    let due = have_wait(broker, entity, wait, body, &due).await?;
    let mut late = Vec::with_capacity(due.len());
    while late.len() < due.len() {
        let messages = receive(entity, ReceiveMode::ReceiveAndDelete, 64).await?;
        if messages.is_empty() {
            break;
        }
        let now = broker.now();
        let known = due.iter().skip(late.len()).take(messages.len());
        late.extend(known.map(|due| now.since(*due).to_std()));
    }
    broker.stop(Duration::ZERO).await?;
    late.sort();
    let pending = cycle.messages as u64;
    Ok(Lateness { pending, late, resident_bytes })
}

/// Makes a message wait for each instant; returns the actual instants, ascending.
async fn have_wait(
    broker: &Broker,
    entity: &Entity,
    wait: Wait,
    body: &Message,
    due: &[Timestamp],
) -> Result<Vec<Timestamp>, BenchError> {
    if wait == Wait::Scheduled {
        let at = |due: &Timestamp| body.clone().with_scheduled_enqueue_time(*due);
        let sends = due.iter().map(|due| Command::Send { message: broker.inbound(at(due)) });
        for result in entity.call_many(sends.collect()).await {
            result?;
        }
        return Ok(due.to_vec());
    }
    send(entity, broker, body, due.len()).await?;
    let mut stands = Vec::with_capacity(due.len());
    while stands.len() < due.len() {
        let left = u32::try_from(due.len() - stands.len()).unwrap_or(u32::MAX);
        let messages = receive(entity, ReceiveMode::PeekLock, left).await?;
        if messages.is_empty() {
            break;
        }
        let mut abandons = Vec::with_capacity(messages.len());
        for (message, due) in messages.iter().zip(&due[stands.len()..]) {
            let Some(lock) = message.facts.lock else { continue };
            // The delay starts when the abandon is applied, shortly after this.
            let delay = Some(due.since(broker.now()));
            let settlement = Settlement::Abandon { properties: None, delay };
            abandons.push(Command::Settle { token: lock.token, settlement });
        }
        stands.extend_from_slice(&due[stands.len()..][..messages.len()]);
        for result in entity.call_many(abandons).await {
            result?;
        }
    }
    Ok(stands)
}

/// Receives messages, waiting for at most half a minute.
async fn receive(
    entity: &Entity,
    mode: ReceiveMode,
    count_max: u32,
) -> Result<Vec<ReceivedMessage>, BenchError> {
    let wait = TimeSpan::from_seconds(30);
    let receive = Command::Receive { mode, count_max, bytes_max: u64::MAX, wait, holder: None };
    match entity.call(receive).await? {
        Outcome::Received(messages) => Ok(messages),
        _ => Ok(Vec::new()),
    }
}
