//! A busy queue next to a deep idle queue: measures the bytes that the idle queue costs. The oldest
//! segments of the log contain messages of the idle queue, which must be copied before the space of
//! completed messages of the busy queue is free.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use peeklock::Broker;
use peeklock::description::QueueUpdate;
use peeklock::message::Message;
use peeklock::store::journal::disk::OsDisk;
use peeklock::store::{Journal, JournalConfig};

use super::cycle::{self, Cycle, in_shares, send};
use super::record::{Recorder, Step};
use super::{BenchError, Scratch};

/// Written bytes.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// Body bytes of idle messages.
    pub idle_bytes: u64,
    /// Body bytes of messages that were sent and completed.
    pub body_bytes: u64,
    /// Bytes that the store wrote meanwhile.
    pub written_bytes: u64,
}

/// Fills one queue with a quarter of the messages, then sends all messages through another.
pub async fn run(
    place: &Path,
    cycle: Cycle,
    progress: &dyn Fn(usize),
) -> Result<Beside, BenchError> {
    let scratch = Scratch::within(place)?;
    let recorder = Arc::new(Recorder::new(Arc::new(OsDisk::open(&scratch.at("journal"))?)));
    let store = Journal::open_on(Arc::clone(&recorder) as _, JournalConfig::default())?;
    let broker = Broker::builder().store(store).start().await?;
    for queue in ["idle", "busy"] {
        let update = QueueUpdate { max_size_in_megabytes: Some(4_096), ..QueueUpdate::default() };
        broker.create_queue(queue, update).await?;
    }
    let idle = Cycle { messages: cycle.messages / 4, ..cycle };
    let message = Message::new(vec![7; cycle.body_bytes]).with_message_id("id-of-the-message");
    let entity = broker.entity("idle")?;
    in_shares(idle, &|_| {}, |count| send(&entity, &broker, &message, count)).await?;
    recorder.take();
    cycle::run(&broker, "busy", cycle, progress).await?;
    let written_bytes = recorder
        .take()
        .iter()
        .map(|step| match step {
            Step::Write { bytes, .. } => *bytes,
            Step::Create { .. } | Step::Sync { .. } => 0,
        })
        .sum();
    broker.stop(Duration::ZERO).await?;
    let bytes = |cycle: Cycle| (cycle.messages * cycle.body_bytes) as u64;
    Ok(Beside { idle_bytes: bytes(idle), body_bytes: bytes(cycle), written_bytes })
}
