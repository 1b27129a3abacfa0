//! Contents: new, kept and shared, and readable while a pin exists. `store_conformance.rs` runs the
//! scenarios of this file.

use std::task::{Context, Poll, Waker};

use super::*;

type Scenario = (&'static str, fn(&Subject<'_>));

pub(super) const SCENARIOS: &[Scenario] = &[
    ("new content is read back, a key without has none", new_content),
    ("a put that keeps content changes the value alone", kept_content),
    ("a put without content takes it away", content_taken_away),
    ("shared content survives its source", shared_content),
    ("content can be moved to another key in one batch", moved_content),
    ("a record moves to the space of another owner in one batch", record_of_another_owner),
    ("pinned content stays readable after its record is gone", pinned_content),
    ("empty and large contents are kept", sizes),
    ("a range of a content is read without the rest", ranges),
    ("loads run next to each other, and may be dropped and repeated", concurrent_loads),
];

fn new_content(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put_content(&key(1, b"a"), b"body");
    owner.put(&key(1, b"b"), b"no content");
    subject.check_twice(owner, |store| {
        let contents =
            contents_of(store, &[key(1, b"b"), key(1, b"a"), key(2, b"a"), key(1, b"a")]);
        let loaded: Vec<_> = contents.iter().map(|one| one.as_ref().map(load)).collect();
        assert_eq!(loaded, [None, Some(b"body".to_vec()), None, Some(b"body".to_vec())]);
    });
}

fn kept_content(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put_content(&key(1, b"a"), b"body");
    for number in 0..3u8 {
        let mut batch = Batch::default();
        batch.put_keep_content(&key(1, b"a"), |to| to.push(number));
        owner.store(batch);
    }
    let mut batch = Batch::default();
    batch.put_with_content(&key(1, b"b"), Bytes::from_static(b"other"), |to| to.push(0));
    batch.put_keep_content(&key(1, b"b"), |to| to.push(1));
    batch.put_keep_content(&key(1, b"new"), |to| to.push(2));
    owner.store(batch);
    subject.check_twice(owner, |store| {
        assert_eq!(content(store, &key(1, b"a")), Some(b"body".to_vec()));
        assert_eq!(value(store, &key(1, b"a")), Some(vec![2]));
        assert_eq!(content(store, &key(1, b"b")), Some(b"other".to_vec()));
        assert_eq!(value(store, &key(1, b"b")), Some(vec![1]));
        assert_eq!(content(store, &key(1, b"new")), None);
        assert_eq!(value(store, &key(1, b"new")), Some(vec![2]));
    });
}

fn content_taken_away(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put_content(&key(1, b"a"), b"body");
    owner.put(&key(1, b"a"), b"value");
    owner.put_content(&key(1, b"b"), b"first");
    owner.put_content(&key(1, b"b"), b"second");
    owner.put_content(&key(1, b"c"), b"third");
    let mut batch = Batch::default();
    batch.delete(&key(1, b"c"));
    batch.put_keep_content(&key(1, b"c"), |to| to.push(1));
    owner.store(batch);
    subject.check_twice(owner, |store| {
        assert_eq!(content(store, &key(1, b"a")), None);
        assert_eq!(content(store, &key(1, b"b")), Some(b"second".to_vec()));
        assert_eq!(content(store, &key(1, b"c")), None, "deleted content is not kept");
    });
}

fn shared_content(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    // The second body is large enough that a store may split it.
    let large = vec![7; 5 << 20];
    for (space, body) in [(1, b"body".as_slice()), (4, &large)] {
        owner.put_content(&key(space, b"source"), body);
        let mut batch = Batch::default();
        batch.put_with_content(&key(space, b"fresh"), Bytes::from_static(b"old"), |to| to.push(0));
        batch.put_content_of(&key(space, b"fresh"), &key(space, b"source"), |to| to.push(1));
        batch.put_content_of(&key(2, &[1]), &key(space, b"fresh"), |to| to.push(2));
        batch.put_keep_content(&key(2, &[1]), |to| to.push(3));
        batch.put_content_of(&key(space, b"copy"), &key(2, &[1]), |to| to.push(4));
        owner.store(batch);
        let mut batch = Batch::default();
        batch.delete(&key(space, b"source"));
        batch.delete(&key(space, b"fresh"));
        batch.delete(&key(2, &[1]));
        owner.store(batch);
    }
    for number in 0..20u8 {
        owner.put_content(&key(3, &[number]), &[number; 100]);
    }
    subject.check_twice(owner, |store| {
        for (space, body) in [(1, b"body".as_slice()), (4, &large)] {
            assert_eq!(content(store, &key(space, b"source")), None);
            assert_eq!(content(store, &key(space, b"fresh")), None);
            assert_eq!(content(store, &key(2, &[1])), None);
            assert!(content(store, &key(space, b"copy")).is_some_and(|copy| copy == body));
        }
    });
}

