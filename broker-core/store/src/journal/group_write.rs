//! Groups that another thread writes, while the committer encodes the next one (decision 10).
//!
//! One group is written at a time, in order, so that no write starts before all earlier synced
//! groups are durable. A second group may wait and is written as soon as the first one has
//! finished, without the committer. Until then the committer may take it back and add to it.
//!
//! Each frame states the last durable frame at the time of encoding. A frame that is encoded while
//! groups are written names a frame before all of these groups.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::queue::JobQueue;
use super::segment::Segment;
use crate::StoreError;

/// The frames of a group, and their position.
pub(super) struct GroupWrite {
    pub(super) segment: Arc<Segment>,
    pub(super) at: u64,
    /// Consecutive pieces.
    pub(super) pieces: Vec<Vec<u8>>,
    /// The lsn of the last frame.
    pub(super) last_lsn: u64,
}

/// A finished write, and its outcome.
pub(super) type FinishedWrite = (GroupWrite, Result<(), StoreError>);

impl GroupWrite {
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
pub(super) enum GroupWriter {
    /// The caller itself, without threads.
    Manual(WriteQueue),
    /// A thread, which wakes the committer after each write.
    Thread(WriterThread),
}

impl Default for GroupWriter {
    fn default() -> Self {
        Self::Manual(WriteQueue::default())
    }
}

impl GroupWriter {
    /// Adds a write, which starts after the previous one has finished. There are at most two.
    pub(super) fn start(&mut self, group_write: GroupWrite) {
        match self {
            Self::Manual(writes) => {
                writes.add(group_write);
                // A thread may be faster or slower than the committer: alternate, so that tests see
                // both.
                if writes.taken.is_some() {
                    writes.is_slow = !writes.is_slow;
                    if !writes.is_slow {
                        writes.carry_out();
                    }
                }
                writes.take();
            }
            Self::Thread(thread) => thread.add(group_write),
        }
    }

    /// Takes back a write that has not started.
    pub(super) fn take_back(&mut self) -> Option<GroupWrite> {
        match self {
            Self::Manual(writes) => writes.waiting.pop_back(),
            Self::Thread(thread) => thread.state.lock().waiting.pop_back(),
        }
    }

    /// The next finished write, if any. A write must be under way.
    pub(super) fn poll_finished(&mut self) -> Result<Option<FinishedWrite>, StoreError> {
        match self {
            Self::Manual(writes) => Ok(writes.finished.pop_front()),
            Self::Thread(thread) => thread.poll_finished(),
        }
    }

    /// Waits for the next finished write. A write must be under way.
    pub(super) fn wait(&mut self) -> Result<FinishedWrite, StoreError> {
        match self {
            Self::Manual(writes) => {
                if writes.finished.is_empty() {
                    writes.carry_out();
                }
                writes.finished.pop_front().ok_or_else(writer_ended)
            }
            Self::Thread(thread) => thread.wait(),
        }
    }

    /// Whether writes finish only when the caller waits for them.
    pub(super) const fn is_manual(&self) -> bool {
        matches!(self, Self::Manual(_))
    }
}

/// The writes, by their progress.
#[derive(Default)]
pub(super) struct WriteQueue {
    /// Writes that have not started.
    waiting: VecDeque<GroupWrite>,
    /// The current write, without threads.
    taken: Option<GroupWrite>,
    finished: VecDeque<FinishedWrite>,
    /// Without threads, whether the last added write had to wait.
    is_slow: bool,
    /// No further write will be added.
    is_closed: bool,
    /// No write is carried out any more.
    is_stopped: bool,
}

impl WriteQueue {
    fn add(&mut self, group_write: GroupWrite) {
        debug_assert!(self.waiting.len() < 2, "two writes at most");
        self.waiting.push_back(group_write);
    }

    fn take(&mut self) {
        if self.taken.is_none() {
            self.taken = self.waiting.pop_front();
        }
    }

