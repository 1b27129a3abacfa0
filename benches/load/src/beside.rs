//! A busy queue beside an idle deep one: what the idle one costs in written bytes. The oldest end of
//! the log is the idle queue's, and has to be written again before what the busy one has finished with
//! can be given back.

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

/// What was written.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// Bytes of the bodies that lie idle.
    pub idle_bytes: u64,
    /// Bytes of the bodies that went through.
    pub body_bytes: u64,
    /// Bytes the store wrote meanwhile.
    pub written_bytes: u64,
}

/// Fills one queue with a quarter of the messages, then sends all of them through another.
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