fn moved_content(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put_content(&key(1, b"old"), b"body");
    let mut batch = Batch::default();
    batch.put_content_of(&key(1, b"new"), &key(1, b"old"), |to| to.push(1));
    batch.delete(&key(1, b"old"));
    batch.put_with_content(&key(1, b"fresh"), Bytes::from_static(b"within"), |_| {});
    batch.put_content_of(&key(1, b"newer"), &key(1, b"fresh"), |to| to.push(2));
    batch.delete(&key(1, b"fresh"));
    owner.store(batch);
    subject.check_twice(owner, |store| {
        assert_eq!(keys_of(store, 1), [b"new".to_vec(), b"newer".to_vec()]);
        assert_eq!(content(store, &key(1, b"new")), Some(b"body".to_vec()));
        assert_eq!(content(store, &key(1, b"newer")), Some(b"within".to_vec()));
    });
}

/// The storage of a transfer: an owner of a shard takes a record out of a space that the owner
/// of another shard writes and drops afterwards.
fn record_of_another_owner(subject: &Subject<'_>) {
    let mut source = subject.owner();
    if source.store.shard_count() < 2 {
        return;
    }
    let mut destination = Owner::of(Arc::clone(&source.store), Shard(1));
    source.put_content(&key(1, b"moves"), b"body");
    source.put_content(&key(1, b"moves, more"), b"overlay");
    source.put_content(&key(1, b"stays"), b"other");
    let mut batch = Batch::default();
    let moved =
        [(&b"here"[..], &b"moves"[..], &b"body"[..]), (b"here, more", b"moves, more", b"overlay")];
    for (to, from, content) in moved {
        match source.store.shares_contents() {
            true => batch.put_content_of(&key(2, to), &key(1, from), |value| value.push(1)),
            false => {
                let content = Bytes::from_static(content);
                batch.put_with_content(&key(2, to), content, |value| value.push(1));
            }
        }
    }
    for from in [&b"moves"[..], b"moves, more"] {
        batch.delete_in(0, &key(1, from));
    }
    let keys = [key(1, b"moves"), key(2, b"here"), key(1, b"stays"), key(7, b"nowhere")];
    assert_eq!(exists(&*source.store, &keys), [true, false, true, false]);
    destination.store(batch);
    assert_eq!(exists(&*source.store, &keys), [false, true, true, false]);
    assert_eq!(keys_of(&*source.store, 1), [b"stays".to_vec()]);
    let mut batch = Batch::default();
    batch.delete_prefix(&Key::of_space(1));
    source.store(batch);
    for number in 0..100u8 {
        source.put_content(&key(3, &[number % 3]), &vec![number; 10_000]);
    }
    drop(source);
    subject.check_twice(destination, |store| {
        assert_eq!(keys_of(store, 1), Vec::<Vec<u8>>::new());
        assert_eq!(exists(store, &keys), [false, true, false, false]);
        assert_eq!(content(store, &key(2, b"here")), Some(b"body".to_vec()));
        assert_eq!(content(store, &key(2, b"here, more")), Some(b"overlay".to_vec()));
    });
}

fn pinned_content(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put_content(&key(1, b"deleted"), b"one");
    owner.put_content(&key(1, b"replaced"), b"two");
    owner.put_content(&key(2, b"dropped with its space"), b"three");
    let keys = [key(1, b"deleted"), key(1, b"replaced"), key(2, b"dropped with its space")];
    let mut pinned = contents_of(&*owner.store, &keys);
    owner.store.pin_unloaded(&keys, &mut pinned);
    let mut batch = Batch::default();
    batch.delete(&keys[0]);
    batch.put_with_content(&keys[1], Bytes::from_static(b"other"), |_| {});
    batch.delete_prefix(&Key::of_space(2));
    owner.store(batch);
    for number in 0..100u8 {
        owner.put_content(&key(3, &[number]), &vec![number; 10_000]);
        let mut batch = Batch::default();
        batch.delete(&key(3, &[number]));
        owner.store(batch);
    }
    let loaded: Vec<_> = pinned.iter().flatten().map(load).collect();
    let expected = [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()];
    assert_eq!(loaded, [expected.clone(), expected].concat(), "pinned in memory, and apart");
    assert_eq!(content(&*owner.store, &keys[0]), None);
    assert_eq!(content(&*owner.store, &keys[1]), Some(b"other".to_vec()));
}

