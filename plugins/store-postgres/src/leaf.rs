//! Leaves: the tables of a log. Each shard has its own ring.

use peeklock_store::StoreError;
use peeklock_store_log::{Flaw, Index, LogSegment, SegmentState, Segments};

/// A table with consecutive rows of the log of a shard.
pub struct Leaf {
    state: SegmentState,
    /// Number of the table, which gets other leaves later.
    pub slot: i32,
}

/// The leaves of a shard that have rows.
pub type Leaves = Segments<Leaf>;
/// The keys of a shard.
pub type LeafIndex = Index<Leaf>;

/// Number of tables that a shard can have.
pub const SLOTS_PER_SHARD: i32 = 4_096;

impl Leaf {
    pub fn new(number: u32, slot: i32) -> Self {
        Self { state: SegmentState::new(number, 0), slot }
    }

    /// The name of its table.
    pub fn table(&self) -> String {
        table_of(self.slot)
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
    let slot = table.strip_prefix("log_")?.parse().ok()?;
    (table_of(slot) == table).then_some(slot)
}
