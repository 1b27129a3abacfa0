//! A full disk: sends are refused, operations that make room succeed, and sends work again (QUO-05,
//! DESIGN D12).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peeklock_core::store::journal::{Journal, JournalConfig};
use peeklock_core::store::{Key, Reserved, Shard, Store, StoreError, Waker};
use peeklock_store_testing::{Lost, SimulatedDisk, block_on, manual_journal};

use crate::book::Book;
use crate::oracle::{Op, SPACES, State};

const SEGMENT_BYTES: u64 = 16 << 10;
/// Size of the disk, and the part that sends must leave free.
const QUOTA_SEGMENTS: u64 = 40;
const FLOOR_SEGMENTS: u64 = 8;
const MESSAGE_BYTES: usize = 3_000;
/// Reservation of a message in bytes: key, value and overhead of the journal.
const RESERVED_BYTES: u64 = 3_300;
const TURNS_MAX: u32 = 5_000;

struct Full {
    disk: SimulatedDisk,
    journal: Arc<Journal>,
    book: Book,
    next: u64,
    oldest: u64,
    woken: Arc<AtomicU32>,
}

fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 0,
        free_bytes_min: FLOOR_SEGMENTS * SEGMENT_BYTES,
        shard_count: 1,
        ..JournalConfig::default()
    }
}

fn open(disk: &SimulatedDisk, state: State) -> Result<(Arc<Journal>, Book), StoreError> {
    let journal = manual_journal(Arc::new(disk.clone()), config(), 1)?;
    let owner = block_on(journal.acquire(Shard(0)))?;
    Ok((journal, Book::new(state, vec![owner])))
}

fn key(number: u64) -> Key {
    Key::of_space(SPACES[1]).then(&number.to_be_bytes())
}

impl Full {
    fn new() -> Self {
        Self::with_segments(QUOTA_SEGMENTS)
    }

    fn with_segments(segments: u64) -> Self {
        let disk = SimulatedDisk::new(1);
        disk.set_quota(Some(segments * SEGMENT_BYTES));
        let (journal, book) = open(&disk, State::default()).unwrap();
        Self { disk, journal, book, next: 0, oldest: 0, woken: Arc::default() }
    }

    fn reserve(&self) -> Reserved {
        let woken = Arc::clone(&self.woken);
        self.journal.reserve(Shard(0), RESERVED_BYTES, &move || -> Waker {
            let woken = Arc::clone(&woken);
            Box::new(move || {
                woken.fetch_add(1, Ordering::SeqCst);
            })
        })
    }

    /// Sends until there is no room. Returns the number of messages.
    fn fill(&mut self) -> u64 {
        let first = self.next;
        while self.reserve() == Reserved::Granted {
            let content = vec![u8::try_from(self.next % 251).unwrap(); MESSAGE_BYTES].into();
            let op = Op::PutNew { key: key(self.next), value: b"message".to_vec(), content };
            self.next += 1;
            self.book.submit_reserved(&*self.journal, 0, (vec![op], true), RESERVED_BYTES);
            self.turn();
            assert!(self.next - first < 10_000, "a disk with a quota never gets full");
        }
        self.must_be_well();
        self.next - first
    }

    /// Completes the oldest message.
    fn take(&mut self) {
        let op = Op::Delete { key: key(self.oldest) };
        self.oldest += 1;
        self.book.submit(&*self.journal, 0, &[], (vec![op], true));
        self.turn();
    }

    fn turn(&mut self) {
        for _ in 0..TURNS_MAX {
            let (kept, committed) = (self.journal.run_keeper(), self.journal.run_committer());
            if !committed && !kept {
                self.book.take_answers();
                return;
            }
        }
        panic!("after {TURNS_MAX} turns there is still something to do");
    }

    fn must_be_well(&mut self) {
        self.book.take_answers();
        assert!(self.book.is_all_answered());
        assert!(self.book.failure().is_none(), "{:?}", self.book.failure());
        let found = State::read(&*self.journal).unwrap();
        let difference = self.book.completed().difference(&found);
        assert!(difference.is_none(), "{difference:?}");
    }

    fn restart(&mut self) {
        self.book.take_answers();
        let state = self.book.completed();
        self.disk = self.disk.kill(Lost::ReadAnew);
        (self.journal, self.book) = open(&self.disk, state)
            .unwrap_or_else(|error| panic!("a full disk cannot be opened: {error}"));
        self.must_be_well();
    }
}

/// QUO-05: a full disk refuses sends and reports it.
#[test]
fn a_full_disk_refuses_sends() {
    let mut full = Full::new();
    assert!(full.fill() > 20, "a good part of the disk is of use");
    assert_eq!(full.reserve(), Reserved::Full);
    let free = QUOTA_SEGMENTS * SEGMENT_BYTES - full.disk.allocated_bytes();
    assert!(free >= (FLOOR_SEGMENTS - 2) * SEGMENT_BYTES, "sends have used up the floor: {free}");
}

