//! Order, atomicity, repetition and fencing of batches. `store_conformance.rs` runs the scenarios
//! of this file.

use super::*;

type Scenario = (&'static str, fn(&Subject<'_>));

pub(super) const SCENARIOS: &[Scenario] = &[
    ("batches of a shard complete in their order", completion_order),
    ("a shard's order does not wait for another shard", shards_are_independent),
    ("a repeated id repeats the answer and changes nothing", repetition),
    ("an id out of order is refused and stores nothing", out_of_order),
    ("a past owner is fenced and stores nothing", fencing),
    ("a new owner goes on behind the last batch stored", acquire_goes_on),
    ("a batch over spaces and shards is stored whole or not at all", atomic_over_shards),
    ("batches of many threads and shards all land", many_threads),
    ("a batch committed here is submitted once and completes in order", commit_here),
    ("a past owner is fenced when it commits here", fencing_here),
    ("batches committed here by many threads all land", many_threads_here),
];

fn completion_order(subject: &Subject<'_>) {
    let owner = subject.owner();
    let order: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (sender, receiver) = channel();
    for number in 0..200u64 {
        let mut batch = Batch::default();
        batch.put(&key(1, b"a"), |to| to.extend_from_slice(&number.to_be_bytes()));
        if number % 3 == 0 {
            batch.require_sync();
        }
        let (order, sender) = (Arc::clone(&order), sender.clone());
        let completion = Box::new(move |outcome: Outcome| {
            order.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            note(&sender, outcome);
        });
        let id = BatchId(owner.next.0 + number);
        let submission = Submission { id, fences: vec![owner.fence], batch: Arc::new(batch) };
        owner.store.submit(submission, completion);
    }
    for _ in 0..200 {
        assert!(outcome_of(&receiver).is_ok());
    }
    let order = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(order, (0..200).collect::<Vec<_>>());
    subject.check_twice(owner, |store| {
        assert_eq!(value(store, &key(1, b"a")), Some(199u64.to_be_bytes().to_vec()));
    });
}

fn shards_are_independent(subject: &Subject<'_>) {
    let store = subject.store();
    if store.shard_count() < 2 {
        return;
    }
    let mut first = Owner::of(Arc::clone(&store), Shard(0));
    let mut second = Owner::of(store, Shard(1));
    for number in 0..10u8 {
        first.put(&key(1, &[number]), b"x");
        if number % 2 == 0 {
            second.put(&key(2, &[number]), b"y");
        }
    }
    subject.check_twice(first, |store| {
        assert_eq!(keys_of(store, 1).len(), 10);
        assert_eq!(keys_of(store, 2).len(), 5);
    });
}

fn repetition(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let id = owner.next;
    let mut batch = Batch::default();
    batch.put(&key(1, b"a"), |to| to.push(1));
    let batch = Arc::new(batch);
    let first = owner.send(id, vec![owner.fence], Arc::clone(&batch));
    assert!(outcome_of(&first).is_ok());
    owner.next = BatchId(id.0 + 1);
    owner.put(&key(1, b"a"), b"later");
    let again = owner.send(id, vec![owner.fence], batch);
    assert!(outcome_of(&again).is_ok(), "a repetition repeats the answer");
    assert_eq!(value(&*owner.store, &key(1, b"a")), Some(b"later".to_vec()));
    owner.put(&key(1, b"b"), b"goes on");
    subject.check_twice(owner, |store| {
        assert_eq!(value(store, &key(1, b"a")), Some(b"later".to_vec()));
        assert_eq!(value(store, &key(1, b"b")), Some(b"goes on".to_vec()));
    });
}

fn out_of_order(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put(&key(1, b"a"), b"x");
    let mut batch = Batch::default();
    batch.put(&key(1, b"b"), |to| to.push(1));
    let ahead = owner.send(BatchId(owner.next.0 + 1), vec![owner.fence], Arc::new(batch));
    assert!(outcome_of(&ahead).is_err(), "an id must follow its predecessor");
    assert_eq!(keys_of(&*owner.store, 1), [b"a".to_vec()]);
}

fn fencing(subject: &Subject<'_>) {
    let mut past = subject.owner();
    past.put(&key(1, b"a"), b"x");
    let mut present = Owner::of(Arc::clone(&past.store), Shard(0));
    assert!(present.fence.epoch > past.fence.epoch, "every owner has a higher epoch");
    let mut batch = Batch::default();
    batch.put(&key(1, b"late"), |to| to.push(1));
    match past.submit(batch) {
        Err(StoreError::Fenced { held, current }) => {
            assert_eq!((held, current), (past.fence.epoch, present.fence.epoch));
        }
        other => unreachable!("a past owner is fenced, not {other:?}"),
    }
    assert_eq!(keys_of(&*past.store, 1), [b"a".to_vec()]);
    present.put(&key(1, b"b"), b"y");
    subject.check_twice(present, |store| {
        assert_eq!(keys_of(store, 1), [b"a".to_vec(), b"b".to_vec()]);
    });
}

fn acquire_goes_on(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let first = owner.next;
    for number in 0..5u8 {
        owner.put(&key(1, &[number]), b"x");
    }
    let after = Owner::of(Arc::clone(&owner.store), Shard(0));
    assert_eq!(after.next.0, first.0 + 5);
    let again = Owner::of(Arc::clone(&owner.store), Shard(0));
    assert_eq!(again.next, after.next, "an empty submission uses no id");
    assert!(again.fence.epoch > after.fence.epoch);
}

