//! Keys and values: written records exist, deleted ones do not, and spaces are independent.
//! `store_conformance.rs` runs the scenarios of this file.

use super::*;

type Scenario = (&'static str, fn(&Subject<'_>));

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a value that was put is found, also after a reopening", put_is_found),
    ("the last value of a key wins, within a batch and over batches", last_value_wins),
    ("a deleted key is gone, and deleting nothing is no mistake", deleted_is_gone),
    ("records of a batch act in their order", records_act_in_order),
    ("a prefix inside a space is deleted whole, and nothing else", prefix_inside_a_space),
    ("a whole space is deleted, and can be used again", whole_space),
    ("dropped spaces do not show up while they are freed", dropped_spaces_stay_away),
    ("two spaces do not touch each other", spaces_do_not_touch),
    ("a scan shows exactly its prefix, ascending", scan_shows_its_prefix),
    ("a scan in slices shows each record once", scan_in_slices_is_whole),
    ("keys of all lengths and empty values are kept", lengths),
    ("a batch without records is stored", empty_batch),
    ("a random load ends with the values that a map has", random_load),
];

fn put_is_found(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put(&key(1, b"a"), b"one");
    owner.put(&key(1, b"b"), b"two");
    subject.check_twice(owner, |store| {
        assert_eq!(value(store, &key(1, b"a")), Some(b"one".to_vec()));
        assert_eq!(value(store, &key(1, b"b")), Some(b"two".to_vec()));
        assert_eq!(value(store, &key(1, b"c")), None);
    });
}

fn last_value_wins(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let mut batch = Batch::default();
    for number in 0..10u8 {
        batch.put(&key(1, b"a"), |to| to.push(number));
    }
    owner.store(batch);
    assert_eq!(value(&*owner.store, &key(1, b"a")), Some(vec![9]));
    owner.put(&key(1, b"a"), b"later");
    subject.check_twice(owner, |store| {
        assert_eq!(scan(store, &key(1, b"")).len(), 1);
        assert_eq!(value(store, &key(1, b"a")), Some(b"later".to_vec()));
    });
}

fn deleted_is_gone(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put(&key(1, b"a"), b"one");
    owner.put(&key(1, b"b"), b"two");
    let mut batch = Batch::default();
    batch.delete(&key(1, b"a"));
    batch.delete(&key(1, b"never there"));
    batch.delete(&key(7, b"nor its space"));
    batch.delete_prefix(&key(8, b""));
    owner.store(batch);
    subject.check_twice(owner, |store| assert_eq!(keys_of(store, 1), [b"b".to_vec()]));
}

fn records_act_in_order(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let mut batch = Batch::default();
    batch.put(&key(1, b"ab"), |to| to.push(1));
    batch.delete(&key(1, b"ab"));
    batch.delete(&key(1, b"cd"));
    batch.put(&key(1, b"cd"), |to| to.push(2));
    batch.put(&key(1, b"x1"), |to| to.push(3));
    batch.delete_prefix(&key(1, b"x"));
    batch.put(&key(1, b"x2"), |to| to.push(4));
    batch.put(&key(2, b"gone"), |to| to.push(5));
    batch.delete_prefix(&key(2, b""));
    batch.put(&key(2, b"there"), |to| to.push(6));
    owner.store(batch);
    subject.check_twice(owner, |store| {
        assert_eq!(keys_of(store, 1), [b"cd".to_vec(), b"x2".to_vec()]);
        assert_eq!(keys_of(store, 2), [b"there".to_vec()]);
    });
}

fn prefix_inside_a_space(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    for rest in [&b"a"[..], b"b", b"b\0", b"ba", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"] {
        owner.put(&key(1, rest), b"x");
    }
    let mut batch = Batch::default();
    batch.delete_prefix(&key(1, b"b"));
    batch.delete_prefix(&key(1, b"\xff\xff"));
    owner.store(batch);
    subject.check_twice(owner, |store| {
        assert_eq!(keys_of(store, 1), [b"a".to_vec(), b"c".to_vec(), b"\xff".to_vec()]);
    });
}

