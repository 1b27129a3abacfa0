//! The load: lists of sends, receives under lock and lists of completions, in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock::Broker;
use peeklock::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock::core::Entity;
use peeklock::message::Message;
use peeklock::store::journal::disk::OsDisk;
use peeklock::store::{Journal, JournalConfig};
use peeklock::time::TimeSpan;

use super::record::{Recorder, Step};
use super::{BenchError, Scratch, floor};

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct Cycle {
    /// Clients, each with one list under way.
    pub clients: usize,
    /// Commands per list.
    pub list: usize,
    /// Total number of messages.
    pub messages: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
}

/// Results of a load.
#[derive(Clone, Copy, Debug)]
pub struct Durable {
    /// Messages that were sent, received and completed.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Duration.
    pub elapsed: Duration,
    /// Bytes that the store wrote.
    pub written_bytes: u64,
    /// Number of syncs.
    pub syncs: u64,
}

/// The disk operations of the store during a load, which can be repeated without a broker.
pub struct Replay {
    scratch: Scratch,
    before: Vec<Step>,
    steps: Vec<Step>,
}

/// Number of measurements of the floor: durations of a disk differ by half from one to the next.
const FLOORS: usize = 3;

impl Replay {
    /// Duration of the disk operations only: the median of three runs, each in its own directory.
    pub fn floor(&self) -> Result<Duration, BenchError> {
        let mut floors = [Duration::ZERO; FLOORS];
        for (number, floor) in floors.iter_mut().enumerate() {
            let path = self.scratch.at(&format!("floor-{number}"));
            *floor = floor::run(&path, &self.before, &self.steps)?;
            std::fs::remove_dir_all(&path)?;
        }
        floors.sort_unstable();
        Ok(floors[FLOORS / 2])
    }
}

/// Sends, receives and completes durably. Also returns the disk operations.
pub async fn durable_cycles(
    place: &Path,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<(Durable, Replay), BenchError> {
    let scratch = Scratch::within(place)?;
    let disk = OsDisk::open(&scratch.at("journal"))?;
    let recorder = Arc::new(Recorder::new(Arc::new(disk)));
    let store = Journal::open_on(Arc::clone(&recorder) as _, JournalConfig::default())?;
    let broker = Broker::builder().store(store).start().await?;
    broker.create_queue("load", Default::default()).await?;
    // Threads, files and connections are warm when the load begins.
    let warm = Cycle { messages: cycle.clients * cycle.list, ..cycle };
    run(&broker, "load", warm, &|_| {}).await?;
    let before = recorder.take();
    let elapsed = run(&broker, "load", cycle, progress).await?;
    let steps = recorder.take();
    broker.stop(Duration::ZERO).await?;
    let before: Vec<Step> =
        before.into_iter().filter(|step| matches!(step, Step::Create { .. })).collect();
    let messages = cycle.messages as u64;
    let (mut written_bytes, mut syncs) = (0, 0);
    for step in &steps {
        match step {
            Step::Write { bytes, .. } => written_bytes += bytes,
            Step::Sync { .. } => syncs += 1,
            Step::Create { .. } => {}
        }
    }
    let body_bytes = messages * cycle.body_bytes as u64;
    let durable = Durable { messages, body_bytes, elapsed, written_bytes, syncs };
    Ok((durable, Replay { scratch, before, steps }))
}

/// Sends, receives and completes every message; returns the duration. `progress` gets the number of
/// completed messages.
pub async fn run(
    broker: &Broker,
    queue: &str,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<Duration, BenchError> {
    let entity = broker.entity(queue)?;
    let message = Message::new(vec![7; cycle.body_bytes]).with_message_id("id-of-the-message");
    let (entity, message) = (&entity, &message);
    let started = Instant::now();
    in_shares(cycle, progress, |count| async move {
        send(entity, broker, message, count).await?;
        drain(entity, count, cycle.list).await
    })
    .await?;
    Ok(started.elapsed())
}

/// Divides the messages among the clients; each works in lists, one at a time.
pub async fn in_shares<F: Future<Output = Result<(), BenchError>>>(
    cycle: Cycle,
    progress: &dyn Fn(usize),
    work: impl Fn(usize) -> F,
) -> Result<(), BenchError> {
    let work = &work;
    let clients = (0..cycle.clients).map(|client| async move {
        let extra = usize::from(client < cycle.messages % cycle.clients);
        let mut left = cycle.messages / cycle.clients + extra;
        while left > 0 {
            let count = left.min(cycle.list);
            work(count).await?;
            left -= count;
            progress(count);
        }
        Ok::<(), BenchError>(())
    });
    futures_util::future::try_join_all(clients).await?;
    Ok(())
}

/// Sends a list.
pub async fn send(
    entity: &Entity,
    broker: &Broker,
    message: &Message,
    count: usize,
) -> Result<(), BenchError> {
    let sends =
        (0..count).map(|_| Command::Send { message: broker.inbound(message.clone()) }).collect();
    for result in entity.call_many(sends).await {
        result?;
    }
    Ok(())
}

/// Receives and completes `count` messages in lists. Loads each content, like a client.
pub async fn drain(entity: &Entity, count: usize, list: usize) -> Result<(), BenchError> {
    let mut left = count;
    while left > 0 {
        let receive = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: u32::try_from(left.min(list)).unwrap_or(1),
            bytes_max: u64::MAX,
            wait: TimeSpan::from_seconds(30),
            holder: None,
        };
        let Outcome::Received(messages) = entity.call(receive).await? else { continue };
        let mut completes = Vec::with_capacity(messages.len());
        for message in &messages {
            message.content.load().await?;
            if let Some(lock) = message.facts.lock {
                let settlement = Settlement::Complete;
                completes.push(Command::Settle { token: lock.token, settlement });
            }
        }
        left = left.saturating_sub(messages.len());
        for result in entity.call_many(completes).await {
            result?;
        }
    }
    Ok(())
}
