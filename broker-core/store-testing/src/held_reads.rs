//! Contents as on a disk that answers when the driver of a test says so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use peeklock_store::StoreError;
use peeklock_store::content_ref::{ContentRef, StoredContent};

/// Reads that wait for the driver, in the order in which they were begun; none while contents are at hand.
#[derive(Default)]
pub(super) struct HeldReads(Mutex<Option<Vec<oneshot::Sender<()>>>>);

/// A content that is not at hand.
struct Held {
    bytes: Bytes,
    reads: Arc<HeldReads>,
}

impl HeldReads {
    /// From now on what is pinned is not at hand.
    pub(super) fn hold(&self) {
        self.lock().get_or_insert_default();
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.lock().as_ref().map_or(0, Vec::len)
    }

    /// Lets the one at this place end. Returns whether there was one, and somebody awaits it.
    pub(super) fn let_go(&self, place: usize) -> bool {
        let mut held = self.lock();
        let Some(waiting) = held.as_mut().filter(|waiting| place < waiting.len()) else {
            return false;
        };
        let tell = waiting.remove(place);
        drop(held);
        tell.send(()).is_ok()
    }

    /// Takes a content from at hand, if that is wanted.
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
        let (tell, told) = oneshot::channel();
        self.reads.lock().get_or_insert_default().push(tell);
        told.await.map_err(|_| StoreError::Gone)?;
        Ok(self.bytes.clone())
    }
}
