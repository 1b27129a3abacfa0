//! Tests of dropped groups in the memory store: they disappear at once and are freed in slices.

use super::*;

const SPACE: u64 = 7;
/// Many times the number of records that a submission frees.
const COUNT: u32 = 20 * 1_024;

/// A key in a group, like the message ids of a bucket.
fn grouped(group: u8, number: u32) -> Key {
    prefix(group).then(&[0; 12]).then(&number.to_be_bytes())
}

fn prefix(group: u8) -> Key {
    Key::of_space(SPACE).then(&[5]).then(&[0; 7]).then(&[group])
}

/// A batch with a record before the groups, a record after them, and `count` records in each group.
fn filled(groups: &[u8], count: u32) -> Batch {
    let mut batch = Batch::default();
    batch.put(&Key::of_space(SPACE).then(&[9]), |to| to.push(1));
    for number in 0..count {
        for group in groups {
            batch.put(&grouped(*group, number), |to| to.push(2));
        }
    }
    batch.put(&prefix(1), |to| to.push(3));
    batch
}

struct Owner {
    store: MemoryStore,
    fence: Fence,
    next: BatchId,
}

impl Owner {
    fn new() -> Self {
        let store = MemoryStore::new(1, u64::MAX);
        let (fence, next) = peeklock_store_testing::block_on(store.acquire(Shard(0))).unwrap();
        Self { store, fence, next }
    }

    fn store(&mut self, batch: Batch) {
        let submission =
            Submission { id: self.next, fences: vec![self.fence], batch: Arc::new(batch) };
        self.store.submit(submission, Box::new(|result| result.unwrap()));
        self.next = BatchId(self.next.0 + 1);
    }

    fn keys(&self, prefix: &Key) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut records = self.store.scan(prefix);
        let scanned = records.for_each(|key, _| keys.push(key.to_vec()));
        peeklock_store_testing::block_on(scanned).unwrap();
        keys
    }

    /// Number of dropped records that are still in memory.
    fn dropped(&self) -> usize {
        lock(&self.store.spaces[0]).dropped.iter().map(|space| space.len()).sum()
    }
}

/// DUP-05, DESIGN D11: removing a group takes the same number of steps for any number of keys. It
/// disappears from all answers, counts no bytes, and later batches free it in slices.
#[test]
fn a_group_is_dropped_at_once_and_freed_in_slices() {
    let mut owner = Owner::new();
    owner.store(filled(&[2], 10));
    let without = owner.store.stored_bytes().unwrap();
    owner.store(filled(&[1], COUNT));
    assert!(owner.store.stored_bytes().unwrap() > without);
    let mut batch = Batch::default();
    batch.delete_prefix(&prefix(1));
    batch.put(&grouped(1, 5), |to| to.push(4));
    owner.store(batch);
    let left = COUNT as usize - REAPED_PER_SUBMISSION;
    assert!((left - 16..left).contains(&owner.dropped()), "{} are left", owner.dropped());
    assert_eq!(owner.keys(&prefix(1)), [grouped(1, 5).as_bytes().to_vec()]);
    let mut batch = Batch::default();
    batch.delete(&grouped(1, 5));
    batch.put(&prefix(1), |to| to.push(3));
    owner.store(batch);
    assert_eq!(owner.store.stored_bytes().unwrap(), without);
    let mut rounds = 0;
    while owner.dropped() > 0 {
        owner.store(Batch::default());
        rounds += 1;
    }
    assert_eq!(rounds, left / REAPED_PER_SUBMISSION - 1);
    assert_eq!(owner.keys(&prefix(2)).len(), 10);
}

/// DESIGN D11: scans return keys in order, in groups or not, and a prefix of any length removes
/// exactly the keys that begin with it.
#[test]
fn groups_and_single_keys_are_in_order() {
    let mut owner = Owner::new();
    owner.store(filled(&[1, 2], 3));
    let expected: Vec<Vec<u8>> = [prefix(1)]
        .into_iter()
        .chain(
            [1, 2].into_iter().flat_map(|group| (0..3).map(move |number| grouped(group, number))),
        )
        .chain([Key::of_space(SPACE).then(&[9])])
        .map(|key| key.as_bytes().to_vec())
        .collect();
    assert_eq!(owner.keys(&Key::of_space(SPACE)), expected);
    assert_eq!(owner.keys(&prefix(2)), expected[4..7]);
    assert_eq!(owner.keys(&grouped(2, 1)), expected[5..6]);
    let mut batch = Batch::default();
    batch.delete_prefix(&grouped(1, 1).cut(SPACE_BYTES + 20));
    batch.delete_prefix(&grouped(2, 1));
    owner.store(batch);
    let keys = [&expected[..1], &expected[4..5], &expected[6..]].concat();
    assert_eq!(owner.keys(&Key::of_space(SPACE)), keys);
    let mut batch = Batch::default();
    batch.delete_prefix(&Key::of_space(SPACE).then(&[5]));
    owner.store(batch);
    assert_eq!(owner.keys(&Key::of_space(SPACE)), expected[7..]);
    let mut batch = Batch::default();
    batch.delete_prefix(&Key::of_space(SPACE));
    owner.store(batch);
    assert_eq!(owner.store.stored_bytes(), Some(0));
}
