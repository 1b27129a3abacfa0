//! All locks of an entity: found by index from their slot, ordered by end, grouped by holder.
//!
//! Two doubly linked lists run through one table, so that a million locks cost no more a piece than
//! one: by end of the lock (equal durations append at the tail) and by holder.

use std::collections::BTreeMap;

use super::slot::LockIndex;
use crate::ids::{LockToken, ReceiverId, SequenceNumber};
use crate::time::Timestamp;

/// One lock on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The token that settles it.
    pub token: LockToken,
    /// When it ends.
    pub until: Timestamp,
    /// Whose end releases it.
    pub holder: Option<ReceiverId>,
}

impl Lock {
    /// The locked message.
    #[must_use]
    pub const fn sequence(&self) -> SequenceNumber {
        self.token.sequence()
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct LockTable {
    nodes: Vec<Option<Node>>,
    free: Vec<LockIndex>,
    first: Option<LockIndex>,
    last: Option<LockIndex>,
    holders: BTreeMap<ReceiverId, LockIndex>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    lock: Lock,
    earlier: Option<LockIndex>,
    later: Option<LockIndex>,
    same_previous: Option<LockIndex>,
    same_next: Option<LockIndex>,
}

/// An emptied table keeps at most this many places.
const IDLE_PLACES_MAX: usize = 256;

impl LockTable {
    /// How many locks there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lock at a place.
    #[must_use]
    pub fn get(&self, index: LockIndex) -> Option<&Lock> {
        self.node(index).map(|node| &node.lock)
    }

    /// The lock that ends first.
    #[must_use]
    pub fn first(&self) -> Option<&Lock> {
        self.get(self.first?)
    }

    /// Some lock of a holder.
    #[must_use]
    pub fn first_of(&self, holder: ReceiverId) -> Option<&Lock> {
        self.get(*self.holders.get(&holder)?)
    }

    /// Adds a lock; `None` if there are four billion already.
    pub fn insert(&mut self, lock: Lock) -> Option<LockIndex> {
        let node = Node { lock, earlier: None, later: None, same_previous: None, same_next: None };
        let index = if let Some(index) = self.free.pop() {
            *self.nodes.get_mut(index.place())? = Some(node);
            index
        } else {
            let index = LockIndex::new(self.nodes.len())?;
            self.nodes.push(Some(node));
            index
        };
        self.link_by_time(index, lock.until);
        if let Some(holder) = lock.holder {
            let next = self.holders.insert(holder, index);
            self.change(Some(index), |node| node.same_next = next);
            self.change(next, |node| node.same_previous = Some(index));
        }
        Some(index)
    }

    /// Removes and returns a lock.
    pub fn remove(&mut self, index: LockIndex) -> Option<Lock> {
        let node = *self.node(index)?;
        self.unlink_by_time(&node);
        if let Some(holder) = node.lock.holder {
            match (node.same_previous, node.same_next) {
                (None, None) => {
                    self.holders.remove(&holder);
                }
                (None, Some(next)) => {
                    self.holders.insert(holder, next);
                }
                (Some(_), _) => {}
            }
            self.change(node.same_previous, |previous| previous.same_next = node.same_next);
            self.change(node.same_next, |next| next.same_previous = node.same_previous);
        }
        *self.nodes.get_mut(index.place())? = None;
        self.free.push(index);
        if self.is_empty() {
            self.free.clear();
            self.nodes.clear();
            self.nodes.shrink_to(IDLE_PLACES_MAX);
            self.free.shrink_to(IDLE_PLACES_MAX);
        }
        Some(node.lock)
    }

    /// Moves the end of a lock.
    pub fn renew(&mut self, index: LockIndex, until: Timestamp) {
        let Some(node) = self.node(index).copied() else { return };
        self.unlink_by_time(&node);
        self.change(Some(index), |node| node.lock.until = until);
        self.link_by_time(index, until);
    }

    /// All locks, in no particular order that a caller may rely on.
    pub fn iter(&self) -> impl Iterator<Item = (LockIndex, &Lock)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(place, node)| Some((LockIndex::new(place)?, &node.as_ref()?.lock)))
    }

    fn node(&self, index: LockIndex) -> Option<&Node> {
        self.nodes.get(index.place())?.as_ref()
    }

    fn change(&mut self, index: Option<LockIndex>, change: impl FnOnce(&mut Node)) {
        if let Some(node) = index.and_then(|index| self.nodes.get_mut(index.place())?.as_mut()) {
            change(node);
        }
    }

    /// Puts a lock behind all that end no later. With equal durations that is the tail at once.
    fn link_by_time(&mut self, index: LockIndex, until: Timestamp) {
        let mut earlier = self.last;
        while let Some(candidate) = earlier.and_then(|earlier| self.node(earlier)) {
            if candidate.lock.until <= until {
                break;
            }
            earlier = candidate.earlier;
        }
        let later = match earlier {
            Some(earlier) => self.node(earlier).and_then(|node| node.later),
            None => self.first,
        };
        self.change(Some(index), |node| {
            node.earlier = earlier;
            node.later = later;
        });
        match earlier {
            Some(_) => self.change(earlier, |node| node.later = Some(index)),
            None => self.first = Some(index),
        }
        match later {
            Some(_) => self.change(later, |node| node.earlier = Some(index)),
            None => self.last = Some(index),
        }
    }

    fn unlink_by_time(&mut self, node: &Node) {
        match node.earlier {
            Some(_) => self.change(node.earlier, |earlier| earlier.later = node.later),
            None => self.first = node.later,
        }
        match node.later {
            Some(_) => self.change(node.later, |later| later.earlier = node.earlier),
            None => self.last = node.earlier,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares both lists with a plain list while locks come, go and move at random.
    #[test]
    fn agrees_with_a_plain_list() {
        let mut seed = 0x853c_49e6_748f_ea9b_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut table = LockTable::default();
        let mut plain: Vec<(LockIndex, Lock)> = Vec::new();
        for round in 0..20_000u64 {
            let until = Timestamp::from_ticks(i64::try_from(random(40)).unwrap_or(0));
            match random(5) {
                0 | 1 => {
                    let holder = (random(3) > 0).then(|| ReceiverId(random(4)));
                    let token = LockToken::new(SequenceNumber(round), random(u64::MAX));
                    let lock = Lock { token, until, holder };
                    plain.push((table.insert(lock).expect("there is room"), lock));
                }
                2 | 3 if !plain.is_empty() => {
                    let place = usize::try_from(random(plain.len() as u64)).unwrap_or(0);
                    let (index, lock) = plain.swap_remove(place);
                    assert_eq!(table.remove(index), Some(lock));
                }
                _ if !plain.is_empty() => {
                    let place = usize::try_from(random(plain.len() as u64)).unwrap_or(0);
                    let (index, lock) = plain.get_mut(place).expect("a place in the list");
                    table.renew(*index, until);
                    lock.until = until;
                }
                _ => {}
            }
            assert_eq!(table.len(), plain.len());
            let earliest = plain.iter().map(|(_, lock)| lock.until).min();
            assert_eq!(table.first().map(|lock| lock.until), earliest);
            for holder in (0..4).map(ReceiverId) {
                let held = plain.iter().any(|(_, lock)| lock.holder == Some(holder));
                assert_eq!(table.first_of(holder).is_some(), held);
                assert!(table.first_of(holder).is_none_or(|lock| lock.holder == Some(holder)));
            }
        }
    }
}
