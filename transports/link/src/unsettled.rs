//! Table of unsettled deliveries: found by lock token across all links of a connection, and by
//! number within one link. The links maintain it. Invariant: both indexes contain the same
//! deliveries.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use peeklock_core::command::LockGrant;
use peeklock_core::ids::LockToken;
use peeklock_core::time::Timestamp;

/// Map with lock tokens as keys.
pub type ByToken<T> = HashMap<LockToken, T, BuildHasherDefault<TokenHasher>>;

/// Releases memory if the table has far more capacity than entries.
pub fn shrink<T>(table: &mut ByToken<T>) {
    let enough = 2 * table.len();
    if table.capacity() > 2 * enough {
        table.shrink_to(enough);
    }
}

/// Hashes lock tokens without a seed: the broker makes them, with random bits, so no client can
/// choose colliding ones.
#[derive(Default, Debug)]
pub struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, token: u128) {
        #[expect(clippy::cast_possible_truncation, reason = "both halves are already taken")]
        let halves = (token as u64, (token >> 64) as u64);
        self.0 = halves.0 ^ halves.1.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Position of a delivery: its link, and its number on that link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliveryPosition {
    /// Number of the link.
    pub link: u32,
    /// Number of the delivery.
    pub number: u64,
}

/// Result of looking up ranges of delivery numbers.
#[derive(Debug, Default)]
pub struct RangeLookup {
    /// Number and lock token of each unsettled delivery.
    pub held: Vec<(u64, LockToken)>,
    /// Ranges of requested numbers without an unsettled delivery, both ends included. Each
    /// requested range starts at most one gap, and each delivery in `held` at most one more. So
    /// there are no more gaps than deliveries and requested ranges together.
    pub gaps: Vec<(u64, u64)>,
}

/// Unsettled deliveries of a connection.
#[derive(Default)]
pub struct Unsettled {
    by_lock: ByToken<DeliveryPosition>,
    by_link: HashMap<u32, BTreeMap<u64, LockGrant>>,
}

impl Unsettled {
    /// Adds a delivery. Returns the number of unsettled deliveries of its link.
    pub fn insert(&mut self, held: DeliveryPosition, lock: LockGrant) -> u32 {
        self.by_lock.insert(lock.token, held);
        let of_link = self.by_link.entry(held.link).or_default();
        of_link.insert(held.number, lock);
        u32::try_from(of_link.len()).unwrap_or(u32::MAX)
    }

    /// The delivery with this lock token.
    #[must_use]
    pub fn find_by_lock(&self, token: LockToken) -> Option<DeliveryPosition> {
        self.by_lock.get(&token).copied()
    }

    /// Removes the delivery with this lock token; returns its position.
    pub fn remove(&mut self, token: LockToken) -> Option<DeliveryPosition> {
        let held = self.by_lock.remove(&token)?;
        if let Some(of_link) = self.by_link.get_mut(&held.link) {
            of_link.remove(&held.number);
        }
        Some(held)
    }

    /// Records the new end of a renewed lock.
    pub fn record_renewal(&mut self, token: LockToken, until: Timestamp) {
        let Some(held) = self.by_lock.get(&token) else { return };
        let of_link = self.by_link.get_mut(&held.link);
        if let Some(lock) = of_link.and_then(|of_link| of_link.get_mut(&held.number)) {
            lock.until = until;
        }
    }

    /// Records the new end of all locks of a link.
    pub fn record_renewals(&mut self, link: u32, until: Timestamp) {
        for lock in self.by_link.get_mut(&link).into_iter().flat_map(BTreeMap::values_mut) {
            lock.until = until;
        }
    }

    /// Number of unsettled deliveries of a link.
    #[must_use]
    pub fn count(&self, link: u32) -> u32 {
        let count = self.by_link.get(&link).map_or(0, BTreeMap::len);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Whether no delivery is unsettled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_lock.is_empty()
    }

    /// Removes the deliveries of a link whose locks end at `now` or before.
    pub fn remove_ended(&mut self, link: u32, now: Timestamp) {
        let Some(of_link) = self.by_link.get_mut(&link) else { return };
        of_link.retain(|_, lock| {
            let is_held = lock.until > now;
            if !is_held {
                self.by_lock.remove(&lock.token);
            }
            is_held
        });
    }

    /// Releases memory if the table has far more capacity than entries.
    pub fn shrink(&mut self) {
        shrink(&mut self.by_lock);
    }

    /// Removes all deliveries of a link.
    pub fn remove_link(&mut self, link: u32) {
        for lock in self.by_link.remove(&link).into_iter().flat_map(BTreeMap::into_values) {
            self.by_lock.remove(&lock.token);
        }
    }

    /// Looks up ranges of delivery numbers of a link, both ends included. None if they contain more
    /// than `count_max` unsettled deliveries.
    #[must_use]
    pub fn lookup_ranges(
        &self,
        link: u32,
        ranges: impl Iterator<Item = (u64, u64)>,
        count_max: usize,
    ) -> Option<RangeLookup> {
        let none = BTreeMap::new();
        let of_link = self.by_link.get(&link).unwrap_or(&none);
        let mut named = RangeLookup::default();
        for (from, to) in ranges.filter(|(from, to)| from <= to) {
            let mut next = Some(from);
            for (number, lock) in of_link.range(from..=to) {
                if named.held.len() == count_max {
                    return None;
                }
                if let Some(first) = next
                    && first < *number
                {
                    gap(&mut named.gaps, first, number - 1);
                }
                next = number.checked_add(1);
                named.held.push((*number, lock.token));
            }
            if let Some(first) = next
                && first <= to
            {
                gap(&mut named.gaps, first, to);
            }
        }
        Some(named)
    }
}

/// Adds a gap, or extends the last one if they touch or overlap.
fn gap(gaps: &mut Vec<(u64, u64)>, from: u64, to: u64) {
    match gaps.last_mut() {
        Some((first, last)) if from >= *first && from <= last.saturating_add(1) => {
            *last = to.max(*last);
        }
        Some(_) | None => gaps.push((from, to)),
    }
}