fn sizes(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let large: Vec<u8> =
        (0..3_000_000u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    owner.put_content(&key(1, b"empty"), b"");
    owner.put_content(&key(1, b"large"), &large);
    let mut batch = Batch::default();
    for number in 0..5u8 {
        let content = Bytes::from(vec![number; 300_000]);
        batch.put_with_content(&key(2, &[number]), content, |_| {});
    }
    owner.store(batch);
    subject.check_twice(owner, |store| {
        assert_eq!(content(store, &key(1, b"empty")), Some(Vec::new()));
        assert!(content(store, &key(1, b"large")).as_deref() == Some(&large[..]));
        for number in 0..5u8 {
            assert!(content(store, &key(2, &[number])) == Some(vec![number; 300_000]));
        }
    });
}

/// CON-03: ranges at the limits of the units that a store may read, and beyond the end.
fn ranges(subject: &Subject<'_>) {
    const UNIT: u64 = 256 << 10;
    let mut owner = subject.owner();
    let body: Vec<u8> =
        (0..3 * UNIT + 1_000).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    let lengths = [0, 1, 300, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT, 3 * UNIT + 1_000];
    let keys = lengths.map(|length| key(1, &length.to_be_bytes()));
    for (length, key) in lengths.iter().zip(&keys) {
        owner.put_content(key, part(&body, 0, *length));
    }
    subject.check_twice(owner, |store| {
        let mut pinned = contents_of(store, &keys);
        store.pin_unloaded(&keys, &mut pinned);
        let lengths = lengths.iter().chain(&lengths);
        for (length, content) in lengths.zip(pinned.iter().flatten()) {
            assert_eq!(content.length(), *length);
            for from in [0, 1, 299, UNIT - 1, UNIT, 2 * UNIT - 1, 3 * UNIT, u64::MAX] {
                for count in [0, 1, 256, UNIT, UNIT + 2, 3 * UNIT, u64::MAX] {
                    let range = load_range(content, from, count);
                    let end = from.saturating_add(count).min(*length);
                    assert!(range == part(&body, from.min(end), end), "{from} {count} {length}");
                }
            }
        }
        assert_eq!(pinned.iter().flatten().count(), 2 * keys.len());
    });
}

/// The broker loads many contents at a time, in any order, and drops loads of clients that have
/// left.
fn concurrent_loads(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let body = |number: u64| {
        let length = if number.is_multiple_of(10) { 700_000 } else { 3_000 };
        vec![number.to_le_bytes()[0]; length]
    };
    let keys: Vec<Key> = (0..100u64).map(|number| key(1, &number.to_be_bytes())).collect();
    for (number, key) in (0..).zip(&keys) {
        owner.put_content(key, &body(number));
    }
    subject.check_twice(owner, |store| {
        let mut pinned = Vec::new();
        store.pin_unloaded(&keys, &mut pinned);
        let mut pending = Vec::new();
        for (number, content) in (0..).zip(pinned.iter().flatten()) {
            assert_eq!(content.length(), body(number).len() as u64, "known before the load");
            let mut dropped = Box::pin(content.load());
            drop(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            drop(dropped);
            let mut loading = Box::pin(content.load());
            match loading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(loaded) => assert!(loaded.is_ok_and(|found| found == body(number))),
                Poll::Pending => pending.push((number, loading)),
            }
        }
        // The last one ends while the first are still waiting for their caller.
        while let Some((number, loading)) = pending.pop() {
            assert!(read(loading) == body(number), "content {number} is another one");
        }
        for (number, content) in (0..).zip(pinned.iter().flatten()) {
            assert!(load(content) == body(number), "content {number} cannot be loaded again");
            if let ContentRef::Stored(stored) = content
                && let Some(found) = stored.cached()
            {
                assert!(found.is_ok_and(|found| found == body(number)));
            }
        }
    });
}

fn part(body: &[u8], from: u64, to: u64) -> &[u8] {
    let [from, to] = [from, to].map(|place| usize::try_from(place).unwrap_or(usize::MAX));
    body.get(from..to).unwrap_or_default()
}
