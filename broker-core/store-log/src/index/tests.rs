//! Tests of the index against a plain map, and of its account of records and contents in use.

use std::collections::BTreeMap;

use super::*;
use crate::SegmentState;
use peeklock_store_testing::Random;

const SEGMENTS: u32 = 4;

impl LogSegment for SegmentState {
    fn state(&self) -> &SegmentState {
        self
    }
}

fn segments() -> Arc<Segments<SegmentState>> {
    let segments = Segments::default();
    for number in 1..=SEGMENTS {
        segments.insert(Arc::new(SegmentState::new(number, 0)));
    }
    Arc::new(segments)
}

/// Keys like the keys of messages, and of every other form, close together.
fn any_key(random: &mut Random) -> Key {
    let space = Key::of_space(random.below(3));
    let table = [u8::try_from(random.below(3)).unwrap()];
    let number = (random.below(4) * 60 + random.below(8)).to_be_bytes();
    match random.below(5) {
        0 => space.then(&table),
        1 => space.then(&table).then(&number).then(&[0, 1]),
        2 => space.then(&table).then(&number[4..]),
        _ => space.then(&table).then(&number),
    }
}

fn put(random: &mut Random, places: &mut u32, contents: &[(Key, IndexEntry)]) -> Op {
    *places += 100;
    let segment = u32::try_from(random.between(1, u64::from(SEGMENTS))).unwrap();
    let record = LogPosition { segment, offset: *places };
    let length = u32::try_from(random.below(500)).unwrap();
    let new =
        ContentAt { place: LogPosition { segment, offset: *places + 50 }, length, is_large: false };
    let (content, content_is_new) = match random.below(4) {
        0 => (None, false),
        1 => (random.pick(contents).and_then(|(_, entry)| entry.content_at()), false),
        _ => (Some(new), true),
    };
    let entry = IndexEntry::new(record, 50, content);
    Op::Put { key: any_key(random), entry, content_is_new }
}

fn all(index: &Index<SegmentState>) -> Vec<(Key, IndexEntry)> {
    let mut all = Vec::new();
    index.each(&mut |key, entry| all.push((key, *entry)));
    all
}

/// The index agrees with a plain map under any operations, in pages of any size, and its account
/// agrees with a new count.
#[test]
fn the_index_agrees_with_a_plain_map() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let segments = segments();
        let index = Index::new(Arc::clone(&segments));
        let mut model: BTreeMap<Key, IndexEntry> = BTreeMap::new();
        let mut places = 0;
        for _ in 0..300 {
            let here: Vec<(Key, IndexEntry)> =
                model.iter().map(|(key, entry)| (*key, *entry)).collect();
            let op = match random.below(12) {
                0 => Op::DeletePrefix { prefix: any_key(&mut random) },
                1 if random.one_in(6) => {
                    Op::DeletePrefix { prefix: Key::of_space(random.below(3)) }
                }
                1..=3 => Op::Delete { key: any_key(&mut random) },
                _ => put(&mut random, &mut places, &here),
            };
            match &op {
                Op::Put { key, entry, .. } => {
                    model.insert(*key, *entry);
                }
                Op::Delete { key } => {
                    model.remove(key);
                }
                Op::DeletePrefix { prefix } => {
                    model.retain(|key, _| !key.as_bytes().starts_with(prefix.as_bytes()));
                }
            }
            index.apply(&[op]);
        }
        for (key, entry) in &model {
            assert_eq!(index.get(key.as_bytes()), Some(*entry), "seed {seed}");
        }
        let prefix = any_key(&mut random);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let mut page = Vec::new();
            let limit = random.index(5) + 1;
            index.page(prefix.as_bytes(), after.as_ref(), limit, &mut page);
            after = page.last().map(|(key, _)| *key);
            found.extend(page);
            if after.is_none() {
                break;
            }
        }
        let expected: Vec<(Key, IndexEntry)> = model
            .iter()
            .filter(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
            .map(|(key, entry)| (*key, *entry))
            .collect();
        assert_eq!(found, expected, "seed {seed}: in the order of the keys, each once");
        while index.reap(7) {}
        check_account(&index, &segments, seed);
        for space in 0..3 {
            index.apply(&[Op::DeletePrefix { prefix: Key::of_space(space) }]);
        }
        while index.reap(13) {}
        assert_eq!(index.used_bytes(), 0, "seed {seed}: nothing is left, nothing is needed");
        assert!(segments.all().iter().all(|segment| segment.uses() == 0), "seed {seed}");
        assert!(
            !index.is_shared(LogPosition::default()) && lock(&index.contents).shared.is_empty()
        );
    }
}

