//! Contents whose reads complete only when the driver of a test permits it, as on a slow disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use peeklock_store::StoreError;
use peeklock_store::content_ref::{ContentRef, StoredContent};

/// Reads that wait for the driver, in the order of their start; none while contents are loaded.
#[derive(Default)]
pub(super) struct HeldReads(Mutex<Option<Vec<oneshot::Sender<()>>>>);

/// A content that is not loaded.
struct Held {
    bytes: Bytes,
    reads: Arc<HeldReads>,
}

impl HeldReads {
    /// From now on, pinned contents are not loaded.
    pub(super) fn hold(&self) {
        self.lock().get_or_insert_default();
    }

    /// Number of waiting reads.
    pub(super) fn count(&self) -> usize {
        self.lock().as_ref().map_or(0, Vec::len)
    }

    /// Lets the read at this position finish. Returns whether it exists and its caller still waits.
    pub(super) fn let_go(&self, place: usize) -> bool {
        let mut held = self.lock();
        let Some(waiting) = held.as_mut().filter(|waiting| place < waiting.len()) else {
            return false;
        };
        let release = waiting.remove(place);
        drop(held);
        release.send(()).is_ok()
    }

    /// Replaces a loaded content by a held one, if reads are held.
    pub(super) fn take(self: &Arc<Self>, content: &mut ContentRef) {
        if self.lock().is_none() {
            return;
        }
        let Some(bytes) = content.loaded().cloned() else { return };
        *content = ContentRef::Stored(Arc::new(Held { bytes, reads: Arc::clone(self) }));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<oneshot::Sender<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StoredContent for Held {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        let (release, released) = oneshot::channel();
        self.reads.lock().get_or_insert_default().push(release);
        released.await.map_err(|_| StoreError::Gone)?;
        Ok(self.bytes.clone())
    }
}
