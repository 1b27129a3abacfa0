//! All locks of an entity: found by index from their slot, ordered by end, grouped by holder.
//!
//! Two doubly linked lists run through one table, by end and by holder, so each operation has
//! constant cost with a million locks too. A lock that ends no sooner than all others in the list
//! goes to the tail of the list; this is the case while durations are equal. A lock that ends
//! sooner, because LockDuration was lowered or the clock set back, goes to an ordered set instead
//! of being inserted into the list.

use std::collections::{BTreeMap, BTreeSet};

use super::slot::LockIndex;
use crate::ids::{LockToken, ReceiverId, SequenceNumber};
use crate::time::{TimeSpan, Timestamp};

/// A lock on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The token that settles it.
    pub token: LockToken,
    /// Instant of its end.
    pub until: Timestamp,
    /// Holder whose end releases it.
    pub holder: Option<ReceiverId>,
    /// Instant at which it was taken.
    pub taken_at: Timestamp,
}

impl Lock {
    /// The locked message.
    #[must_use]
    pub const fn sequence(&self) -> SequenceNumber {
        self.token.sequence()
    }
}

/// Table of all locks of an entity.
#[derive(Debug, Default)]
pub struct LockTable {
    nodes: Vec<Option<Node>>,
    free: Vec<LockIndex>,
    first: Option<LockIndex>,
    last: Option<LockIndex>,
    /// Locks that ended sooner than the tail of the list when they were added.
    out_of_order: BTreeSet<(Timestamp, LockIndex)>,
    holders: BTreeMap<ReceiverId, Holder>,
    /// Number of places examined, for tests.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    lock: Lock,
    renewals: u32,
    order: Order,
    earlier: Option<LockIndex>,
    later: Option<LockIndex>,
    same_previous: Option<LockIndex>,
    same_next: Option<LockIndex>,
}

const _: () = assert!(size_of::<Option<Node>>() <= 80, "a lock takes at most 80 bytes (CON-25)");

/// Locks of a holder, in the order in which they were taken.
#[derive(Debug, Clone, Copy)]
struct Holder {
    first: LockIndex,
    last: LockIndex,
    count: usize,
}

/// Structure that orders a lock by its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    List,
    Set,
}

/// Maximum number of places that an emptied table keeps.
const IDLE_PLACES_MAX: usize = 256;

impl LockTable {
    /// Number of locks.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lock at a place.
    #[must_use]
    pub fn get(&self, index: LockIndex) -> Option<&Lock> {
        self.node(index).map(|node| &node.lock)
    }

    /// Number of renewals of the lock at a place.
    #[must_use]
    pub fn renewals(&self, index: LockIndex) -> u32 {
        self.node(index).map_or(0, |node| node.renewals)
    }

    /// The lock that ends first.
    #[must_use]
    pub fn first(&self) -> Option<&Lock> {
        let listed = self.first.and_then(|first| self.get(first));
        match (listed, self.out_of_order.first()) {
            (Some(listed), Some((until, index))) if *until < listed.until => self.get(*index),
            (Some(listed), _) => Some(listed),
            (None, out_of_order) => self.get(out_of_order?.1),
        }
    }

    /// The lock that a holder took first.
    #[must_use]
    pub fn first_of(&self, holder: ReceiverId) -> Option<&Lock> {
        self.get(self.holders.get(&holder)?.first)
    }

    /// Number of locks of a holder.
    #[must_use]
    pub fn len_of(&self, holder: ReceiverId) -> usize {
        self.holders.get(&holder).map_or(0, |holder| holder.count)
    }

