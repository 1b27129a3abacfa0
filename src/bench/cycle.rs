//! The load: lists of sends, receives under lock, lists of completions, in this process.

use std::time::{Duration, Instant};

use peeklock::Broker;
use peeklock::Entity;
use peeklock::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock::message::Message;
use peeklock::time::TimeSpan;

use super::BenchError;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Cycle {
    /// Clients, each with one list under way.
    pub clients: usize,
    /// Commands of a list.
    pub list: usize,
    /// Messages altogether.
    pub messages: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
}

/// Sends, receives and completes every message; returns how long that took. `progress` is told of
/// messages that are through.
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

/// Divides the messages among the clients, each of which does its share in lists, one at a time.
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

/// Receives and completes so many messages, in lists. Loads each content, as a client would.
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
