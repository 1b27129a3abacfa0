//! A group on its way to the disk, while the committer puts the next one together.
//!
//! ```text
//!  committer   encode 1 │ encode 2          │ index 1 │ encode 3          │ index 2 │
//!  flight               │ write 1 │ sync 1 ─┘         │ write 2 │ sync 2 ─┘
//! ```
//!
//! There is one flight at a time, so that nothing is written before every synced group in front of it is
//! durable. Frames that are encoded meanwhile say of the flight that it is not durable yet: what
//! they vouch for is one group less.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;

use super::queue::Queue;
use super::segment::Segment;
use crate::store::StoreError;

/// Frames of one group, and where they go.
#[derive(Clone)]
pub(super) struct Flight {
    pub(super) segment: Arc<Segment>,
    pub(super) at: u64,
    pub(super) bytes: Bytes,
    /// The memory that the bytes take.
    pub(super) held: usize,
    /// The lsn of its last frame.
    pub(super) last_lsn: u64,
}

impl Flight {
    /// Writes and syncs.
    pub(super) fn carry_out(&self) -> Result<(), StoreError> {
        self.segment.write(&self.bytes, self.at)?;
        self.segment.sync()
    }
}

/// Who carries flights out.
pub(super) enum Pilot {
    /// Who lands it: without threads.
    Hand,
    /// A thread, which tells the queue when it is done.
    Thread(PilotThread),
}

/// The thread.
pub(super) struct PilotThread {
    /// `None` when it is told to end.
    departures: Option<SyncSender<Flight>>,
    landings: Receiver<Result<(), StoreError>>,
    handle: Option<JoinHandle<()>>,
}

impl PilotThread {
    pub(super) fn start(queue: Arc<Queue>) -> std::io::Result<Self> {
        let (departures, flights) = sync_channel::<Flight>(1);
        let (landed, landings) = sync_channel(1);
        let thread = std::thread::Builder::new().name("journal-write".to_owned());
        let handle = thread.spawn(move || {
            let nudge = Nudge(queue);
            for flight in flights {
                let outcome = flight.carry_out();
                drop(flight);
                if landed.send(outcome).is_err() {
                    return;
                }
                nudge.0.nudge();
            }
        })?;
        Ok(Self { departures: Some(departures), landings, handle: Some(handle) })
    }

    /// Takes a flight. Does not wait: there is none before it.
    pub(super) fn depart(&self, flight: Flight) -> Result<(), StoreError> {
        let departures = self.departures.as_ref().ok_or_else(gone)?;
        departures.send(flight).map_err(|_| gone())
    }

    /// The outcome of the flight, if it is over.
    pub(super) fn look(&self) -> Option<Result<(), StoreError>> {
        use std::sync::mpsc::TryRecvError;
        match self.landings.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(gone())),
        }
    }

    /// Waits for the outcome of the flight.
    pub(super) fn wait(&self) -> Result<(), StoreError> {
        self.landings.recv().unwrap_or_else(|_| Err(gone()))
    }
}

/// Wakes the committer at the end, too: should the thread panic, it finds out now.
struct Nudge(Arc<Queue>);

impl Drop for Nudge {
    fn drop(&mut self) {
        self.0.nudge();
    }
}

impl Drop for PilotThread {
    fn drop(&mut self) {
        self.departures = None;
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            tracing::error!("the thread that writes the journal panicked");
        }
    }
}

fn gone() -> StoreError {
    StoreError::Failed("the thread that writes the journal is gone".into())
}
