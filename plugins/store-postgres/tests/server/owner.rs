//! The owner of a shard, which submits batches.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use peeklock_record::{Batch, Key};
use peeklock_store::{BatchId, Fence, Shard, Store, StoreError, Submission};
use peeklock_store_postgres::PostgresStore;
use peeklock_store_testing::{block_on, visit_records};

/// More than the longest pause between attempts and the start of a server.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Outcome = Result<(), StoreError>;

pub struct Owner {
    pub store: Arc<PostgresStore>,
    pub fence: Fence,
    pub next: u64,
}

impl Owner {
    pub fn of(store: &Arc<PostgresStore>, shard: u16) -> Self {
        let (fence, BatchId(next)) = block_on(store.acquire(Shard(shard))).unwrap();
        Self { store: Arc::clone(store), fence, next }
    }

    /// Submits the next batch. The receiver gets its outcome.
    pub fn send(&mut self, mut batch: Batch) -> Receiver<Outcome> {
        batch.require_sync();
        let (sender, receiver) = channel();
        let (id, fences) = (BatchId(self.next), vec![self.fence]);
        self.next += 1;
        let submission = Submission { id, fences, batch: Arc::new(batch) };
        // A test that has failed meanwhile has dropped the receiver.
        let completion = Box::new(move |outcome| drop(sender.send(outcome)));
        self.store.submit(submission, completion);
        receiver
    }

    /// Submits the next batch, and waits until it is stored.
    pub fn store(&mut self, batch: Batch) {
        outcome(&self.send(batch)).unwrap();
    }

    pub fn put(&mut self, key: &Key, content: &[u8]) {
        self.store(put(key, content));
    }
}

/// A batch with one record.
pub fn put(key: &Key, content: &[u8]) -> Batch {
    let mut batch = Batch::default();
    batch.put_with_content(key, Bytes::copy_from_slice(content), |value| value.push(1));
    batch
}

pub fn outcome(receiver: &Receiver<Outcome>) -> Outcome {
    receiver.recv_timeout(PATIENCE).unwrap()
}

pub fn key(space: u64, number: u64) -> Key {
    Key::of_space(space).then(&[1]).then(&number.to_be_bytes())
}

/// Number of records of a space.
pub fn count(store: &dyn Store, space: u64) -> Result<u64, StoreError> {
    let mut count = 0;
    visit_records(store, &Key::of_space(space), |_, _| count += 1)?;
    Ok(count)
}

pub fn exists(store: &dyn Store, key: &Key) -> bool {
    block_on(store.exists(&[*key])).unwrap()[0]
}

/// The content of a record.
pub fn content(store: &dyn Store, key: &Key) -> Option<Vec<u8>> {
    let mut contents = Vec::new();
    store.pin(&[*key], &mut contents);
    contents.pop().unwrap().map(|content| block_on(content.load()).unwrap().to_vec())
}
