//! The journal with its own threads: committer, keeper and concurrent readers, and power cuts at
//! any call. The order of events differs from run to run; the guarantees do not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock_core::store::journal::{Journal, JournalConfig};
use peeklock_core::store::{Shard, Store, StoreError};
use peeklock_store_testing::{Call, Fault, Lost, Names, Random, SimulatedDisk, block_on};

use crate::book::Book;
use crate::generator::Load;
use crate::judge::{Ending, judge};
use crate::number;
use crate::oracle::{SPACES, State, load};

const ROUNDS: u64 = 120;
const BATCHES: u64 = 150;
const SHARDS: u16 = 3;
/// Maximum time for everything submitted.
const PATIENCE: Duration = Duration::from_secs(30);

fn open(disk: &SimulatedDisk) -> Result<Arc<Journal>, StoreError> {
    let config = JournalConfig {
        segment_bytes: 32 << 10,
        cache_bytes: 20_000,
        free_bytes_min: 0,
        shard_count: SHARDS,
        ..JournalConfig::default()
    };
    Journal::open_on(Arc::new(disk.clone()), config)
}

/// Waits until every batch is answered.
fn wait(book: &mut Book) {
    let begun = Instant::now();
    loop {
        book.take_answers();
        if book.is_all_answered() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "somebody was never answered");
        std::thread::yield_now();
    }
}

/// Submits, pins and reads until the end of the round.
fn work(journal: &Journal, book: &mut Book, random: &mut Random) {
    let load_of = Load { keys: 30, large_one_in: 100, lazy_one_in: 5, deletes: 4 };
    let mut pins = Vec::new();
    for _ in 0..BATCHES {
        let shard = random.index(usize::from(SHARDS));
        let spaces = [SPACES[shard], SPACES[shard + 3]];
        let batch = load_of.batch(random, &spaces);
        if random.one_in(2) {
            book.submit_here(journal, shard, &[], batch);
        } else {
            book.submit(journal, shard, &[], batch);
        }
        if random.one_in(12) {
            // Nothing is pending, so the result of a pin is known.
            wait(book);
            if book.failure().is_some() {
                return;
            }
            let state = book.completed();
            let keys: Vec<_> = state.records.keys().copied().collect();
            let mut found = Vec::new();
            journal.pin(&keys, &mut found);
            for (key, content) in keys.iter().zip(found) {
                let expected = state.records[key].content.clone();
                assert_eq!(content.is_some(), expected.is_some());
                if let (Some(content), Some(expected), true) = (content, expected, pins.len() < 40)
                {
                    pins.push((content, expected));
                }
            }
        }
        if random.one_in(3) && !pins.is_empty() {
            let (content, expected) = pins.swap_remove(random.index(pins.len()));
            match load(&content) {
                Ok(found) => assert!(found == expected, "pinned content is another"),
                Err(error) => assert!(matches!(error, StoreError::Failed(_)), "{error}"),
            }
        }
    }
}

/// No race of the threads loses a batch or brings a deleted record back.
#[test]
fn no_race_breaks_a_promise() {
    let mut random = Random::new(1);
    let mut disk = SimulatedDisk::new(1);
    let mut book = Book::new(State::default(), Vec::new());
    let mut ending = Ending::Sudden;
    for round in 0..number("PEEKLOCK_JOURNAL_ROUNDS").unwrap_or(ROUNDS) {
        let journal = open(&disk).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let owners: Vec<_> =
            (0..SHARDS).map(|shard| block_on(journal.acquire(Shard(shard))).unwrap()).collect();
        let found = State::read(&*journal).unwrap();
        if let Err(what) = judge(&book, &found, ending) {
            panic!("round {round}: {what}");
        }
        book = Book::new(found, owners);
        ending = Ending::Sudden;
        match random.below(4) {
            0 => {}
            1 => disk.fail(
                [Call::Sync, Call::Write, Call::SyncNames, Call::Allocate][random.index(4)],
                random.between(1, 60),
                Fault::Partly,
            ),
            _ => disk.cut_power_at(random.between(1, 600)),
        }
        work(&journal, &mut book, &mut random);
        wait(&mut book);
        if random.one_in(2) && journal.close().is_ok() {
            ending = Ending::Closed;
        }
        drop(journal);
        disk.heal();
        disk = match random.below(2) {
            0 if !disk.is_cut() => disk.kill(Lost::ReadAnew),
            _ => disk.crash_with(&mut random, Names::Prefix),
        };
    }
}
