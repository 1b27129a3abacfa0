//! The requirements of every store as named scenarios: a memory store, a journal and a database
//! pass the same ones (DESIGN D11).
//!
//! A scenario panics if a store breaks the contract of [`Store`].

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::{block_on, visit_records};
use peeklock_store::content_ref::ContentRef;
use peeklock_store::{
    Batch, BatchId, Expectation, Fence, KEY_BYTES_MAX, Key, RecordSlice, Reserved, Shard, Store,
    StoreError, Submission,
};

mod amend;
mod brokers;
mod content;
mod fork;
mod order;
mod records;
mod room;

pub use brokers::Brokers;

/// Maximum time of a store for one batch.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes an empty store of this capacity in bytes.
pub type Make<'a> = &'a dyn Fn(u64) -> Arc<dyn Store>;
/// Closes a store and opens it again with its data.
pub type Reopen<'a> = &'a dyn Fn(Arc<dyn Store>) -> Arc<dyn Store>;
/// Joins two brokers over an empty store.
pub type Join<'a> = &'a dyn Fn() -> Brokers<'a>;

/// One requirement of a store.
pub struct Scenario {
    /// The requirement as a sentence.
    pub name: &'static str,
    run: fn(&Subject<'_>),
}

/// The store under test.
pub struct Subject<'a> {
    make: Make<'a>,
    reopen: Option<Reopen<'a>>,
}

/// All scenarios.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    let files = [
        records::SCENARIOS,
        content::SCENARIOS,
        order::SCENARIOS,
        amend::SCENARIOS,
        room::SCENARIOS,
        fork::SCENARIOS,
    ];
    let scenarios = files.into_iter().flatten();
    scenarios.map(|(name, run)| Scenario { name, run: *run }).collect()
}

/// Runs all scenarios, each on its own store, and if stores survive a restart again after
/// reopening. Returns the names of the failed scenarios.
#[must_use]
pub fn failures(make: Make<'_>, reopen: Option<Reopen<'_>>) -> Vec<&'static str> {
    let subject = Subject { make, reopen };
    let scenarios = scenarios().into_iter();
    scenarios
        .filter(|scenario| panics(|| (scenario.run)(&subject)))
        .map(|scenario| scenario.name)
        .collect()
}

/// Runs the scenarios of several brokers, each on its own store. Returns the names of the failed
/// ones.
#[must_use]
pub fn failures_of_brokers(join: Join<'_>) -> Vec<&'static str> {
    let scenarios = brokers::SCENARIOS.iter();
    scenarios.filter(|(_, run)| panics(|| run(&join()))).map(|(name, _)| *name).collect()
}

fn panics(run: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
}

impl Subject<'_> {
    fn store(&self) -> Arc<dyn Store> {
        (self.make)(u64::MAX)
    }

    fn owner(&self) -> Owner {
        Owner::of(self.store(), Shard(0))
    }

    /// Runs a check, and again after reopening.
    fn check_twice(&self, owner: Owner, check: impl Fn(&dyn Store)) {
        check(&*owner.store);
        if let Some(reopen) = self.reopen {
            let shard = owner.fence.shard;
            let store = reopen(owner.store);
            check(&*store);
            // The order continues after the last batch.
            let mut owner = Owner::of(store, shard);
            owner.put(&key(999, b"after"), b"reopening");
            assert_eq!(value(&*owner.store, &key(999, b"after")), Some(b"reopening".to_vec()));
        }
    }
}

type Outcome = Result<(), StoreError>;

/// The owner of a shard, which submits batches.
struct Owner {
    store: Arc<dyn Store>,
    fence: Fence,
    next: BatchId,
}

impl Owner {
    fn of(store: Arc<dyn Store>, shard: Shard) -> Self {
        let (fence, next) = block_on(store.acquire(shard)).unwrap_or_else(|error| {
            unreachable!("a shard can be acquired: {error}");
        });
        assert_eq!(fence.shard, shard, "the fence is for the shard");
        Self { store, fence, next }
    }

