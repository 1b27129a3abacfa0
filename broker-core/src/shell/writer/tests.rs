//! Tests of a writer against the order in which a store completes its batches.

use std::sync::atomic::{AtomicBool, Ordering};

use peeklock_store_testing::block_on;

use super::*;
use crate::content_ref::ContentRef;
use crate::store::{Expectation, Key, Records, Reserved, Waker};
use crate::transfer::claim::TransferClaims;

/// A store whose test completes batches in any order.
#[derive(Default)]
struct ByHand(Mutex<Vec<(BatchId, Completion)>>);

#[async_trait::async_trait]
impl Store for ByHand {
    fn name(&self) -> &'static str {
        "by hand"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn shard_count(&self) -> u16 {
        1
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        Ok((Fence { shard, epoch: 1 }, BatchId(1)))
    }

    fn reserve(&self, _: Shard, _: u64, _: &dyn Fn() -> Waker) -> Reserved {
        Reserved::Granted
    }

    fn unreserve(&self, _: Shard, _: u64) {}

    fn submit(&self, submission: Submission, completion: Completion) {
        lock(&self.0).push((submission.id, completion));
    }

    async fn amend(&self, _: &[Expectation], _: Batch) -> Result<bool, StoreError> {
        unreachable!("a writer amends nothing")
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        contents.extend(keys.iter().map(|_| None));
    }

    fn scan(&self, _: &Key) -> Box<dyn Records + '_> {
        unreachable!("a writer reads no records")
    }

    async fn exists(&self, _: &[Key]) -> Result<Vec<bool>, StoreError> {
        unreachable!("a writer asks for no records")
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

struct World {
    store: Arc<ByHand>,
    writer: Arc<ShardWriter>,
    /// Reported results, by number of the batch; `false` for a failure.
    told: Arc<Mutex<Vec<(u64, bool)>>>,
}

impl World {
    fn with_batches(count: u64) -> Self {
        let store = Arc::new(ByHand::default());
        let given = Arc::clone(&store) as Arc<dyn Store>;
        let writer = block_on(ShardWriter::acquire(given, Shard(0), Box::new(|_| {}))).unwrap();
        let told: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
        for number in 1..=count {
            let told = Arc::clone(&told);
            let note = move |result: Result<(), StoreError>| {
                lock(&told).push((number, result.is_ok()));
            };
            writer.submit(Batch::default(), Box::new(note));
        }
        Self { store, writer, told }
    }

    /// Completes the oldest submission of a batch.
    fn complete(&self, number: u64, result: Result<(), StoreError>) {
        let mut given = lock(&self.store.0);
        let place = given.iter().position(|(id, _)| id.0 == number).unwrap();
        let (_, completion) = given.remove(place);
        drop(given);
        completion(result);
    }

    fn told(&self) -> Vec<(u64, bool)> {
        lock(&self.told).clone()
    }
}

/// DESIGN D5: a batch is answered when all earlier ones are durable too. A store that violates the
/// order gets no more batches.
#[test]
fn a_batch_completed_before_an_earlier_one_fails_the_shard() {
    let world = World::with_batches(3);
    world.complete(2, Ok(()));
    assert_eq!(world.told(), [(1, false), (2, false), (3, false)]);
    world.complete(1, Ok(()));
    world.complete(3, Ok(()));
    assert_eq!(world.told().len(), 3, "each is told once");
    world.writer.submit(Batch::default(), Box::new(|result| assert!(result.is_err())));
    assert!(lock(&world.store.0).is_empty(), "nothing more is submitted under this epoch");
}

/// DESIGN D11: batches after one of unknown outcome may be durable. They are submitted again, and
/// results of their first submission are ignored.
#[test]
fn batches_after_unknown_outcome_wait_for_resubmission() {
    let world = World::with_batches(3);
    world.complete(1, Err(StoreError::Unknown));
    world.complete(2, Ok(()));
    assert_eq!(world.told(), []);
    world.writer.resubmit();
    // Result of the first submission.
    world.complete(3, Ok(()));
    assert_eq!(world.told(), []);
    for number in 1..=3 {
        world.complete(number, Ok(()));
    }
    assert_eq!(world.told(), [(1, true), (2, true), (3, true)]);
}

/// FND-03: a failed batch may be stored until another owner has its shard, so its transfer counts
/// as on its way until then. The transfer of a stored batch has ended.
#[test]
fn guard_of_failed_batch_is_held_until_shard_is_acquired_again() {
    let world = World::with_batches(0);
    let claims = Arc::new(TransferClaims::default());
    for number in 1..=2 {
        let guard = claims.open(Box::new(|_| {})).take_guard().unwrap();
        world.writer.submit_after(None, Batch::default(), vec![guard], Box::new(|_| {}));
        world.complete(number, if number == 1 { Ok(()) } else { Err(StoreError::Unknown) });
    }
    world.writer.resubmit();
    world.complete(2, Err(StoreError::Unknown));
    let is_clear = Arc::new(AtomicBool::new(false));
    let clear = Arc::clone(&is_clear);
    claims.close(Box::new(move || clear.store(true, Ordering::Relaxed)));
    assert!(!is_clear.load(Ordering::Relaxed), "what failed may land");
    block_on(world.writer.recover()).unwrap();
    assert!(is_clear.load(Ordering::Relaxed));
}
