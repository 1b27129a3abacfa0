//! Regression tests of faults that neither crashes nor failing calls reveal.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use peeklock_core::store::{
    Batch, BatchId, Fence, Journal, JournalConfig, Key, Shard, Store, Submission,
};
use peeklock_store_testing::{Call, SimulatedDisk, block_on, manual_journal};

const PATIENCE: Duration = Duration::from_secs(20);

fn config(segment_bytes: u64) -> JournalConfig {
    JournalConfig { segment_bytes, free_bytes_min: 0, ..JournalConfig::default() }
}

fn key(number: u64) -> Key {
    Key::of_space(7).then(&[0x10]).then(&number.to_be_bytes())
}

/// An owner of a shard that submits batches.
struct Owner {
    journal: Arc<Journal>,
    fence: Fence,
    next: u64,
}

impl Owner {
    fn of(journal: Arc<Journal>) -> Self {
        let (fence, next) = block_on(journal.acquire(Shard(0))).unwrap();
        Self { journal, fence, next: next.0 }
    }

    fn submit(&mut self, make: impl FnOnce(&mut Batch)) -> Receiver<bool> {
        let mut batch = Batch::default();
        make(&mut batch);
        batch.require_sync();
        let (sender, answer) = channel();
        let id = BatchId(self.next);
        self.next += 1;
        self.journal.submit(
            Submission { id, fences: vec![self.fence], batch: Arc::new(batch) },
            Box::new(move |result| {
                sender.send(result.is_ok()).ok();
            }),
        );
        answer
    }

    /// Submits a batch to a manually driven journal, and commits it.
    fn store(&mut self, make: impl FnOnce(&mut Batch)) {
        let answer = self.submit(make);
        while self.journal.run_committer() {}
        assert!(answer.try_recv().unwrap());
    }

    fn put(&mut self, number: u64, length: usize) {
        let content = Bytes::from(vec![b'x'; length]);
        self.store(|batch| batch.put_with_content(&key(number), content, |_| {}));
    }
}

/// A group takes a bounded part of a burst, so that no batch waits for all others.
#[test]
fn a_burst_is_written_in_groups() {
    for records_min in [1, 1_000] {
        let disk = SimulatedDisk::new(1);
        let journal = manual_journal(Arc::new(disk.clone()), config(64 << 20), 3).unwrap();
        journal.set_background_records_min(records_min);
        let mut owner = Owner::of(Arc::clone(&journal));
        let content = Bytes::from(vec![b'x'; 200_000]);
        let answers: Vec<_> = (0..100)
            .map(|number| {
                let content = content.clone();
                owner.submit(|batch| batch.put_with_content(&key(number), content, |_| {}))
            })
            .collect();
        let synced = disk.call_count_of(Call::Sync);
        // The last two may be in flight after the first turn.
        while journal.run_committer() {}
        let groups = disk.call_count_of(Call::Sync) - synced;
        assert!((4..=8).contains(&groups), "20 MB in {groups} groups");
        for answer in answers {
            assert!(answer.try_recv().unwrap());
        }
    }
}

/// A large content that is completed while its parts are being moved keeps nothing: the log is
/// freed, and the keeper becomes idle.
#[test]
fn an_obsolete_move_holds_nothing() {
    for written in 1..6 {
        let disk = SimulatedDisk::new(1);
        let journal = manual_journal(Arc::new(disk.clone()), config(1 << 20), 3).unwrap();
        let mut owner = Owner::of(Arc::clone(&journal));
        owner.put(1, 700_000);
        for _ in 0..40 {
            owner.put(2, 200_000);
        }
        // The keeper has begun, and the committer has written some of its records.
        for _ in 0..written {
            while journal.run_keeper() {}
            journal.run_committer();
        }
        owner.store(|batch| batch.delete(&key(1)));
        for _ in 0..20 {
            owner.put(2, 200_000);
        }
        owner.store(|batch| batch.delete(&key(2)));
        let mut steps = 0;
        for _ in 0..500 {
            while journal.run_keeper() {
                steps += 1;
                assert!(steps < 5_000, "the keeper never comes to rest ({written} written)");
            }
            journal.run_committer();
        }
        let is_segment = |name: &String| name.starts_with("segment-") && name.ends_with(".log");
        let left = disk.files().keys().filter(|name| is_segment(name)).count();
        assert!(left <= 3, "{left} segments are left of nothing ({written} written)");
    }
}

/// Client data that resembles frame heads is not scanned repeatedly, regardless of its amount after
/// the end of the log.
#[test]
fn data_resembling_frames_does_not_slow_the_opening() {
    let disk = SimulatedDisk::new(1);
    let journal = manual_journal(Arc::new(disk.clone()), config(4 << 20), 1).unwrap();
    journal.close().unwrap();
    let mut files = disk.files();
    let newest = files.keys().filter(|name| name.starts_with("segment-")).max().unwrap().clone();
    let bytes = files.get_mut(&newest).unwrap();
    let length = u32::try_from(bytes.len() / 2).unwrap().to_le_bytes();
    for head in bytes[8_192..8_192 + (256 << 10)].chunks_exact_mut(8) {
        head[..4].copy_from_slice(b"PKf1");
        head[4..].copy_from_slice(&length);
    }
    let disk = SimulatedDisk::holding(&files, 2);
    manual_journal(Arc::new(disk.clone()), config(4 << 20), 2).unwrap().close().unwrap();
    let reads = disk.call_count_of(Call::Read);
    assert!(reads < 100, "{reads} reads to open an empty journal");
}

/// A panic of the committer's thread ends the journal: later callers and watchers get the error.
#[test]
fn a_panic_of_the_committer_is_reported() {
    let journal = Journal::open_on(Arc::new(SimulatedDisk::new(1)), config(1 << 20)).unwrap();
    let (sender, watched) = channel();
    journal.watch(Box::new(move |error| {
        sender.send(error.to_string()).ok();
    }));
    let mut owner = Owner::of(Arc::clone(&journal));
    let mut batch = Batch::default();
    batch.put(&key(1), |_| {});
    batch.require_sync();
    let id = BatchId(owner.next);
    owner.next += 1;
    journal.submit(
        Submission { id, fences: vec![owner.fence], batch: Arc::new(batch) },
        Box::new(|_| panic!("on purpose")),
    );
    assert!(watched.recv_timeout(PATIENCE).unwrap().contains("panicked"));
    let answer = owner.submit(|batch| batch.put(&key(2), |_| {}));
    assert_eq!(answer.recv_timeout(PATIENCE), Ok(false));
    assert!(block_on(journal.acquire(Shard(0))).is_err());
    assert!(journal.close().is_err());
}
