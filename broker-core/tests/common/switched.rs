//! The memory store with switchable faults, for tests of a broker whose store fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use peeklock_core::content_ref::ContentRef;
use peeklock_core::store::{
    Batch, BatchId, Completion, Expectation, Fence, Key, MemoryStore, Records, Reserved, Shard,
    Store, StoreError, Submission, Waker,
};

/// A memory store in which each switch counts how often its fault still happens.
pub struct Switched {
    inner: MemoryStore,
    pub panics: AtomicU32,
    pub failures: AtomicU32,
    /// Number of submissions before the first failure.
    pub failures_after: AtomicU32,
    pub unknown_landed: AtomicU32,
    pub unknown_lost: AtomicU32,
    pub busy: AtomicU32,
    pub takes_no_waker: AtomicU32,
    pub refuses_ownership: AtomicU32,
    broken: Mutex<Vec<Shard>>,
    wakers: Mutex<Vec<Waker>>,
}

impl Switched {
    pub fn new(shard_count: u16) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(shard_count, u64::MAX),
            panics: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            failures_after: AtomicU32::new(0),
            unknown_landed: AtomicU32::new(0),
            unknown_lost: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            takes_no_waker: AtomicU32::new(0),
            refuses_ownership: AtomicU32::new(0),
            broken: Mutex::default(),
            wakers: Mutex::default(),
        })
    }

    /// Waits until a caller waits for room.
    pub async fn refused(&self) {
        while self.wakers.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Makes room and wakes waiting callers.
    pub fn make_room(&self) {
        self.busy.store(0, Ordering::SeqCst);
        for wake in std::mem::take(&mut *self.wakers.lock().unwrap()) {
            wake();
        }
    }
}

fn takes(switch: &AtomicU32) -> bool {
    switch.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait::async_trait]
impl Store for Switched {
    fn name(&self) -> &'static str {
        "switched"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn shard_count(&self) -> u16 {
        self.inner.shard_count()
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        if takes(&self.refuses_ownership) {
            return Err(StoreError::Failed("the disk is gone".into()));
        }
        self.broken.lock().unwrap().retain(|broken| *broken != shard);
        self.inner.acquire(shard).await
    }

    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        if takes(&self.busy) {
            if !takes(&self.takes_no_waker) {
                self.wakers.lock().unwrap().push(waker());
            }
            return Reserved::Busy;
        }
        self.inner.reserve(shard, bytes, waker)
    }

    fn unreserve(&self, shard: Shard, bytes: u64) {
        self.inner.unreserve(shard, bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        let shard = submission.fences[0].shard;
        let mut broken = self.broken.lock().unwrap();
        let fails = !takes(&self.failures_after) && takes(&self.failures);
        if broken.contains(&shard) || fails {
            if !broken.contains(&shard) {
                broken.push(shard);
            }
            drop(broken);
            self.inner.unreserve(shard, submission.batch.reserved());
            completion(Err(StoreError::Failed("injected".into())));
            return;
        }
        drop(broken);
        if takes(&self.unknown_lost) {
            completion(Err(StoreError::Unknown));
            return;
        }
        if takes(&self.unknown_landed) {
            let batch = Arc::new(submission.batch.without_reservation());
            self.inner.submit(Submission { batch, ..submission }, Box::new(|_| {}));
            completion(Err(StoreError::Unknown));
            return;
        }
        self.inner.submit(submission, completion);
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.inner.amend(expected, batch).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        assert!(!takes(&self.panics), "injected");
        self.inner.pin(keys, contents);
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        self.inner.scan(prefix)
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.inner.exists(keys).await
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
