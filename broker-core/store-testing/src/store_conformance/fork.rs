//! Forks: both stores have the completed batches and then diverge. A store without forks passes.
//! `store_conformance.rs` runs the scenarios of this file.

use super::*;
use peeklock_store::Waker;

type Scenario = (&'static str, fn(&Subject<'_>));

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a fork has all completed records, with contents", fork_has_completed_batches),
    ("a store and its fork go their own ways", each_goes_its_own_way),
    ("a fork is owned and ordered by itself", fork_has_an_order_of_its_own),
    ("a fork takes as much as its store, with its content", fork_has_the_same_capacity),
];

fn fork_has_completed_batches(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put(&key(1, b"a"), b"one");
    owner.put_content(&key(1, b"b"), b"content");
    owner.put(&key(2, b"a"), b"other space");
    let mut batch = Batch::default();
    batch.delete_prefix(&key(2, b""));
    owner.store(batch);
    let Some(fork) = owner.store.fork() else { return };
    assert_eq!((fork.name(), fork.shard_count()), (owner.store.name(), owner.store.shard_count()));
    assert_eq!(fork.is_durable(), owner.store.is_durable());
    assert_eq!(value(&*fork, &key(1, b"a")), Some(b"one".to_vec()));
    assert_eq!(content(&*fork, &key(1, b"b")), Some(b"content".to_vec()));
    assert!(keys_of(&*fork, 2).is_empty(), "a dropped space is in no fork");
}

fn each_goes_its_own_way(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    for space in 1..4 {
        owner.put(&key(space, b"a"), b"one");
        owner.put_content(&key(space, b"b"), b"content");
    }
    let Some(fork) = owner.store.fork() else { return };
    let again = fork.fork();
    let mut other = Owner::of(fork, Shard(0));
    let mut batch = Batch::default();
    batch.delete(&key(1, b"a"));
    batch.delete_prefix(&key(2, b""));
    owner.store(batch);
    owner.put(&key(4, b"new"), b"here");
    other.put(&key(1, b"a"), b"two");
    other.put_content(&key(3, b"b"), b"changed");
    assert_eq!(keys_of(&*owner.store, 1), [b"b".to_vec()]);
    assert!(keys_of(&*owner.store, 2).is_empty());
    assert_eq!(content(&*owner.store, &key(3, b"b")), Some(b"content".to_vec()));
    assert_eq!(value(&*other.store, &key(1, b"a")), Some(b"two".to_vec()));
    assert_eq!(keys_of(&*other.store, 2), [b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(content(&*other.store, &key(3, b"b")), Some(b"changed".to_vec()));
    assert!(keys_of(&*other.store, 4).is_empty());
    // A fork of a fork keeps its state after both others are closed.
    drop((owner, other));
    let Some(again) = again else { unreachable!("a fork can be forked") };
    assert_eq!(value(&*again, &key(1, b"a")), Some(b"one".to_vec()));
    assert_eq!(content(&*again, &key(3, b"b")), Some(b"content".to_vec()));
}

fn fork_has_an_order_of_its_own(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put(&key(1, b"a"), b"one");
    let Some(fork) = owner.store.fork() else { return };
    let mut first = Owner::of(Arc::clone(&fork), Shard(0));
    first.put(&key(1, b"a"), b"two");
    let mut second = Owner::of(fork, Shard(0));
    let fenced = first.submit(Batch::default());
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    second.put(&key(1, b"a"), b"three");
    // No owner has acquired a shard of the store itself.
    owner.put(&key(1, b"b"), b"four");
    assert_eq!(value(&*owner.store, &key(1, b"a")), Some(b"one".to_vec()));
}

fn fork_has_the_same_capacity(subject: &Subject<'_>) {
    const ROOM: u64 = 4_000_000;
    let no_waker = || -> Waker { Box::new(|| {}) };
    let mut owner = Owner::of((subject.make)(ROOM), Shard(0));
    owner.put_content(&key(1, b"a"), &vec![7; 3_000_000]);
    // A reservation in the store does not exist in its fork.
    assert_eq!(owner.store.reserve(Shard(0), 900_000, &no_waker), Reserved::Granted);
    let Some(fork) = owner.store.fork() else { return };
    assert_ne!(fork.reserve(Shard(0), ROOM / 2, &no_waker), Reserved::Granted);
    assert_eq!(fork.reserve(Shard(0), 900_000, &no_waker), Reserved::Granted);
    fork.unreserve(Shard(0), 900_000);
    let mut other = Owner::of(fork, Shard(0));
    let mut batch = Batch::default();
    batch.delete_prefix(&key(1, b""));
    other.store(batch);
    assert_eq!(other.store.reserve(Shard(0), ROOM / 2, &no_waker), Reserved::Granted);
    assert_ne!(owner.store.reserve(Shard(0), ROOM / 2, &no_waker), Reserved::Granted);
}