    fn send(&self, id: BatchId, fences: Vec<Fence>, batch: Arc<Batch>) -> Receiver<Outcome> {
        let (sender, receiver) = channel();
        let completion = Box::new(move |outcome| note(&sender, outcome));
        self.store.submit(Submission { id, fences, batch }, completion);
        receiver
    }

    /// Submits the next batch and waits for its outcome.
    fn submit(&mut self, batch: Batch) -> Outcome {
        let receiver = self.send(self.next, vec![self.fence], Arc::new(batch));
        self.next = BatchId(self.next.0 + 1);
        outcome_of(&receiver)
    }

    fn store(&mut self, batch: Batch) {
        let outcome = self.submit(batch);
        assert!(outcome.is_ok(), "a legal batch is stored: {outcome:?}");
    }

    fn put(&mut self, key: &Key, value: &[u8]) {
        let mut batch = Batch::default();
        batch.put(key, |to| to.extend_from_slice(value));
        self.store(batch);
    }

    fn put_content(&mut self, key: &Key, content: &[u8]) {
        let mut batch = Batch::default();
        batch.put_with_content(key, Bytes::copy_from_slice(content), |_| {});
        self.store(batch);
    }
}

fn note(sender: &Sender<Outcome>, outcome: Outcome) {
    // A test that has failed meanwhile has dropped the receiver.
    sender.send(outcome).ok();
}

fn outcome_of(receiver: &Receiver<Outcome>) -> Outcome {
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        unreachable!("a completion is called exactly once, in time");
    })
}

fn key(space: u64, rest: &[u8]) -> Key {
    Key::of_space(space).then(rest)
}

fn contents_of(store: &dyn Store, keys: &[Key]) -> Vec<Option<ContentRef>> {
    let mut contents = Vec::new();
    store.pin(keys, &mut contents);
    assert_eq!(contents.len(), keys.len(), "a pin answers for every key");
    contents
}

/// Reads pinned content on this thread.
fn load(content: &ContentRef) -> Vec<u8> {
    read(content.load())
}

/// Reads a range of pinned content on this thread.
fn load_range(content: &ContentRef, from: u64, length: u64) -> Vec<u8> {
    read(content.load_range(from, length))
}

fn read(loading: impl Future<Output = Result<Bytes, StoreError>>) -> Vec<u8> {
    match block_on(loading) {
        Ok(bytes) => bytes.to_vec(),
        Err(error) => unreachable!("pinned content can be read: {error}"),
    }
}

fn content(store: &dyn Store, key: &Key) -> Option<Vec<u8>> {
    contents_of(store, &[*key]).pop().flatten().as_ref().map(load)
}

fn exists(store: &dyn Store, keys: &[Key]) -> Vec<bool> {
    match block_on(store.exists(keys)) {
        Ok(found) => found,
        Err(error) => unreachable!("a store can be asked: {error}"),
    }
}

/// All records under a prefix; asserts that they are in ascending order.
fn scan(store: &dyn Store, prefix: &Key) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let note = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
    let scanned = visit_records(store, prefix, note);
    assert!(scanned.is_ok(), "a store can be scanned: {scanned:?}");
    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "a scan ascends by key");
    let is_in = |(key, _): &(Vec<u8>, Vec<u8>)| key.starts_with(prefix.as_bytes());
    assert!(found.iter().all(is_in), "a scan stays in its prefix");
    found
}

fn keys_of(store: &dyn Store, space: u64) -> Vec<Vec<u8>> {
    let prefix = Key::of_space(space);
    scan(store, &prefix)
        .into_iter()
        .map(|(key, _)| key.get(peeklock_store::SPACE_BYTES..).unwrap_or_default().to_vec())
        .collect()
}

fn value(store: &dyn Store, key: &Key) -> Option<Vec<u8>> {
    scan(store, key).into_iter().find(|(found, _)| found == key.as_bytes()).map(|(_, value)| value)
}
