//! Calls of a store that end only when the driver of a test permits it, as on a slow medium.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use peeklock_store::content_ref::{ContentRef, StoredContent};
use peeklock_store::{RecordSlice, Records, StoreError};

/// Calls that wait for the driver, in the order of their start; none while calls are not held.
#[derive(Default)]
pub(super) struct HeldCalls(Mutex<Option<Vec<HeldCall>>>);

/// Ends a call with this result.
type HeldCall = oneshot::Sender<Result<(), StoreError>>;

/// A content that is not loaded.
struct HeldContent {
    bytes: Bytes,
    reads: Arc<HeldCalls>,
}

/// Records of a scan, of which each slice waits for the driver.
pub(super) struct HeldRecords<'s> {
    pub(super) calls: &'s HeldCalls,
    pub(super) records: Box<dyn Records + 's>,
}

impl HeldCalls {
    /// From now on, calls wait for the driver.
    pub(super) fn hold(&self) {
        self.lock().get_or_insert_default();
    }

    /// Number of waiting calls.
    pub(super) fn count(&self) -> usize {
        self.lock().as_ref().map_or(0, Vec::len)
    }

    /// Lets the call at this position end. Returns whether it exists and its caller still waits.
    pub(super) fn let_go(&self, place: usize) -> bool {
        self.end(place, Ok(()))
    }

    /// Ends the call at this position, which may fail. Returns whether it exists and its caller
    /// still waits.
    pub(super) fn end(&self, place: usize, result: Result<(), StoreError>) -> bool {
        let mut held = self.lock();
        let Some(waiting) = held.as_mut().filter(|waiting| place < waiting.len()) else {
            return false;
        };
        let release = waiting.remove(place);
        drop(held);
        release.send(result).is_ok()
    }

    /// Waits for the driver if calls are held.
    pub(super) async fn wait(&self) -> Result<(), StoreError> {
        let Some(released) = self.lock().as_mut().map(|waiting| {
            let (release, released) = oneshot::channel();
            waiting.push(release);
            released
        }) else {
            return Ok(());
        };
        released.await.unwrap_or_else(|_| Err(StoreError::Failed("the process has ended".into())))
    }

    /// Replaces a loaded content by a held one, if calls are held.
    pub(super) fn take(self: &Arc<Self>, content: &mut ContentRef) {
        if self.lock().is_none() {
            return;
        }
        let Some(bytes) = content.loaded().cloned() else { return };
        *content = ContentRef::Stored(Arc::new(HeldContent { bytes, reads: Arc::clone(self) }));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<HeldCall>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StoredContent for HeldContent {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        self.reads.wait().await?;
        Ok(self.bytes.clone())
    }
}

#[async_trait]
impl Records for HeldRecords<'_> {
    async fn next(&mut self, bytes: usize, slice: &mut RecordSlice) -> Result<(), StoreError> {
        self.calls.wait().await?;
        self.records.next(bytes, slice).await
    }
}