/// The account that was kept during changes equals a new count of all entries.
fn check_account(index: &Index<SegmentState>, counted: &Segments<SegmentState>, seed: u64) {
    let fresh_segments = segments();
    let fresh = Index::new(Arc::clone(&fresh_segments));
    let ops: Vec<Op> = all(index)
        .into_iter()
        .map(|(key, entry)| Op::Put { key, entry, content_is_new: true })
        .collect();
    fresh.replay(&ops);
    assert_eq!(fresh.open_account(), Ok(()), "seed {seed}");
    assert_eq!(index.used_bytes(), fresh.used_bytes(), "seed {seed}");
    for (was, is) in fresh_segments.all().iter().zip(counted.all()) {
        assert_eq!(was.uses(), is.uses(), "seed {seed}: segment {}", is.number());
    }
    assert_eq!(lock(&index.contents).shared, lock(&fresh.contents).shared, "seed {seed}");
}

/// A prefix of very many keys is removed at once, and no other key is. The entries are released
/// later.
#[test]
fn many_keys_with_a_prefix_are_removed_at_once() {
    for prefix in [&[2][..], &[2, 7], &[2, 255], &[2, 7, 255], &[255, 255]] {
        let segments = segments();
        let index = Index::new(Arc::clone(&segments));
        let mut model: BTreeMap<Key, IndexEntry> = BTreeMap::new();
        let mut random = Random::new(9);
        for number in 0..3_000u32 {
            let table = *random.pick(&[1, 2, 255]).unwrap();
            let bucket = *random.pick(&[6, 7, 8, 255]).unwrap();
            let byte = *random.pick(&[0, 255]).unwrap();
            let key = Key::of_space(1).then(&[table, bucket, byte]).then(&number.to_be_bytes());
            // Some keys have a number, which makes nine bytes with the table.
            let key = if random.one_in(4) { key.then(&[0, 0]) } else { key };
            let entry = IndexEntry::new(LogPosition { segment: 1, offset: number * 100 }, 10, None);
            index.apply(&[Op::Put { key, entry, content_is_new: false }]);
            model.insert(key, entry);
        }
        let prefix = Key::of_space(1).then(prefix);
        index.apply(&[Op::DeletePrefix { prefix }]);
        model.retain(|key, _| !key.as_bytes().starts_with(prefix.as_bytes()));
        let mut found = all(&index);
        found.sort_by_key(|(key, _)| *key);
        assert!(found.iter().map(|(key, _)| key).eq(model.keys()), "{prefix:?}");
        while index.reap(100) {}
        check_account(&index, &segments, 0);
    }
}

/// A sweep finds every entry that uses the segment exactly once, in steps of any size.
#[test]
fn sweep_finds_every_entry_of_a_segment() {
    let mut random = Random::new(5);
    let index = Index::new(segments());
    let mut places = 0;
    let ops: Vec<Op> = (0..500).map(|_| put(&mut random, &mut places, &[])).collect();
    index.apply(&ops);
    for limit in [1, 3, 1_000] {
        let (mut found, mut cursor) = (Vec::new(), Some(SweepCursor::default()));
        while let Some(from) = cursor {
            cursor = index.sweep(2, from, limit, &mut found);
        }
        let expected: Vec<(Key, IndexEntry)> = all(&index)
            .into_iter()
            .filter(|(_, entry)| entry.record.segment == 2 || entry.content.segment == 2)
            .collect();
        found.sort_by_key(|(key, _)| *key);
        let mut expected = expected;
        expected.sort_by_key(|(key, _)| *key);
        assert_eq!(found, expected, "steps of {limit}");
    }
}
