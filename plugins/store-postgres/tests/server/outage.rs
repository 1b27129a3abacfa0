//! The store and the end of its server, or of itself.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use peeklock_record::{Batch, Key};
use peeklock_store::{BatchId, Fence, Shard, Store, StoreError, Submission};
use peeklock_store_postgres::PostgresStore;
use peeklock_store_testing::{block_on, visit_records};

use crate::support::Server;

/// More than the longest pause between attempts and the start of a server.
const PATIENCE: Duration = Duration::from_secs(60);

fn submit(store: &Arc<PostgresStore>, fence: Fence, id: u64) -> Receiver<Result<(), StoreError>> {
    let mut batch = Batch::default();
    let key = Key::of_space(7).then(&[1]).then(&id.to_be_bytes());
    batch.put_with_content(&key, Bytes::from(id.to_be_bytes().repeat(50)), |value| value.push(1));
    batch.require_sync();
    let (sender, receiver) = channel();
    let submission = Submission { id: BatchId(id), fences: vec![fence], batch: Arc::new(batch) };
    store.submit(submission, Box::new(move |outcome| sender.send(outcome).unwrap()));
    receiver
}

fn count(store: &dyn Store) -> u64 {
    let mut count = 0;
    visit_records(store, &Key::of_space(7), |_, _| count += 1).unwrap();
    count
}

/// CLU-06, CLU-08: batches wait for a killed server, are repeated, and each is stored once.
#[test]
fn batches_are_stored_once_over_kills_of_the_server() {
    const ROUNDS: u64 = 5;
    const BATCHES: u64 = 200;
    let mut server = Server::start("kill");
    let config = server.empty_store();
    let store = PostgresStore::open(&config).unwrap();
    let (fence, BatchId(first)) = block_on(store.acquire(Shard(0))).unwrap();
    let mut next = first;
    for _ in 0..ROUNDS {
        let receivers: Vec<_> = (0..BATCHES).map(|at| submit(&store, fence, next + at)).collect();
        next += BATCHES;
        receivers[0].recv_timeout(PATIENCE).unwrap().unwrap();
        server.kill();
        server.restart();
        for receiver in &receivers[1..] {
            receiver.recv_timeout(PATIENCE).unwrap().unwrap();
        }
    }
    assert_eq!(count(&*store), ROUNDS * BATCHES);
    store.close().unwrap();
    drop(store);
    let store = PostgresStore::open(&config).unwrap();
    assert_eq!(count(&*store), ROUNDS * BATCHES);
    let (_, after) = block_on(store.acquire(Shard(0))).unwrap();
    assert_eq!(after, BatchId(next), "the order goes on");
}

/// CLU-07: a second broker is refused while the first one runs; after it, the first stores nothing.
#[test]
fn second_broker_is_refused_and_a_past_one_fenced() {
    let server = Server::start("two");
    let config = server.empty_store();
    let store = PostgresStore::open(&config).unwrap();
    let (fence, BatchId(first)) = block_on(store.acquire(Shard(0))).unwrap();
    submit(&store, fence, first).recv_timeout(PATIENCE).unwrap().unwrap();
    let refused = PostgresStore::open(&config).err().unwrap().to_string();
    assert!(refused.contains("another broker uses the database"), "{refused}");
    // Another owner comes although this one runs, as after a lost session.
    let schema = config.url.rsplit_once("search_path=").unwrap().1.trim_end_matches('\'');
    assert!(server.sql(&format!("UPDATE {schema}.shards SET epoch = epoch + 1, owner = 0")));
    let outcome = submit(&store, fence, first + 1).recv_timeout(PATIENCE).unwrap();
    assert!(matches!(outcome, Err(StoreError::Fenced { .. })), "{outcome:?}");
    assert!(matches!(block_on(store.acquire(Shard(0))), Err(StoreError::Fenced { .. })));
    assert_eq!(count(&*store), 1);
}
