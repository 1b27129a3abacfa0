//! Groups that another thread writes, while the committer encodes the next one (decision 10).
//!
//! One group is written at a time, in order, so that no write starts before all earlier synced
//! groups are durable. A second group may wait and is written as soon as the first one has
//! finished, without the committer. Until then the committer may take it back and add to it. The
//! data of both counts as not durable in frames that are encoded meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::queue::Queue;
use super::segment::Segment;
use crate::StoreError;

/// The frames of a group, and their position.
pub(super) struct Flight {
    pub(super) segment: Arc<Segment>,
    pub(super) at: u64,
    /// Consecutive pieces.
    pub(super) pieces: Vec<Vec<u8>>,
    /// The lsn of the last frame.
    pub(super) last_lsn: u64,
}

/// A finished write, and its outcome.
pub(super) type Landing = (Flight, Result<(), StoreError>);

impl Flight {
    /// Writes the pieces.
    pub(super) fn write(&self) -> Result<(), StoreError> {
        let mut at = self.at;
        for piece in &self.pieces {
            self.segment.write(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes and syncs.
    fn carry_out(&self) -> Result<(), StoreError> {
        self.write()?;
        self.segment.sync()
    }
}

/// The executor of background writes.
pub(super) enum Pilot {
    /// The caller itself, without threads.
    Hand(Runway),
    /// A thread, which wakes the committer after each write.
    Thread(PilotThread),
}

impl Default for Pilot {
    fn default() -> Self {
        Self::Hand(Runway::default())
    }
}

impl Pilot {
    /// Adds a write, which starts after the previous one has finished. There are at most two.
    pub(super) fn depart(&mut self, flight: Flight) {
        match self {
            Self::Hand(runway) => {
                runway.give(flight);
                // A thread may be faster or slower than the committer: alternate, so that tests see
                // both.
                if runway.taken.is_some() {
                    runway.is_slow = !runway.is_slow;
                    if !runway.is_slow {
                        runway.carry_out();
                    }
                }
                runway.take();
            }
            Self::Thread(thread) => thread.depart(flight),
        }
    }

    /// Takes back a write that has not started.
    pub(super) fn take_back(&mut self) -> Option<Flight> {
        match self {
            Self::Hand(runway) => runway.waiting.pop_back(),
            Self::Thread(thread) => thread.tower.lock().waiting.pop_back(),
        }
    }

    /// The next finished write, if any. A write must be under way.
    pub(super) fn look(&mut self) -> Result<Option<Landing>, StoreError> {
        match self {
            Self::Hand(runway) => Ok(runway.landed.pop_front()),
            Self::Thread(thread) => thread.look(),
        }
    }

    /// Waits for the next finished write. A write must be under way.
    pub(super) fn wait(&mut self) -> Result<Landing, StoreError> {
        match self {
            Self::Hand(runway) => {
                if runway.landed.is_empty() {
                    runway.carry_out();
                }
                runway.landed.pop_front().ok_or_else(gone)
            }
            Self::Thread(thread) => thread.wait(),
        }
    }

    /// Whether writes finish only when the caller waits for them.
    pub(super) const fn is_by_hand(&self) -> bool {
        matches!(self, Self::Hand(_))
    }
}

/// The writes, by their progress.
#[derive(Default)]
pub(super) struct Runway {
    /// Writes that have not started.
    waiting: VecDeque<Flight>,
    /// The current write, without threads.
    taken: Option<Flight>,
    landed: VecDeque<Landing>,
    /// Without threads, whether the last added write had to wait.
    is_slow: bool,
    /// No further write will be added.
    is_closed: bool,
    /// No write is carried out any more.
    is_over: bool,
}

impl Runway {
    fn give(&mut self, flight: Flight) {
        debug_assert!(self.waiting.len() < 2, "two flights at most");
        self.waiting.push_back(flight);
    }

    fn take(&mut self) {
        if self.taken.is_none() {
            self.taken = self.waiting.pop_front();
        }
    }

    fn carry_out(&mut self) {
        if let Some(flight) = self.taken.take() {
            let outcome = if self.is_over { Err(gone()) } else { flight.carry_out() };
            // Nothing is written after a failure.
            self.is_over |= outcome.is_err();
            self.landed.push_back((flight, outcome));
        }
        self.take();
    }
}

/// The thread, from the committer's side.
pub(super) struct PilotThread {
    tower: Arc<Tower>,
    handle: Option<JoinHandle<()>>,
}

/// The state that the thread and the committer share.
#[derive(Default)]
struct Tower {
    runway: Mutex<Runway>,
    given: Condvar,
    landed: Condvar,
}

impl Tower {
    fn lock(&self) -> MutexGuard<'_, Runway> {
        self.runway.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PilotThread {
    pub(super) fn start(queue: Arc<Queue>) -> std::io::Result<Self> {
        let tower = Arc::new(Tower::default());
        let thread = std::thread::Builder::new().name("journal-write".to_owned());
        let end = End { tower: Arc::clone(&tower), queue };
        let handle = thread.spawn(move || end.fly())?;
        Ok(Self { tower, handle: Some(handle) })
    }

    fn depart(&self, flight: Flight) {
        self.tower.lock().give(flight);
        self.tower.given.notify_one();
    }

    fn look(&self) -> Result<Option<Landing>, StoreError> {
        let mut runway = self.tower.lock();
        match runway.landed.pop_front() {
            None if runway.is_over => Err(gone()),
            landing => Ok(landing),
        }
    }

    fn wait(&self) -> Result<Landing, StoreError> {
        let waits = |runway: &mut Runway| runway.landed.is_empty() && !runway.is_over;
        let waited = self.tower.landed.wait_while(self.tower.lock(), waits);
        waited.unwrap_or_else(PoisonError::into_inner).landed.pop_front().ok_or_else(gone)
    }
}

/// The thread's side. Dropping it, also in a panic, wakes a committer that waits.
struct End {
    tower: Arc<Tower>,
    queue: Arc<Queue>,
}

impl End {
    fn fly(&self) {
        let Some(mut flight) = self.next(self.tower.lock()) else { return };
        loop {
            let outcome = flight.carry_out();
            let is_lost = outcome.is_err();
            let mut runway = self.tower.lock();
            runway.landed.push_back((flight, outcome));
            if is_lost {
                // Nothing is written after a failure.
                return;
            }
            let waiting = runway.waiting.pop_front();
            drop(runway);
            self.tower.landed.notify_one();
            self.queue.nudge();
            let Some(next) = waiting.or_else(|| self.next(self.tower.lock())) else { return };
            flight = next;
        }
    }

    fn next(&self, runway: MutexGuard<'_, Runway>) -> Option<Flight> {
        let waits = |runway: &mut Runway| runway.waiting.is_empty() && !runway.is_closed;
        let waited = self.tower.given.wait_while(runway, waits);
        waited.unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.tower.lock().is_over = true;
        self.tower.landed.notify_one();
        self.queue.nudge();
    }
}

impl Drop for PilotThread {
    fn drop(&mut self) {
        self.tower.lock().is_closed = true;
        self.tower.given.notify_one();
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            tracing::error!("the thread that writes the journal panicked");
        }
    }
}

fn gone() -> StoreError {
    StoreError::Failed("the thread that writes the journal has ended".into())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::super::disk::DiskFile;
    use super::super::format::{SegmentHeader, Version};
    use super::*;

    /// A file that reports each write and waits for permission to do it.
    struct Gate {
        begun: Sender<u64>,
        may: Mutex<Receiver<io::Result<()>>>,
    }

    impl DiskFile for Gate {
        fn length(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn write_at(&self, _: &[u8], offset: u64) -> io::Result<()> {
            self.begun.send(offset).unwrap();
            self.may.lock().unwrap().recv().unwrap()
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn truncate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Field {
        /// First, so that the thread of a failed test ends.
        may: Sender<io::Result<()>>,
        pilot: Pilot,
        segment: Arc<Segment>,
        begun: Receiver<u64>,
    }

    impl Field {
        fn new() -> Self {
            let ((begun, has_begun), (may, permission)) = (channel(), channel());
            let file = Arc::new(Gate { begun, may: Mutex::new(permission) });
            let header = SegmentHeader {
                version: Version::CURRENT,
                journal: 1,
                number: 1,
                shard_count: 1,
                seed: 1,
                first_lsn: 1,
                synced: 0,
                oldest: 1,
                previous_end: 0,
            };
            let segment = Arc::new(Segment::new(header, file, 0));
            let pilot = Pilot::Thread(PilotThread::start(Arc::default()).unwrap());
            Self { pilot, segment, begun: has_begun, may }
        }

        fn depart(&mut self, at: u64) {
            let (segment, pieces) = (Arc::clone(&self.segment), vec![vec![1; 8]]);
            self.pilot.depart(Flight { segment, at, pieces, last_lsn: at });
        }

        fn landed_at(&mut self) -> u64 {
            let (flight, outcome) = self.pilot.wait().unwrap();
            outcome.unwrap();
            flight.at
        }
    }

    #[test]
    fn second_write_starts_after_the_first_without_a_poll() {
        let mut field = Field::new();
        field.depart(0);
        field.depart(8);
        assert_eq!(field.begun.recv(), Ok(0));
        assert!(field.begun.try_recv().is_err(), "one at a time");
        field.may.send(Ok(())).unwrap();
        assert_eq!(field.begun.recv(), Ok(8));
        assert_eq!(field.pilot.look().unwrap().map(|(flight, _)| flight.at), Some(0));
        assert!(field.pilot.look().unwrap().is_none(), "the second is under way");
        assert!(field.pilot.take_back().is_none(), "the second is under way");
        field.may.send(Ok(())).unwrap();
        assert_eq!(field.landed_at(), 8);
    }

    #[test]
    fn waiting_write_is_taken_back() {
        let mut field = Field::new();
        field.depart(0);
        assert_eq!(field.begun.recv(), Ok(0));
        field.depart(8);
        assert_eq!(field.pilot.take_back().map(|flight| flight.at), Some(8));
        assert!(field.pilot.take_back().is_none(), "the first is under way");
        field.depart(16);
        field.may.send(Ok(())).unwrap();
        field.may.send(Ok(())).unwrap();
        assert_eq!((field.landed_at(), field.landed_at()), (0, 16));
        assert_eq!(field.begun.try_iter().collect::<Vec<_>>(), [16]);
    }

    #[test]
    fn no_write_starts_after_a_failure() {
        let mut field = Field::new();
        field.depart(0);
        field.depart(8);
        field.may.send(Err(io::Error::other("broken"))).unwrap();
        let (first, outcome) = field.pilot.wait().unwrap();
        assert!(first.at == 0 && outcome.is_err());
        assert!(field.pilot.wait().is_err() && field.pilot.look().is_err());
        field.depart(16);
        let Field { pilot, begun, .. } = field;
        drop(pilot);
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), [0]);
    }
}
