//! Room: the bytes that the store accepts, and the callers that wait for more.
//!
//! Sends reserve room before they are applied. They are refused as Busy while many bytes are not
//! stored yet, such as during an outage, and as Full above the capacity or while the disk of the
//! database is full (CLU-11). Settlements and expiry reserve nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use peeklock_store::{Reserved, Shortage, Waker};
use peeklock_store_log::Reservations;

use crate::leaf::LeafIndex;

/// The shards that meet a limit.
#[derive(Default)]
struct ShardSet {
    shards: Mutex<BTreeSet<u16>>,
    is_any: AtomicBool,
}

impl ShardSet {
    /// Adds or removes a shard. Returns whether the set was or became empty by that.
    fn set(&self, shard: u16, is_in: bool) -> bool {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if is_in {
            shards.insert(shard);
        } else {
            shards.remove(&shard);
        }
        self.is_any.swap(!shards.is_empty(), Ordering::AcqRel) == shards.is_empty()
    }

    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }
}

/// The account of reservations.
pub struct Room {
    indexes: Vec<Arc<LeafIndex>>,
    capacity_bytes: u64,
    reservations: Reservations,
    /// The shards whose last append met a full disk of the database.
    disk_full: ShardSet,
    /// The shards that have hardly any tables left.
    tables_used_up: ShardSet,
}

impl Room {
    pub fn new(indexes: Vec<Arc<LeafIndex>>, capacity_bytes: u64) -> Self {
        Self {
            indexes,
            capacity_bytes,
            reservations: Reservations::default(),
            disk_full: ShardSet::default(),
            tables_used_up: ShardSet::default(),
        }
    }

    /// Bytes of all records and contents in use.
    pub fn used_bytes(&self) -> u64 {
        self.indexes.iter().map(|index| index.used_bytes()).sum()
    }

    /// Whether space is so short that reclaiming garbage is worth more work than usual.
    pub fn is_tight(&self) -> bool {
        self.disk_full.is_any()
    }

    pub fn reserve(&self, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.reservations.reserve(bytes, waker, |wanted| {
            self.disk_full.is_any()
                || self.tables_used_up.is_any()
                || self.used_bytes().saturating_add(wanted) > self.capacity_bytes
        })
    }

    /// Ends a reservation of a batch that is stored or not. The batch may have freed space, so that
    /// refused callers try again even if it had none.
    pub fn give_back(&self, bytes: u64) {
        self.reservations.give_back(bytes);
        if bytes == 0 {
            self.reservations.wake();
        }
    }

    /// Records whether the disk of the database was full for the last statement of a shard.
    pub fn set_disk_full(&self, shard: u16, is_full: bool) {
        if !self.disk_full.set(shard, is_full) {
            return;
        }
        if is_full {
            tracing::warn!(
                "new messages are refused, everything else continues: the disk of the database is \
                 full; free space on it"
            );
        } else {
            tracing::info!("the database has space again; new messages are accepted");
            self.reservations.wake();
        }
    }

    /// Records whether a shard has hardly any tables left.
    pub fn set_tables_used_up(&self, shard: u16, is_so: bool) {
        if !self.tables_used_up.set(shard, is_so) {
            return;
        }
        if is_so {
            tracing::warn!(shard, "new messages are refused: the shard has too many tables");
        } else {
            self.reservations.wake();
        }
    }

    /// The reason why a message of `bytes` bytes would be refused now, if it would be.
    pub fn shortage(&self, bytes: u64) -> Option<Shortage> {
        if self.disk_full.is_any() {
            return Some(Shortage::DatabaseDisk);
        }
        if self.tables_used_up.is_any() {
            return Some(Shortage::DatabaseTables);
        }
        let wanted = self.reservations.bytes().saturating_add(bytes);
        let (stored_bytes, capacity_bytes) = (self.used_bytes(), self.capacity_bytes);
        (stored_bytes.saturating_add(wanted) > capacity_bytes)
            .then_some(Shortage::Database { stored_bytes, capacity_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-11: the state ends when the shard that met the full disk has stored something, and not
    /// with an append of another shard.
    #[test]
    fn full_disk_lasts_until_each_shard_has_stored() {
        let room = Room::new(Vec::new(), u64::MAX);
        let reserve = || room.reserve(1, &|| Box::new(|| {}));
        room.set_disk_full(1, true);
        room.set_disk_full(2, true);
        room.set_disk_full(3, false);
        assert_eq!(reserve(), Reserved::Full);
        assert_eq!(room.shortage(1), Some(Shortage::DatabaseDisk));
        room.set_disk_full(1, false);
        assert_eq!(reserve(), Reserved::Full);
        room.set_disk_full(2, false);
        assert_eq!(reserve(), Reserved::Granted);
        assert_eq!(room.shortage(1), None);
    }

    #[test]
    fn shard_without_tables_refuses_new_messages() {
        let room = Room::new(Vec::new(), u64::MAX);
        room.set_tables_used_up(1, true);
        assert_eq!(room.reserve(1, &|| Box::new(|| {})), Reserved::Full);
        assert_eq!(room.shortage(1), Some(Shortage::DatabaseTables));
    }
}
