//! Paths in the order of their keys, so that a list starts at its place instead of being made and sorted
//! anew: pieces of at most 512 paths, of which one is moved when a path comes or goes.

use std::sync::Arc;

use crate::path::PathKey;

/// A piece with more is cut in two.
const PIECE_COUNT_MAX: usize = 512;

/// Paths by key, counted.
#[derive(Default)]
pub(super) struct Order {
    /// None is empty; the keys of one are below those of the next.
    pieces: Vec<Vec<(PathKey, Arc<str>)>>,
}

impl Order {
    pub(super) fn insert(&mut self, key: PathKey, path: Arc<str>) {
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

    pub(super) fn remove(&mut self, key: &PathKey) {
        let at = self.piece_of(key);
        let Some(piece) = self.pieces.get_mut(at) else { return };
        if let Ok(place) = piece.binary_search_by(|(known, _)| known.cmp(key)) {
            piece.remove(place);
        }
        if piece.is_empty() {
            self.pieces.remove(at);
        }
    }

    /// Those whose keys begin with `prefix`, `top` of them after `skip`.
    pub(super) fn list(&self, prefix: &str, skip: usize, top: usize) -> Vec<Arc<str>> {
        let mut at = self
            .pieces
            .partition_point(|piece| piece.last().is_some_and(|(last, _)| last.as_str() < prefix));
        let before = self
            .pieces
            .get(at)
            .map_or(0, |piece| piece.partition_point(|(key, _)| key.as_str() < prefix));
        let mut skip = before.saturating_add(skip);
        // Whole pieces are passed over by their length.
        while let Some(piece) = self.pieces.get(at).filter(|piece| piece.len() <= skip) {
            skip -= piece.len();
            at += 1;
        }
        let found = self.pieces.get(at..).into_iter().flatten().flatten().skip(skip);
        found
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .take(top)
            .map(|(_, path)| Arc::clone(path))
            .collect()
    }

    /// The piece that has a key or would take it.
    fn piece_of(&self, key: &PathKey) -> usize {
        let behind = self
            .pieces
            .partition_point(|piece| piece.first().is_some_and(|(first, _)| first <= key));
        behind.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::path::EntityAddress;

    fn key(path: &str) -> PathKey {
        EntityAddress::parse(path).expect("a path").entity.key()
    }

    /// ENT-30: lists by prefix, from any place on, agree with a plain map while paths come and go.
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

    /// ENT-30: four thousand lists of one path each take no longer for ten thousand entities, as nobody
    /// sorts them; they took 20 s.
    #[test]
    fn a_list_costs_what_it_lists() {
        let mut order = Order::default();
        for number in 0..10_000 {
            let path = format!("queue-{number:05}");
            order.insert(key(&path), Arc::from(path.as_str()));
        }
        assert!(order.pieces.iter().all(|piece| piece.len() <= PIECE_COUNT_MAX));
        for skip in 0..4_096usize {
            let [path] = &order.list("", skip, 1)[..] else { panic!("one is listed") };
            assert_eq!(**path, format!("queue-{skip:05}"));
        }
    }
}
