//! The store of these tests, with switchable failures of appends and loads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use peeklock_core::content_ref::{ContentRef, StoredContent};
use peeklock_core::store::{
    Batch, BatchId, Completion, Expectation, Fence, Key, Records, Reserved, Shard, Store,
    StoreError, Submission, Waker,
};
use peeklock_store_testing::FaultStore;

/// A store whose fates the test decides, and that panics a given number of times when contents are
/// requested.
pub struct Panicky {
    pub inner: Arc<FaultStore>,
    pub panics: AtomicU32,
    /// Whether contents must be loaded, and how many loads fail.
    pub is_elsewhere: AtomicBool,
    pub damaged: Arc<AtomicU32>,
}

impl Panicky {
    pub fn over(inner: Arc<FaultStore>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            panics: AtomicU32::new(0),
            is_elsewhere: AtomicBool::new(false),
            damaged: Arc::default(),
        })
    }
}

/// A content that must be loaded.
struct Elsewhere {
    content: ContentRef,
    damaged: Arc<AtomicU32>,
}

fn takes(switch: &AtomicU32) -> bool {
    switch.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait::async_trait]
impl StoredContent for Elsewhere {
    fn length(&self) -> u64 {
        self.content.length()
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        tokio::task::yield_now().await;
        if takes(&self.damaged) {
            return Err(StoreError::Damaged("injected".into()));
        }
        self.content.load().await
    }
}

#[async_trait::async_trait]
impl Store for Panicky {
    fn name(&self) -> &'static str {
        "panicky"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn shard_count(&self) -> u16 {
        self.inner.shard_count()
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        self.inner.acquire(shard).await
    }

    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.inner.reserve(shard, bytes, waker)
    }

    fn unreserve(&self, shard: Shard, bytes: u64) {
        self.inner.unreserve(shard, bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        self.inner.submit(submission, completion);
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.inner.amend(expected, batch).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        assert!(!takes(&self.panics), "injected");
        self.inner.pin(keys, contents);
        if self.is_elsewhere.load(Ordering::SeqCst) {
            for content in contents.iter_mut().flatten() {
                let damaged = Arc::clone(&self.damaged);
                *content =
                    ContentRef::Stored(Arc::new(Elsewhere { content: content.clone(), damaged }));
            }
        }
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