fn whole_space(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.put(&key(1, b"a"), b"x");
    owner.put(&key(2, b"a"), b"y");
    owner.put(&key(u64::MAX, b"a"), b"z");
    let mut batch = Batch::default();
    batch.delete_prefix(&Key::of_space(1));
    batch.delete_prefix(&Key::of_space(u64::MAX));
    owner.store(batch);
    assert!(keys_of(&*owner.store, 1).is_empty());
    owner.put(&key(1, b"again"), b"x");
    subject.check_twice(owner, |store| {
        assert_eq!(keys_of(store, 1), [b"again".to_vec()]);
        assert_eq!(keys_of(store, 2), [b"a".to_vec()]);
        assert!(keys_of(store, u64::MAX).is_empty());
    });
}

fn dropped_spaces_stay_away(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    for round in 0..3u8 {
        let mut batch = Batch::default();
        for number in 0..3_000u16 {
            let content = Bytes::from(vec![round; 16]);
            batch.put_with_content(&key(5, &number.to_be_bytes()), content, |_| {});
        }
        owner.store(batch);
        let mut batch = Batch::default();
        batch.delete_prefix(&Key::of_space(5));
        owner.store(batch);
        assert!(keys_of(&*owner.store, 5).is_empty(), "a dropped space is empty at once");
        let pinned = contents_of(&*owner.store, &[key(5, &7u16.to_be_bytes())]);
        assert!(pinned.iter().all(Option::is_none), "content of a dropped space is gone");
    }
    owner.put_content(&key(5, b"new"), b"new");
    for number in 0..8u8 {
        owner.put(&key(6, &[number]), b"beside");
    }
    subject.check_twice(owner, |store| {
        assert_eq!(keys_of(store, 5), [b"new".to_vec()]);
        assert_eq!(keys_of(store, 6).len(), 8);
        assert_eq!(content(store, &key(5, b"new")), Some(b"new".to_vec()));
    });
}

fn spaces_do_not_touch(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let spaces = [0, 1, 2, 3, 255, 256, 1 << 40, u64::MAX];
    for space in spaces {
        owner.put(&key(space, b"k"), &space.to_be_bytes());
    }
    let mut batch = Batch::default();
    batch.delete(&key(2, b"k"));
    batch.delete_prefix(&Key::of_space(256));
    batch.put(&key(3, b"k"), |to| to.extend_from_slice(b"three"));
    owner.store(batch);
    subject.check_twice(owner, |store| {
        for space in spaces {
            let expected = match space {
                2 | 256 => None,
                3 => Some(b"three".to_vec()),
                other => Some(other.to_be_bytes().to_vec()),
            };
            assert_eq!(value(store, &key(space, b"k")), expected, "space {space}");
        }
    });
}

fn scan_shows_its_prefix(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let rests: [&[u8]; 7] = [b"", b"a", b"aa", b"ab", b"a\xff", b"b", b"\0"];
    for rest in rests.iter().rev() {
        owner.put(&key(1, rest), rest);
    }
    subject.check_twice(owner, |store| {
        assert_eq!(scan(store, &key(1, b"")).len(), rests.len());
        assert_eq!(scan(store, &key(1, b"a")).len(), 4);
        assert_eq!(scan(store, &key(1, b"aa")).len(), 1);
        assert!(scan(store, &key(1, b"zz")).is_empty());
        assert!(scan(store, &key(77, b"")).is_empty());
    });
}

