//! Reservations: reserved bytes are released once, and refused callers are woken.
//! `store_conformance.rs` runs the scenarios of this file.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use peeklock_store::Waker;

type Scenario = (&'static str, fn(&Subject<'_>));

pub(super) const SCENARIOS: &[Scenario] = &[
    ("room that was granted is given back by hand", given_back_by_hand),
    ("room that was granted is given back by the batch, once", given_back_by_batch),
    ("a fenced batch gives its room back", given_back_by_fenced_batch),
    ("stored data takes room, deleted data frees it", stored_bytes_take_room),
    ("a refused writer is woken when room was given back", refused_is_woken),
    ("a waker is asked for only with a refusal", waker_only_with_refusal),
];

const ROOM: u64 = 4_000_000;

fn small(subject: &Subject<'_>) -> Owner {
    Owner::of((subject.make)(ROOM), Shard(0))
}

fn no_waker() -> Waker {
    Box::new(|| {})
}

/// Whether `bytes` bytes would be granted; releases them at once.
fn has_room(store: &dyn Store, bytes: u64) -> bool {
    let granted = store.reserve(Shard(0), bytes, &no_waker) == Reserved::Granted;
    if granted {
        store.unreserve(Shard(0), bytes);
    }
    granted
}

fn given_back_by_hand(subject: &Subject<'_>) {
    let owner = small(subject);
    for _ in 0..50 {
        assert_eq!(owner.store.reserve(Shard(0), ROOM / 2, &no_waker), Reserved::Granted);
        assert!(!has_room(&*owner.store, ROOM), "granted room is reserved");
        owner.store.unreserve(Shard(0), ROOM / 2);
    }
    assert!(has_room(&*owner.store, ROOM / 2));
}

fn given_back_by_batch(subject: &Subject<'_>) {
    let mut owner = small(subject);
    for number in 0..50u8 {
        assert_eq!(owner.store.reserve(Shard(0), ROOM / 2, &no_waker), Reserved::Granted);
        let mut batch = Batch::default();
        batch.put(&key(1, b"a"), |to| to.push(number));
        batch.carry_reservation(ROOM / 4);
        batch.carry_reservation(ROOM / 4);
        let id = owner.next;
        let batch = Arc::new(batch);
        assert!(outcome_of(&owner.send(id, vec![owner.fence], Arc::clone(&batch))).is_ok());
        // A repetition releases nothing: the free room stays the same.
        assert!(outcome_of(&owner.send(id, vec![owner.fence], batch)).is_ok());
        owner.next = BatchId(id.0 + 1);
        assert!(!has_room(&*owner.store, ROOM + ROOM / 4), "room was given back twice");
    }
    assert!(has_room(&*owner.store, ROOM / 2), "room was not given back");
}

fn given_back_by_fenced_batch(subject: &Subject<'_>) {
    let mut past = small(subject);
    let _present = Owner::of(Arc::clone(&past.store), Shard(0));
    for _ in 0..10 {
        assert_eq!(past.store.reserve(Shard(0), ROOM / 2, &no_waker), Reserved::Granted);
        let mut batch = Batch::default();
        batch.put(&key(1, b"late"), |to| to.push(1));
        batch.carry_reservation(ROOM / 2);
        assert!(past.submit(batch).is_err());
    }
    assert!(has_room(&*past.store, ROOM / 2));
}

fn stored_bytes_take_room(subject: &Subject<'_>) {
    let mut owner = small(subject);
    owner.put_content(&key(1, b"a"), &vec![1; 2_500_000]);
    assert!(!has_room(&*owner.store, 2_500_000), "stored data takes room");
    let mut batch = Batch::default();
    batch.put_content_of(&key(1, b"b"), &key(1, b"a"), |_| {});
    batch.delete(&key(1, b"a"));
    owner.store(batch);
    let mut batch = Batch::default();
    batch.delete(&key(1, b"b"));
    owner.store(batch);
    // A store may need further batches until it has freed deleted records.
    for _ in 0..100 {
        if has_room(&*owner.store, 1_500_000) {
            return;
        }
        owner.put(&key(2, b"x"), b"y");
        std::thread::sleep(Duration::from_millis(20));
    }
    unreachable!("deleted data never freed its room");
}

fn refused_is_woken(subject: &Subject<'_>) {
    let owner = small(subject);
    let woken = Arc::new(AtomicU32::new(0));
    assert_eq!(owner.store.reserve(Shard(0), ROOM - 100_000, &no_waker), Reserved::Granted);
    let counter = Arc::clone(&woken);
    let refused = owner.store.reserve(Shard(0), ROOM / 2, &|| {
        let counter = Arc::clone(&counter);
        Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        })
    });
    assert!(matches!(refused, Reserved::Busy | Reserved::Full), "there is no room");
    assert_eq!(woken.load(Ordering::SeqCst), 0, "nothing has changed yet");
    owner.store.unreserve(Shard(0), ROOM - 100_000);
    for _ in 0..500 {
        if woken.load(Ordering::SeqCst) > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(has_room(&*owner.store, ROOM / 2));
    assert_eq!(woken.load(Ordering::SeqCst), 1, "a waker is called once");
}

fn waker_only_with_refusal(subject: &Subject<'_>) {
    let owner = small(subject);
    let granted = owner.store.reserve(Shard(0), 1_000, &|| unreachable!("nobody is refused"));
    assert_eq!(granted, Reserved::Granted);
    owner.store.unreserve(Shard(0), 1_000);
}
