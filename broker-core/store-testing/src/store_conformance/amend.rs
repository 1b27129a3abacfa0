//! Amendments: batches outside all shards, stored only if keys have expected values.
//! `store_conformance.rs` runs the scenarios of this file.

use super::*;

type Scenario = (&'static str, fn(&Subject<'_>));

pub(super) const SCENARIOS: &[Scenario] = &[
    ("an amendment is stored if all keys are as expected", amend_compares),
    ("one of two amendments with the same expectation is stored", amend_is_one_of_two),
    ("an amendment needs no shard and disturbs none", amend_beside_batches),
    ("an amendment with contents is refused", amend_without_contents),
];

fn counter() -> Key {
    key(0, b"counter")
}

fn amend(store: &dyn Store, expected: &[Expectation], records: &[(Key, Vec<u8>)]) -> bool {
    let mut batch = Batch::default();
    for (key, value) in records {
        batch.put(key, |to| to.extend_from_slice(value));
    }
    match block_on(store.amend(expected, batch)) {
        Ok(is_stored) => is_stored,
        Err(error) => unreachable!("a store can be amended: {error}"),
    }
}

fn of(value: &[u8]) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(value))
}

fn amend_compares(subject: &Subject<'_>) {
    let owner = subject.owner();
    let (a, b) = (key(0, b"a"), key(1 << 63, b"b"));
    let one = [(a, vec![1]), (b, vec![2])];
    let is_stored = |expected: &[Expectation], records| amend(&*owner.store, expected, records);
    assert!(!is_stored(&[(a, of(&[1]))], &one), "nothing is stored yet");
    assert!(is_stored(&[(a, None), (b, None)], &one));
    let two = [(a, vec![3]), (key(0, b"c"), vec![4])];
    for wrong in [vec![(a, None)], vec![(a, of(&[1])), (b, None)], vec![(a, of(&[1, 1]))]] {
        assert!(!is_stored(&wrong, &two));
    }
    assert_eq!(keys_of(&*owner.store, 0), [b"a".to_vec()], "nothing of a refused one is stored");
    assert!(is_stored(&[(b, of(&[2])), (a, of(&[1]))], &two));
    let mut batch = Batch::default();
    batch.delete(&b);
    assert!(matches!(block_on(owner.store.amend(&[(b, of(&[2]))], batch)), Ok(true)));
    assert!(is_stored(&[], &[(key(0, b"d"), vec![5])]), "without an expectation it is stored");
    subject.check_twice(owner, |store| {
        assert_eq!(keys_of(store, 0), [b"a".to_vec(), b"c".to_vec(), b"d".to_vec()]);
        assert_eq!(value(store, &a), Some(vec![3]));
        assert!(keys_of(store, 1 << 63).is_empty());
    });
}

fn amend_is_one_of_two(subject: &Subject<'_>) {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 20;
    let owner = subject.owner();
    let win_count = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let store = &*owner.store;
                let mut wins = 0;
                while wins < ROUNDS {
                    let last = value(store, &counter());
                    let next = last.as_deref().map_or(1, |last| last.len() + 1);
                    let expected = (counter(), last.as_deref().and_then(of));
                    wins += u64::from(amend(store, &[expected], &[(counter(), vec![7; next])]));
                }
                win_count.fetch_add(wins, std::sync::atomic::Ordering::SeqCst);
            });
        }
    });
    assert_eq!(win_count.into_inner(), THREADS * ROUNDS);
    subject.check_twice(owner, |store| {
        let length = value(store, &counter()).map_or(0, |value| value.len() as u64);
        assert_eq!(length, THREADS * ROUNDS, "each amendment saw its predecessor");
    });
}

fn amend_beside_batches(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let store = Arc::clone(&owner.store);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..100u8 {
                let before = number.checked_sub(1).and_then(|before| of(&[before]));
                assert!(amend(&*store, &[(counter(), before)], &[(counter(), vec![number])]));
            }
        });
        for number in 0..100u8 {
            owner.put(&key(0, &[1, number]), b"x");
            owner.put_content(&key(1, &[number]), &[number; 50]);
        }
    });
    subject.check_twice(owner, |store| {
        assert_eq!(value(store, &counter()), Some(vec![99]));
        assert_eq!(keys_of(store, 0).len(), 101);
        assert_eq!(content(store, &key(1, &[77])), Some(vec![77; 50]));
    });
}

fn amend_without_contents(subject: &Subject<'_>) {
    let owner = subject.owner();
    let mut batch = Batch::default();
    batch.put_with_content(&key(0, b"a"), Bytes::from_static(b"body"), |_| {});
    assert!(block_on(owner.store.amend(&[], batch)).is_err());
    assert!(keys_of(&*owner.store, 0).is_empty());
}