    /// Adds a lock; returns `None` if the table has four billion locks.
    pub fn insert(&mut self, lock: Lock) -> Option<LockIndex> {
        let node = Node {
            lock,
            renewals: 0,
            order: Order::List,
            earlier: None,
            later: None,
            same_previous: None,
            same_next: None,
        };
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
            let none = Holder { first: index, last: index, count: 0 };
            let holder = self.holders.entry(holder).or_insert(none);
            let previous = (holder.count > 0).then_some(holder.last);
            holder.last = index;
            holder.count += 1;
            self.change(Some(index), |node| node.same_previous = previous);
            self.change(previous, |node| node.same_next = Some(index));
        }
        Some(index)
    }

    /// Removes and returns a lock.
    pub fn remove(&mut self, index: LockIndex) -> Option<Lock> {
        let node = *self.node(index)?;
        self.unlink_by_time(index, &node);
        if let Some(id) = node.lock.holder
            && let Some(holder) = self.holders.get_mut(&id)
        {
            holder.count -= 1;
            match (node.same_previous, node.same_next) {
                (None, None) => {
                    self.holders.remove(&id);
                }
                (None, Some(next)) => holder.first = next,
                (Some(previous), None) => holder.last = previous,
                (Some(_), Some(_)) => {}
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

    /// Changes the end of a lock, and counts the renewal.
    pub fn renew(&mut self, index: LockIndex, until: Timestamp) {
        let Some(node) = self.node(index).copied() else { return };
        self.unlink_by_time(index, &node);
        self.change(Some(index), |node| {
            node.lock.until = until;
            node.renewals = node.renewals.saturating_add(1);
        });
        self.link_by_time(index, until);
    }

    /// Lets all locks end later by the same time.
    pub fn prolong(&mut self, span: TimeSpan) {
        for node in self.nodes.iter_mut().flatten() {
            node.lock.until = node.lock.until.plus(span);
        }
        let earlier = std::mem::take(&mut self.out_of_order).into_iter();
        self.out_of_order = earlier.map(|(until, index)| (until.plus(span), index)).collect();
    }

    /// Iterates over all locks, in no guaranteed order.
    pub fn iter(&self) -> impl Iterator<Item = (LockIndex, &Lock)> {
        self.iter_places(0, self.nodes.len())
    }

    /// Number of places, with or without a lock.
    #[must_use]
    pub const fn place_count(&self) -> usize {
        self.nodes.len()
    }

    /// Iterates over the locks at `count_max` places from place `from` on.
    pub fn iter_places(
        &self,
        from: usize,
        count_max: usize,
    ) -> impl Iterator<Item = (LockIndex, &Lock)> {
        let places = self.nodes.iter().enumerate().skip(from).take(count_max);
        places.filter_map(move |(place, node)| {
            self.count_look();
            Some((LockIndex::new(place)?, &node.as_ref()?.lock))
        })
    }

    /// Counts an examined place. Tests check that operations examine a bounded number of places.
    #[inline]
    fn count_look(&self) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
    }

    fn node(&self, index: LockIndex) -> Option<&Node> {
        self.count_look();
        self.nodes.get(index.place())?.as_ref()
    }

    fn change(&mut self, index: Option<LockIndex>, change: impl FnOnce(&mut Node)) {
        self.count_look();
        if let Some(node) = index.and_then(|index| self.nodes.get_mut(index.place())?.as_mut()) {
            change(node);
        }
    }

    /// Links a lock by its end: at the tail of the list, or in the set if the tail ends later.
    fn link_by_time(&mut self, index: LockIndex, until: Timestamp) {
        let last = self.last;
        if last.and_then(|last| self.get(last)).is_some_and(|last| last.until > until) {
            self.out_of_order.insert((until, index));
            self.change(Some(index), |node| node.order = Order::Set);
            return;
        }
        self.change(Some(index), |node| {
            (node.order, node.earlier, node.later) = (Order::List, last, None);
        });
        match last {
            Some(_) => self.change(last, |last| last.later = Some(index)),
            None => self.first = Some(index),
        }
        self.last = Some(index);
    }

    fn unlink_by_time(&mut self, index: LockIndex, node: &Node) {
        if node.order == Order::Set {
            self.out_of_order.remove(&(node.lock.until, index));
            return;
        }
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

    /// Ten thousand long locks, then as many short ones, each of which is renewed and ended: every
    /// operation examines only the lock, its neighbours, and the ends of its lists.
    #[test]
    fn lock_table_places_short_locks_after_long_ones_without_search() {
        const COUNT: u64 = 10_000;
        const LOOKS_MAX: usize = 8;
        let mut table = LockTable::default();
        let lock = |number: u64, until: u64| Lock {
            token: LockToken::new(SequenceNumber(number), 1),
            until: Timestamp::from_ticks(i64::try_from(until).expect("small")),
            holder: (!number.is_multiple_of(4)).then_some(ReceiverId(number % 4)),
            taken_at: Timestamp::NONE,
        };
        let looked = |table: &LockTable, action: &str| {
            let looks = table.looks.take();
            assert!(looks <= LOOKS_MAX, "to {action} a lock looks at {looks} of {}", table.len());
        };
        let (mut long, mut short) = (Vec::new(), Vec::new());
        for number in 0..COUNT {
            long.push(table.insert(lock(number, 1_000_000 + number)).expect("there is room"));
            looked(&table, "insert");
        }
        for number in 0..COUNT {
            // Neither the first nor the last to end.
            let until = number * 7_919 % COUNT;
            short.push(table.insert(lock(COUNT + number, until)).expect("there is room"));
            looked(&table, "insert behind longer ones");
        }
        let later = Timestamp::from_ticks(2_000_000);
        for (number, (short, long)) in (0..COUNT).zip(short.iter().zip(&long)) {
            table.renew(*short, Timestamp::from_ticks(500_000));
            looked(&table, "renew");
            table.renew(*long, later);
            looked(&table, "renew");
            if number % 2 == 0 {
                assert!(table.remove(*short).is_some());
                looked(&table, "remove");
            }
            let earliest = table.first().map(|lock| lock.until);
            looked(&table, "find");
            assert!(earliest <= Some(Timestamp::from_ticks(500_000)));
        }
        assert_eq!(table.len(), 15_000);
    }

    /// Compares both lists with a plain list while locks are added, removed and renewed at random.
    #[test]
    fn lock_table_agrees_with_a_plain_list() {
        let mut seed = 0x853c_49e6_748f_ea9b_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut table = LockTable::default();
        let mut plain: Vec<(LockIndex, Lock, u32)> = Vec::new();
        for round in 0..20_000u64 {
            let until = Timestamp::from_ticks(i64::try_from(random(40)).unwrap_or(0));
            match random(5) {
                0 | 1 => {
                    let holder = (random(3) > 0).then(|| ReceiverId(random(4)));
                    let token = LockToken::new(SequenceNumber(round), random(u64::MAX));
                    let taken_at = Timestamp::from_ticks(i64::try_from(round).unwrap_or(0));
                    let lock = Lock { token, until, holder, taken_at };
                    plain.push((table.insert(lock).expect("there is room"), lock, 0));
                }
                2 | 3 if !plain.is_empty() => {
                    let place = usize::try_from(random(plain.len() as u64)).unwrap_or(0);
                    let (index, lock, renewals) = plain.swap_remove(place);
                    assert_eq!(table.renewals(index), renewals);
                    assert_eq!(table.remove(index), Some(lock));
                }
                _ if !plain.is_empty() => {
                    let place = usize::try_from(random(plain.len() as u64)).unwrap_or(0);
                    let (index, lock, renewals) =
                        plain.get_mut(place).expect("a place in the list");
                    table.renew(*index, until);
                    (lock.until, *renewals) = (until, *renewals + 1);
                }
                _ => {}
            }
            assert_eq!(table.len(), plain.len());
            let earliest = plain.iter().map(|(_, lock, _)| lock.until).min();
            assert_eq!(table.first().map(|lock| lock.until), earliest);
            for holder in (0..4).map(ReceiverId) {
                let held = plain.iter().filter(|(_, lock, _)| lock.holder == Some(holder));
                assert_eq!(table.len_of(holder), held.clone().count());
                let first = held.map(|(_, lock, _)| lock.sequence()).min();
                assert_eq!(table.first_of(holder).map(Lock::sequence), first);
            }
            if round % 97 == 0 {
                let step = 1 + usize::try_from(random(30)).unwrap_or(0);
                let in_slices = (0..table.place_count()).step_by(step);
                let found: Vec<_> = in_slices
                    .flat_map(|from| table.iter_places(from, step))
                    .map(|(index, lock)| (index, *lock))
                    .collect();
                let mut expected: Vec<_> =
                    plain.iter().map(|(index, lock, _)| (*index, *lock)).collect();
                expected.sort_by_key(|(index, _)| *index);
                assert_eq!(found, expected);
            }
        }
    }
}
