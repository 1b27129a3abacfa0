//! Paths in the order of their keys, so that a list starts in place without sorting. They are kept
//! in pieces of at most 512 paths; an insertion or removal moves only one piece.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::path::PathKey;

/// Maximum number of paths in a piece; a longer one is split in two.
const PIECE_COUNT_MAX: usize = 512;

/// Paths by key. Generic so that tests can use keys that count comparisons.
pub(super) struct Order<K = PathKey> {
    /// No piece is empty; the keys of a piece are below those in the next.
    pieces: Vec<Vec<(K, Arc<str>)>>,
}

impl<K> Default for Order<K> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<K: Ord + Borrow<str>> Order<K> {
    pub(super) fn insert(&mut self, key: K, path: Arc<str>) {
        let at = self.piece_of(&key);
        let Some(piece) = self.pieces.get_mut(at) else {
            self.pieces.push(vec![(key, path)]);
            return;
        };
        match piece.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(place) => {
                if let Some(entry) = piece.get_mut(place) {
                    entry.1 = path;
                }
            }
            Err(place) => piece.insert(place, (key, path)),
        }
        if piece.len() > PIECE_COUNT_MAX {
            let rest = piece.split_off(PIECE_COUNT_MAX / 2);
            self.pieces.insert(at + 1, rest);
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        let at = self.piece_of(key);
        let Some(piece) = self.pieces.get_mut(at) else { return };
        if let Ok(place) = piece.binary_search_by(|(known, _)| known.cmp(key)) {
            piece.remove(place);
        }
        if piece.is_empty() {
            self.pieces.remove(at);
        }
    }

    /// Returns the paths whose keys start with `prefix`: up to `top` after the first `skip`.
    pub(super) fn list(&self, prefix: &str, skip: usize, top: usize) -> Vec<Arc<str>> {
        let mut at = self
            .pieces
            .partition_point(|piece| piece.last().is_some_and(|(last, _)| text(last) < prefix));
        let before = self
            .pieces
            .get(at)
            .map_or(0, |piece| piece.partition_point(|(key, _)| text(key) < prefix));
        let mut skip = before.saturating_add(skip);
        // Skips whole pieces by their length.
        while let Some(piece) = self.pieces.get(at).filter(|piece| piece.len() <= skip) {
            skip -= piece.len();
            at += 1;
        }
        let found = self.pieces.get(at..).into_iter().flatten().flatten().skip(skip);
        found
            .take_while(|(key, _)| text(key).starts_with(prefix))
            .take(top)
            .map(|(_, path)| Arc::clone(path))
            .collect()
    }

    /// Index of the piece that has a key or would take it.
    fn piece_of(&self, key: &K) -> usize {
        let behind = self
            .pieces
            .partition_point(|piece| piece.first().is_some_and(|(first, _)| first <= key));
        behind.saturating_sub(1)
    }
}

fn text<K: Borrow<str>>(key: &K) -> &str {
    key.borrow()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;
    use std::collections::BTreeMap;

    use super::*;
    use crate::path::EntityAddress;

    fn key(path: &str) -> PathKey {
        EntityAddress::parse(path).expect("a path").entity.key()
    }

    /// ENT-30: lists by prefix, from any position, agree with a plain map while paths come and go.
    #[test]
    fn agrees_with_a_plain_map() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below).unwrap()
        };
        let mut order = Order::default();
        let mut plain: BTreeMap<PathKey, Arc<str>> = BTreeMap::new();
        for round in 0..30_000u64 {
            // It grows over several pieces, and shrinks again.
            let growing = round < 15_000;
            let path = format!("{}/Q{:05}", ["a", "b", "c"][random(3)], random(3_000));
            let key = key(&path);
            if random(4) > if growing { 0 } else { 2 } {
                order.insert(key.clone(), Arc::from(path.as_str()));
                plain.insert(key, Arc::from(path.as_str()));
            } else {
                order.remove(&key);
                plain.remove(&key);
            }
            if round % 50 == 0 {
                let prefix = ["", "a/", "b/", "b/q00", "d"][random(5)];
                let (skip, top) = (random(2_000), random(700));
                let wanted: Vec<&Arc<str>> = plain
                    .iter()
                    .filter(|(key, _)| key.as_str().starts_with(prefix))
                    .map(|(_, path)| path)
                    .skip(skip)
                    .take(top)
                    .collect();
                assert!(order.list(prefix, skip, top).iter().eq(wanted.into_iter()));
            }
        }
        assert_eq!(order.list("", 0, usize::MAX).len(), plain.len());
    }

    /// A key that counts comparisons.
    struct Counted<'c> {
        text: String,
        looks: &'c Cell<usize>,
    }

    impl Borrow<str> for Counted<'_> {
        fn borrow(&self) -> &str {
            self.looks.set(self.looks.get() + 1);
            &self.text
        }
    }

    impl Ord for Counted<'_> {
        fn cmp(&self, other: &Self) -> Ordering {
            text(self).cmp(&other.text)
        }
    }

    impl PartialOrd for Counted<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }

    impl Eq for Counted<'_> {}

    /// ENT-30: a list compares as many keys as a search plus its result; an insertion or removal as
    /// many as a search. Nothing is sorted, and keys are not passed one by one.
    #[test]
    fn list_visits_only_listed_entries() {
        const COUNT: usize = 10_000;
        // One search for the piece, and one within it.
        let search_max = 2 * COUNT.ilog2() as usize;
        let looks = Cell::new(0);
        let key = |number: usize| Counted { text: format!("queue-{number:05}"), looks: &looks };
        let mut order = Order::default();
        // Every number once, in scattered order.
        let scattered = || (0..COUNT).map(|number| number * 7_919 % COUNT);
        for number in scattered() {
            let key = key(number);
            let path = Arc::from(key.text.as_str());
            order.insert(key, path);
            assert!(looks.take() <= search_max, "the place of {number} was looked for one by one");
        }
        // Bounds the pieces that a list with a large `skip` passes.
        assert!(order.pieces.len() <= 2 * COUNT / PIECE_COUNT_MAX + 1);
        assert!(order.pieces.iter().all(|piece| piece.len() <= PIECE_COUNT_MAX));
        // All paths, and a tenth.
        for (prefix, first, count) in [("queue-", 0, COUNT), ("queue-07", 7_000, 1_000)] {
            for (skip, top) in (0..count).step_by(13).flat_map(|skip| [(skip, 1), (skip, 100)]) {
                looks.set(0);
                let listed = order.list(prefix, skip, top);
                assert!(looks.take() <= search_max + listed.len() + 1, "{prefix} {skip} {top}");
                let wanted = (skip..count.min(skip + top)).map(|at| key(first + at).text);
                assert!(listed.iter().map(|path| path.to_string()).eq(wanted));
            }
        }
        for number in scattered() {
            let key = key(number);
            order.remove(&key);
            assert!(looks.take() <= search_max, "{number} was looked for one by one");
        }
        assert!(order.pieces.is_empty());
    }
}
