//! The reads that wait for the reader threads, in a list for each size, so that no read waits for
//! all reads of the other size.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The size of a read.
#[derive(Clone, Copy)]
pub(super) enum ReadSize {
    Small,
    Large,
}

/// A queue for each size, oldest first. Refuses reads once it is closed.
pub(super) struct Reads<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    small: VecDeque<T>,
    large: VecDeque<T>,
    is_open: bool,
}

impl<T> Reads<T> {
    pub(super) const fn open() -> Self {
        Self::new(true)
    }

    pub(super) const fn closed() -> Self {
        Self::new(false)
    }

    const fn new(is_open: bool) -> Self {
        let waiting = Waiting { small: VecDeque::new(), large: VecDeque::new(), is_open };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a read, or returns it if the queue is closed.
    pub(super) fn push(&self, size: ReadSize, read: T) -> Result<(), T> {
        let mut waiting = self.lock();
        if !waiting.is_open {
            return Err(read);
        }
        match size {
            ReadSize::Small => waiting.small.push_back(read),
            ReadSize::Large => waiting.large.push_back(read),
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the oldest read of this size, otherwise the oldest of the other size. Blocks until
    /// there is one. `None` once the queue is closed and empty.
    pub(super) fn next(&self, first: ReadSize) -> Option<T> {
        let mut waiting = self.lock();
        loop {
            let Waiting { small, large, is_open } = &mut *waiting;
            let (first, second) = match first {
                ReadSize::Small => (small, large),
                ReadSize::Large => (large, small),
            };
            if let Some(read) = first.pop_front().or_else(|| second.pop_front()) {
                return Some(read);
            }
            if !*is_open {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Accepts no further reads. Waiting ones are still read.
    pub(super) fn close(&self) {
        self.lock().is_open = false;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Reads<&'static str> {
        let reads = Reads::open();
        for read in ["first large", "second large", "third large"] {
            reads.push(ReadSize::Large, read).unwrap();
        }
        for read in ["first small", "second small"] {
            reads.push(ReadSize::Small, read).unwrap();
        }
        reads
    }

    #[test]
    fn reads_do_not_wait_for_all_reads_of_the_other_size() {
        let reads = filled();
        assert_eq!(reads.next(ReadSize::Small), Some("first small"));
        assert_eq!(reads.next(ReadSize::Large), Some("first large"));
        assert_eq!(reads.next(ReadSize::Large), Some("second large"));
    }

    #[test]
    fn both_readers_take_reads_of_either_size() {
        let reads = filled();
        let read = [(); 4].map(|()| reads.next(ReadSize::Small).unwrap());
        assert_eq!(read, ["first small", "second small", "first large", "second large"]);
        reads.push(ReadSize::Small, "third small").unwrap();
        let read = [(); 2].map(|()| reads.next(ReadSize::Large).unwrap());
        assert_eq!(read, ["third large", "third small"]);
    }

    #[test]
    fn closed_queue_drains_and_refuses_further_reads() {
        let reads = filled();
        reads.close();
        assert_eq!(reads.push(ReadSize::Small, "too late"), Err("too late"));
        assert_eq!(std::iter::from_fn(|| reads.next(ReadSize::Small)).count(), 5);
    }

    #[test]
    fn reader_blocks_until_a_read_or_the_end() {
        let reads = Reads::open();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| std::iter::from_fn(|| reads.next(ReadSize::Large)).count());
            for read in 0..100 {
                reads.push(ReadSize::Small, read).unwrap();
            }
            reads.close();
            assert_eq!(reader.join().unwrap(), 100);
        });
    }
}