    fn carry_out(&mut self) {
        if let Some(group_write) = self.taken.take() {
            let outcome =
                if self.is_stopped { Err(writer_ended()) } else { group_write.carry_out() };
            // Nothing is written after a failure.
            self.is_stopped |= outcome.is_err();
            self.finished.push_back((group_write, outcome));
        }
        self.take();
    }
}

/// The thread, from the committer's side.
pub(super) struct WriterThread {
    state: Arc<WriterState>,
    handle: Option<JoinHandle<()>>,
}

/// The state that the thread and the committer share.
#[derive(Default)]
struct WriterState {
    writes: Mutex<WriteQueue>,
    added: Condvar,
    finished: Condvar,
}

impl WriterState {
    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriterThread {
    pub(super) fn start(queue: Arc<JobQueue>) -> std::io::Result<Self> {
        let state = Arc::new(WriterState::default());
        let thread = std::thread::Builder::new().name("journal-write".to_owned());
        let end = WriterLoop { state: Arc::clone(&state), queue };
        let handle = thread.spawn(move || end.run())?;
        Ok(Self { state, handle: Some(handle) })
    }

    fn add(&self, group_write: GroupWrite) {
        self.state.lock().add(group_write);
        self.state.added.notify_one();
    }

    fn poll_finished(&self) -> Result<Option<FinishedWrite>, StoreError> {
        let mut writes = self.state.lock();
        match writes.finished.pop_front() {
            None if writes.is_stopped => Err(writer_ended()),
            finished => Ok(finished),
        }
    }

    fn wait(&self) -> Result<FinishedWrite, StoreError> {
        let is_waiting = |writes: &mut WriteQueue| writes.finished.is_empty() && !writes.is_stopped;
        let waited = self.state.finished.wait_while(self.state.lock(), is_waiting);
        waited.unwrap_or_else(PoisonError::into_inner).finished.pop_front().ok_or_else(writer_ended)
    }
}

/// The thread's side. Dropping it, also in a panic, wakes a committer that waits.
struct WriterLoop {
    state: Arc<WriterState>,
    queue: Arc<JobQueue>,
}

impl WriterLoop {
    fn run(&self) {
        let Some(mut group_write) = self.next(self.state.lock()) else { return };
        loop {
            let outcome = group_write.carry_out();
            let has_failed = outcome.is_err();
            let mut writes = self.state.lock();
            writes.finished.push_back((group_write, outcome));
            if has_failed {
                // Nothing is written after a failure.
                return;
            }
            let waiting = writes.waiting.pop_front();
            drop(writes);
            self.state.finished.notify_one();
            self.queue.nudge();
            let Some(next) = waiting.or_else(|| self.next(self.state.lock())) else { return };
            group_write = next;
        }
    }

    fn next(&self, writes: MutexGuard<'_, WriteQueue>) -> Option<GroupWrite> {
        let is_waiting = |writes: &mut WriteQueue| writes.waiting.is_empty() && !writes.is_closed;
        let waited = self.state.added.wait_while(writes, is_waiting);
        waited.unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

impl Drop for WriterLoop {
    fn drop(&mut self) {
        self.state.lock().is_stopped = true;
        self.state.finished.notify_one();
        self.queue.nudge();
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.state.lock().is_closed = true;
        self.state.added.notify_one();
        if let Some(handle) = self.handle.take()
            && handle.join().is_err()
        {
            tracing::error!("the thread that writes the journal panicked");
        }
    }
}

fn writer_ended() -> StoreError {
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

    struct Fixture {
        /// First, so that the thread of a failed test ends.
        may: Sender<io::Result<()>>,
        writer: GroupWriter,
        segment: Arc<Segment>,
        begun: Receiver<u64>,
    }

    impl Fixture {
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
            let writer = GroupWriter::Thread(WriterThread::start(Arc::default()).unwrap());
            Self { writer, segment, begun: has_begun, may }
        }

        fn start(&mut self, at: u64) {
            let (segment, pieces) = (Arc::clone(&self.segment), vec![vec![1; 8]]);
            self.writer.start(GroupWrite { segment, at, pieces, last_lsn: at });
        }

        fn finished_at(&mut self) -> u64 {
            let (group_write, outcome) = self.writer.wait().unwrap();
            outcome.unwrap();
            group_write.at
        }
    }

    #[test]
    fn second_write_starts_after_the_first_without_a_poll() {
        let mut fixture = Fixture::new();
        fixture.start(0);
        fixture.start(8);
        assert_eq!(fixture.begun.recv(), Ok(0));
        assert!(fixture.begun.try_recv().is_err(), "one at a time");
        fixture.may.send(Ok(())).unwrap();
        assert_eq!(fixture.begun.recv(), Ok(8));
        assert_eq!(
            fixture.writer.poll_finished().unwrap().map(|(group_write, _)| group_write.at),
            Some(0)
        );
        assert!(fixture.writer.poll_finished().unwrap().is_none(), "the second is under way");
        assert!(fixture.writer.take_back().is_none(), "the second is under way");
        fixture.may.send(Ok(())).unwrap();
        assert_eq!(fixture.finished_at(), 8);
    }

    #[test]
    fn waiting_write_is_taken_back() {
        let mut fixture = Fixture::new();
        fixture.start(0);
        assert_eq!(fixture.begun.recv(), Ok(0));
        fixture.start(8);
        assert_eq!(fixture.writer.take_back().map(|group_write| group_write.at), Some(8));
        assert!(fixture.writer.take_back().is_none(), "the first is under way");
        fixture.start(16);
        fixture.may.send(Ok(())).unwrap();
        fixture.may.send(Ok(())).unwrap();
        assert_eq!((fixture.finished_at(), fixture.finished_at()), (0, 16));
        assert_eq!(fixture.begun.try_iter().collect::<Vec<_>>(), [16]);
    }

    #[test]
    fn no_write_starts_after_a_failure() {
        let mut fixture = Fixture::new();
        fixture.start(0);
        fixture.start(8);
        fixture.may.send(Err(io::Error::other("broken"))).unwrap();
        let (first, outcome) = fixture.writer.wait().unwrap();
        assert!(first.at == 0 && outcome.is_err());
        assert!(fixture.writer.wait().is_err() && fixture.writer.poll_finished().is_err());
        fixture.start(16);
        let Fixture { writer, begun, .. } = fixture;
        drop(writer);
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), [0]);
    }
}
