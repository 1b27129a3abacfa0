//! Leaves: the tables of a log. Each shard has its own ring.

use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_store::StoreError;
use peeklock_store_log::{Flaw, Index, LogPosition, LogSegment, SegmentState, Segments};

/// A table with consecutive rows of the log of a shard.
pub struct Leaf {
    state: SegmentState,
    /// Number of the table, which gets other leaves later.
    pub slot: i32,
    capacity: AtomicU64,
}

/// The leaves of a shard that have rows.
pub type Leaves = Segments<Leaf>;
/// The keys of a shard.
pub type LeafIndex = Index<Leaf>;

/// Maximum number of tables of a shard.
pub const SLOTS_PER_SHARD: i32 = 4_096;
/// Limits of the bytes of a leaf. Positions in it have 32 bits, and an append may begin below the
/// limit and end above it.
pub const LEAF_BYTES_MIN: u64 = 64 << 10;
pub const LEAF_BYTES_MAX: u64 = 1 << 30;
/// Divisor for the part of a large log that a leaf has.
const LEAF_PART: u64 = 16;

/// Bytes of the next leaf of a log with `used` bytes in use. `least` is the configured size.
pub fn capacity(least: u64, used: u64) -> u64 {
    (used / LEAF_PART).clamp(least, LEAF_BYTES_MAX.max(least))
}

impl Leaf {
    pub fn new(number: u32, slot: i32, capacity: u64) -> Self {
        Self { state: SegmentState::new(number, 0), slot, capacity: AtomicU64::new(capacity) }
    }

    /// Whether the next leaf begins.
    pub fn is_full(&self) -> bool {
        self.end() >= self.capacity.load(Ordering::Acquire)
    }

    /// Sets the number of bytes from which on the next leaf begins.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Release);
    }

    /// The name of its table.
    pub fn table(&self) -> String {
        table_of(self.slot)
    }

    /// The place of cached bytes. Each shard numbers its leaves by itself, and all shards have one
    /// cache: so the number of the shard is in the upper 8 bits. The rest is unique among the leaves
    /// that the cache can hold.
    pub fn cache_place(&self, offset: u32) -> LogPosition {
        let shard = u32::try_from(self.slot / SLOTS_PER_SHARD).unwrap_or_default();
        LogPosition { segment: shard << 24 | self.number() & 0x00FF_FFFF, offset }
    }

    /// The error for damage at an offset.
    pub fn damaged(&self, offset: u32, flaw: Flaw) -> StoreError {
        let (table, number) = (self.table(), self.number());
        StoreError::Damaged(format!("table `{table}`, leaf {number}, at {offset}: {flaw}").into())
    }
}

impl LogSegment for Leaf {
    fn state(&self) -> &SegmentState {
        &self.state
    }
}

/// The table with a number.
pub fn table_of(slot: i32) -> String {
    format!("log_{slot}")
}

/// The number of a table; `None` for other names.
pub fn slot_of(table: &str) -> Option<i32> {
    let slot: i32 = table.strip_prefix("log_")?.parse().ok()?;
    (slot >= 0 && table_of(slot) == table).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_grow_with_the_log_to_a_bound() {
        assert_eq!(capacity(16 << 20, 0), 16 << 20);
        assert_eq!(capacity(16 << 20, 1 << 30), 64 << 20);
        assert_eq!(capacity(16 << 20, 1 << 50), LEAF_BYTES_MAX);
    }

    #[test]
    fn tables_have_exact_names() {
        assert_eq!(slot_of("log_17"), Some(17));
        for other in ["log_017", "log_-1", "log_x", "log_", "blog_1", "log_99999999999"] {
            assert_eq!(slot_of(other), None, "{other}");
        }
    }

    /// Leaves of different shards have the same numbers, but no common place in the cache.
    #[test]
    fn cached_places_of_shards_differ() {
        let place =
            |shard: i32, number| Leaf::new(number, shard * SLOTS_PER_SHARD, 1).cache_place(8);
        assert_eq!(place(0, 1), LogPosition { segment: 1, offset: 8 });
        assert_ne!(place(0, 1), place(1, 1));
        assert_ne!(place(255, 1), place(254, 1));
        assert_ne!(place(255, 1), place(255, 2));
    }
}