fn atomic_over_shards(subject: &Subject<'_>) {
    let store = subject.store();
    if store.shard_count() < 2 {
        return;
    }
    let mut first = Owner::of(Arc::clone(&store), Shard(0));
    let mut second = Owner::of(Arc::clone(&store), Shard(1));
    let both = |rest: &[u8]| {
        let mut batch = Batch::default();
        for space in 1..=4 {
            batch.put(&key(space, rest), |to| to.push(1));
        }
        Arc::new(batch)
    };
    let sent = first.send(first.next, vec![first.fence, second.fence], both(b"a"));
    assert!(outcome_of(&sent).is_ok());
    first.next = BatchId(first.next.0 + 1);
    // The owner of the second shard changes: neither shard stores the batch.
    second = Owner { fence: Owner::of(Arc::clone(&store), Shard(1)).fence, ..second };
    let stale = Fence { shard: Shard(1), epoch: second.fence.epoch - 1 };
    let sent = first.send(first.next, vec![first.fence, stale], both(b"b"));
    assert!(matches!(outcome_of(&sent), Err(StoreError::Fenced { .. })));
    for space in 1..=4 {
        assert_eq!(keys_of(&*store, space), [b"a".to_vec()], "space {space}");
    }
    second.put(&key(9, b"z"), b"the second shard's ids were not used up");
}

fn many_threads(subject: &Subject<'_>) {
    let store = subject.store();
    std::thread::scope(|scope| {
        for number in 0..store.shard_count() {
            let store = Arc::clone(&store);
            scope.spawn(move || {
                let mut owner = Owner::of(store, Shard(number));
                for at in 0..100u8 {
                    owner.put_content(&key(1 + u64::from(number), &[7, at]), &[at; 50]);
                    owner.put(&key(100 + u64::from(number), &[at]), b"x");
                }
            });
        }
    });
    for number in 0..store.shard_count() {
        assert_eq!(keys_of(&*store, 1 + u64::from(number)).len(), 100);
        assert_eq!(keys_of(&*store, 100 + u64::from(number)).len(), 100);
    }
}

fn commit_here(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let first = owner.next.0;
    let mut receivers = Vec::new();
    for number in 0..60u8 {
        let (id, mut count) = (BatchId(first + u64::from(number)), 0);
        let mut batch = Batch::default();
        batch.put_with_content(&key(1, &[number]), Bytes::from(vec![number; 9]), |_| {});
        if number % 3 != 1 {
            batch.require_sync();
        }
        let batch = Arc::new(batch);
        let mut submit = || {
            count += 1;
            receivers.push(owner.send(id, vec![owner.fence], Arc::clone(&batch)));
        };
        // Others are submitted without a wait, so that the store is often busy.
        let is_done = if number % 4 == 0 {
            submit();
            false
        } else {
            owner.store.commit_here(&mut submit)
        };
        assert_eq!(count, 1, "the batch is submitted once");
        if is_done {
            let mut outcomes = receivers.drain(..).map(|receiver| receiver.try_recv());
            let is_stored = |outcome| matches!(outcome, Ok(Ok(())));
            assert!(outcomes.all(is_stored), "it is completed, after all earlier ones");
            assert_eq!(content(&*owner.store, &key(1, &[number])), Some(vec![number; 9]));
        }
    }
    for receiver in &receivers {
        assert!(outcome_of(receiver).is_ok());
    }
    owner.next = BatchId(first + 60);
    subject.check_twice(owner, |store| assert_eq!(keys_of(store, 1).len(), 60));
}

fn fencing_here(subject: &Subject<'_>) {
    let past = subject.owner();
    let mut present = Owner::of(Arc::clone(&past.store), Shard(0));
    let mut late = None;
    let mut batch = Batch::default();
    batch.put(&key(1, b"late"), |to| to.push(1));
    let batch = Arc::new(batch);
    past.store.commit_here(&mut || {
        late = Some(past.send(past.next, vec![past.fence], Arc::clone(&batch)));
    });
    assert!(matches!(late.as_ref().map(outcome_of), Some(Err(StoreError::Fenced { .. }))));
    present.put(&key(1, b"b"), b"y");
    subject.check_twice(present, |store| assert_eq!(keys_of(store, 1), [b"b".to_vec()]));
}

fn many_threads_here(subject: &Subject<'_>) {
    let store = subject.store();
    std::thread::scope(|scope| {
        for number in 0..store.shard_count() {
            let store = Arc::clone(&store);
            scope.spawn(move || {
                let mut owner = Owner::of(Arc::clone(&store), Shard(number));
                for at in 0..100u8 {
                    let key = key(1 + u64::from(number), &[at]);
                    if at % 3 == 0 {
                        owner.put(&key, b"x");
                        continue;
                    }
                    let mut batch = Batch::default();
                    batch.put(&key, |to| to.push(1));
                    let (id, batch) = (owner.next, Arc::new(batch));
                    owner.next = BatchId(id.0 + 1);
                    let mut sent = None;
                    store.commit_here(&mut || {
                        sent = Some(owner.send(id, vec![owner.fence], Arc::clone(&batch)));
                    });
                    assert!(sent.is_some_and(|receiver| outcome_of(&receiver).is_ok()));
                }
            });
        }
    });
    for number in 0..store.shard_count() {
        assert_eq!(keys_of(&*store, 1 + u64::from(number)).len(), 100);
    }
}
