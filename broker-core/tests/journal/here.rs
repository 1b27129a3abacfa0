//! A submitter commits its own batch (decision 46).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use peeklock_core::store::journal::{Journal, JournalConfig};
use peeklock_core::store::{Batch, BatchId, Fence, Key, Shard, Store, StoreError, Submission};
use peeklock_store_testing::{Call, Fault, SimulatedDisk, block_on, manual_journal};

/// Maximum time for the mark after a quiet second.
const PATIENCE: Duration = Duration::from_secs(30);

fn config() -> JournalConfig {
    JournalConfig { free_bytes_min: 0, shard_count: 1, ..JournalConfig::default() }
}

/// Id and outcome of a batch.
type Outcome = (u64, Result<(), StoreError>);

/// The owner of the only shard.
struct Owner {
    journal: Arc<Journal>,
    fence: Fence,
    next: BatchId,
    outcomes: Receiver<Outcome>,
    sender: Sender<Outcome>,
}

impl Owner {
    fn of(journal: Arc<Journal>) -> Self {
        let (fence, next) = block_on(journal.acquire(Shard(0))).unwrap();
        let (sender, outcomes) = channel();
        Self { journal, fence, next, outcomes, sender }
    }

    fn submit(&mut self) {
        let mut batch = Batch::default();
        batch.put(&Key::of_space(1).then(b"a"), |value| value.push(1));
        batch.require_sync();
        let (id, sender) = (self.next, self.sender.clone());
        self.next = BatchId(id.0 + 1);
        let submission = Submission { id, fences: vec![self.fence], batch: Arc::new(batch) };
        let completion = Box::new(move |outcome| sender.send((id.0, outcome)).unwrap_or_default());
        self.journal.submit(submission, completion);
    }

    fn commit_here(&mut self) -> bool {
        let journal = Arc::clone(&self.journal);
        journal.commit_here(&mut || self.submit())
    }

    /// Ids of the batches that were stored since the last call.
    fn stored(&self) -> Vec<u64> {
        self.outcomes.try_iter().map(|(id, outcome)| outcome.map(|()| id).unwrap()).collect()
    }
}

/// FND-02: the batch is durable when the call returns, without the committer's thread.
#[test]
fn submitter_commits_its_batch_if_the_committer_is_idle() {
    let disk = SimulatedDisk::new(1);
    let mut owner = Owner::of(manual_journal(Arc::new(disk.clone()), config(), 3).unwrap());
    let (first, syncs) = (owner.next.0, disk.call_count_of(Call::Sync));
    assert!(owner.commit_here() && owner.commit_here());
    assert_eq!(owner.stored(), [first, first + 1]);
    assert_eq!(disk.call_count_of(Call::Sync), syncs + 2);
}

/// DESIGN D11: a batch after waiting ones is left to the committer, so that the order holds.
#[test]
fn submitter_leaves_its_batch_to_a_busy_committer() {
    let disk = SimulatedDisk::new(1);
    let mut owner = Owner::of(manual_journal(Arc::new(disk), config(), 3).unwrap());
    let first = owner.next.0;
    owner.submit();
    assert!(!owner.commit_here());
    assert_eq!(owner.stored(), [0; 0]);
    owner.journal.run_committer();
    assert_eq!(owner.stored(), [first, first + 1]);
    assert!(owner.commit_here(), "the committer is idle again");
}

/// FND-02, DESIGN D12: a failed write or sync of a submitter ends the journal. Nothing is
/// acknowledged, and nothing is written or synced again.
#[test]
fn failed_write_of_a_submitter_ends_the_journal() {
    for call in [Call::Write, Call::Sync] {
        for fault in [Fault::Whole, Fault::Partly, Fault::Done] {
            let disk = SimulatedDisk::new(1);
            let mut owner = Owner::of(manual_journal(Arc::new(disk.clone()), config(), 3).unwrap());
            let (sender, ended) = channel();
            owner.journal.watch(Box::new(move |error| sender.send(error.clone()).unwrap()));
            disk.fail(call, 1, fault);
            assert!(owner.commit_here());
            let (_, outcome) = owner.outcomes.try_recv().unwrap();
            assert!(matches!(outcome, Err(StoreError::Failed(_))), "{outcome:?}");
            assert!(matches!(ended.try_recv(), Ok(StoreError::Failed(_))));
            let calls = [Call::Write, Call::Sync].map(|call| disk.call_count_of(call));
            assert!(!owner.commit_here(), "an ended journal commits nothing");
            let (_, outcome) = owner.outcomes.try_recv().unwrap();
            assert!(matches!(outcome, Err(StoreError::Failed(_))), "{outcome:?}");
            assert!(owner.journal.close().is_err());
            assert_eq!([Call::Write, Call::Sync].map(|call| disk.call_count_of(call)), calls);
        }
    }
}

/// DESIGN D12: after a quiet second, the committer's thread writes a mark behind batches that it
/// did not write itself.
#[test]
fn mark_follows_batches_of_submitters() {
    let disk = SimulatedDisk::new(1);
    let mut owner = Owner::of(Journal::open_on(Arc::new(disk.clone()), config()).unwrap());
    let begun = Instant::now();
    while !owner.commit_here() {
        owner.outcomes.recv_timeout(PATIENCE).unwrap().1.unwrap();
        assert!(begun.elapsed() < PATIENCE, "the committer is never idle");
    }
    let writes = disk.call_count_of(Call::Write);
    while disk.call_count_of(Call::Write) == writes {
        assert!(begun.elapsed() < PATIENCE, "no mark was written");
        std::thread::yield_now();
    }
}