fn scan_in_slices_is_whole(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    // Keys of messages, keys that share a long start, and others.
    let long = [3; 20];
    for number in 0..3_000u64 {
        let mut batch = Batch::default();
        let tail = number.to_be_bytes();
        for key in
            [key(1, &[1]).then(&tail), key(1, &long).then(&tail), key(1, &tail[6..]), key(2, &tail)]
        {
            batch.put(&key, |to| to.extend_from_slice(&tail[..(number % 9) as usize]));
        }
        owner.store(batch);
    }
    subject.check_twice(owner, |store| {
        for prefix in [Key::of_space(1), key(1, &[1]), key(1, &long)] {
            let whole = scan(store, &prefix);
            assert!(whole.len() >= 3_000);
            for bytes in [1, 40, 1_000, usize::MAX] {
                let (mut records, mut found) = (store.scan(&prefix), Vec::new());
                let mut slice = RecordSlice::default();
                loop {
                    let read = block_on(records.next(bytes, &mut slice));
                    assert!(read.is_ok(), "a store can be scanned: {read:?}");
                    if slice.is_empty() {
                        break;
                    }
                    assert!(slice.bytes() < bytes.saturating_add(100), "a slice keeps its size");
                    found.extend(slice.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
                }
                assert!(found == whole, "slices of {bytes} bytes show something else");
            }
        }
    });
}

fn lengths(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let longest = [7u8; KEY_BYTES_MAX - peeklock_store::SPACE_BYTES];
    owner.put(&Key::of_space(1), b"the key is its space");
    owner.put(&key(1, b"no value"), b"");
    owner.put(&key(1, &longest), &[9; 70_000]);
    subject.check_twice(owner, |store| {
        assert_eq!(keys_of(store, 1), [Vec::new(), longest.to_vec(), b"no value".to_vec()]);
        assert_eq!(value(store, &key(1, b"no value")), Some(Vec::new()));
        assert_eq!(value(store, &key(1, &longest)).map(|value| value.len()), Some(70_000));
    });
}

fn empty_batch(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    owner.store(Batch::default());
    owner.put(&key(1, b"a"), b"x");
    subject.check_twice(owner, |store| assert_eq!(keys_of(store, 1).len(), 1));
}

fn random_load(subject: &Subject<'_>) {
    let mut owner = subject.owner();
    let mut random = crate::Random::new(11);
    let mut expected: BTreeMap<Key, (Vec<u8>, Option<Vec<u8>>)> = BTreeMap::new();
    for _ in 0..300 {
        let mut batch = Batch::default();
        for _ in 0..random.between(1, 12) {
            let at = key(random.between(1, 3), &[u8::try_from(random.below(40)).unwrap_or(0)]);
            let filling = random.bits().to_be_bytes().to_vec();
            match random.below(6) {
                0 => {
                    batch.delete(&at);
                    expected.remove(&at);
                }
                1 => {
                    batch.put_keep_content(&at, |to| to.extend_from_slice(&filling));
                    let kept = expected.remove(&at).and_then(|(_, content)| content);
                    expected.insert(at, (filling, kept));
                }
                2 => {
                    let content = Bytes::from(filling.clone());
                    batch.put_with_content(&at, content, |to| to.push(1));
                    expected.insert(at, (vec![1], Some(filling)));
                }
                3 => {
                    let source =
                        key(random.between(1, 3), &[u8::try_from(random.below(40)).unwrap_or(0)]);
                    let shared = expected.get(&source).and_then(|(_, content)| content.clone());
                    if shared.is_some() {
                        batch.put_content_of(&at, &source, |to| to.push(2));
                        expected.insert(at, (vec![2], shared));
                    }
                }
                _ => {
                    batch.put(&at, |to| to.extend_from_slice(&filling));
                    expected.insert(at, (filling, None));
                }
            }
        }
        if random.one_in(60) {
            let space = random.between(1, 3);
            batch.delete_prefix(&Key::of_space(space));
            expected.retain(|key, _| !key.as_bytes().starts_with(&space.to_be_bytes()));
        }
        owner.store(batch);
    }
    subject.check_twice(owner, |store| {
        let mut count = 0;
        for space in 1..=3 {
            for (key, value) in scan(store, &Key::of_space(space)) {
                let Some(key) = Key::from_bytes(&key) else { unreachable!("a key came back") };
                let (expected_value, expected_content) = &expected[&key];
                assert_eq!(&value, expected_value);
                assert_eq!(&content(store, &key), expected_content);
                count += 1;
            }
        }
        assert_eq!(count, expected.len());
    });
}