/// QUO-05: on a full disk everything can be completed, and then sends work again, repeatedly.
#[test]
fn a_full_disk_allows_completions() {
    let mut full = Full::new();
    let first = full.fill();
    for round in 0..5 {
        full.woken.store(0, Ordering::SeqCst);
        assert_eq!(full.reserve(), Reserved::Full);
        while full.oldest < full.next {
            full.take();
        }
        full.must_be_well();
        assert!(full.woken.load(Ordering::SeqCst) >= 1, "round {round}: nobody was woken");
        let again = full.fill();
        assert!(again * 10 > first * 8, "round {round}: room for {again} of {first}");
    }
}

/// QUO-05: the smallest disk, with the floor and three segments, accepts messages again after all
/// were completed, in the same process and after a restart, repeatedly. One remaining message does
/// not prevent that.
#[test]
fn the_smallest_disk_has_room_again_after_a_purge() {
    for restarts in [false, true] {
        let mut full = Full::with_segments(FLOOR_SEGMENTS + 3);
        let first = full.fill();
        assert!(first > 3, "the smallest disk is of use: {first}");
        for round in 0..10 {
            assert_eq!(full.reserve(), Reserved::Full);
            // The first message of each round stays until the next.
            while full.oldest + 1 < full.next {
                full.take();
            }
            if restarts {
                full.restart();
                full.turn();
            }
            let again = full.fill();
            assert!(again >= 2, "round {round}, restarts {restarts}: {again} of {first}");
        }
        full.must_be_well();
    }
}

/// QUO-05: alternating sends and completions at the floor work without end.
#[test]
fn a_disk_that_stays_full_keeps_working() {
    let mut full = Full::new();
    full.fill();
    let mut sent = 0;
    for _ in 0..1_500 {
        full.take();
        sent += full.fill();
    }
    full.must_be_well();
    assert!(sent > 1_000, "of 1500 places that became free only {sent} were of use");
}

/// QUO-05: settlements, such as repeated abandons, never use up the disk.
#[test]
fn settlements_never_use_up_a_full_disk() {
    let mut full = Full::new();
    full.fill();
    for round in 0..3_000 {
        let at = full.oldest + round % (full.next - full.oldest);
        let value = format!("delivered {round} times").into_bytes();
        let op = Op::PutKeep { key: key(at), value };
        full.book.submit(&*full.journal, 0, &[], (vec![op], true));
        full.turn();
    }
    full.must_be_well();
}

/// A full disk can be opened any number of times, and work continues.
#[test]
fn a_full_disk_can_be_opened_again_and_again() {
    let mut full = Full::new();
    full.fill();
    // Processes that end immediately: each leaves only the head of a segment (a quarter of one
    // here).
    for _ in 0..8 {
        full.restart();
    }
    let mut sent = 0;
    for _ in 0..8 {
        full.restart();
        full.turn();
        // Space that the end of a process freed, such as a spare, may be used, but not repeatedly.
        sent += full.fill();
    }
    assert!(sent < 8, "{sent} messages on a full disk");
    for _ in 0..8 {
        full.restart();
        full.take();
    }
    while full.oldest < full.next {
        full.take();
    }
    full.must_be_well();
    assert!(full.fill() > 20, "sends come back");
}

/// Reservations are kept: a granted batch can be written, even if other programs have filled the
/// disk up to the journal's own reserve.
#[test]
fn a_disk_filled_by_other_programs_fails_cleanly() {
    let mut full = Full::new();
    for _ in 0..20 {
        assert_eq!(full.reserve(), Reserved::Granted);
        full.journal.unreserve(Shard(0), RESERVED_BYTES);
        let content = vec![1; MESSAGE_BYTES].into();
        let op = Op::PutNew { key: key(full.next), value: Vec::new(), content };
        full.next += 1;
        full.book.submit(&*full.journal, 0, &[], (vec![op], true));
        full.turn();
    }
    // Now nothing is left: the next segment cannot be created.
    full.disk.set_quota(Some(full.disk.allocated_bytes()));
    for _ in 0..100 {
        let content = vec![2; MESSAGE_BYTES].into();
        let op = Op::PutNew { key: key(full.next), value: Vec::new(), content };
        full.next += 1;
        full.book.submit(&*full.journal, 0, &[], (vec![op], true));
        full.turn();
    }
    assert!(full.book.is_all_answered());
    assert!(matches!(full.book.failure(), Some(StoreError::Failed(_))), "it ends");
    assert_eq!(full.reserve(), Reserved::Full, "and says that the disk is full");
    // Space is freed, and the next process finds everything.
    full.disk.set_quota(Some(QUOTA_SEGMENTS * SEGMENT_BYTES));
    full.restart();
}
