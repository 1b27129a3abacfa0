//! Room: the bytes that the store accepts, and the callers that wait for more.
//!
//! Sends reserve room before they are applied. They are refused as Busy while many bytes are not
//! stored yet, such as during an outage, and as Full above the capacity or while the disk of the
//! database is full (CLU-11). Settlements and expiry reserve nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_store::{Reserved, Shortage, Waker};

use crate::leaf::LeafIndex;

/// Maximum bytes that are reserved and not stored yet, in all shards together.
pub const UNSTORED_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of wakers. A caller refused beyond it must retry.
const WAITING_MAX: usize = 1_024;

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
    reserved: AtomicU64,
    /// The shards whose last append met a full disk of the database.
    disk_full: ShardSet,
    /// The shards that have hardly any tables left.
    tables_used_up: ShardSet,
    waiting: Mutex<Vec<Waker>>,
}

impl Room {
    pub fn new(indexes: Vec<Arc<LeafIndex>>, capacity_bytes: u64) -> Self {
        Self {
            indexes,
            capacity_bytes,
            reserved: AtomicU64::new(0),
            disk_full: ShardSet::default(),
            tables_used_up: ShardSet::default(),
            waiting: Mutex::default(),
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
        if self.try_reserve(bytes).is_none() {
            return Reserved::Granted;
        }
        let mut waiting = self.waiting();
        // Room may have been freed before this caller was on the list, and then no waker would be
        // called.
        let Some(refusal) = self.try_reserve(bytes) else { return Reserved::Granted };
        if waiting.len() < WAITING_MAX {
            waiting.push(waker());
        }
        refusal
    }

    fn try_reserve(&self, bytes: u64) -> Option<Reserved> {
        let before = self.reserved.fetch_add(bytes, Ordering::AcqRel);
        let wanted = before.saturating_add(bytes);
        let refusal = if self.disk_full.is_any()
            || self.tables_used_up.is_any()
            || self.used_bytes().saturating_add(wanted) > self.capacity_bytes
        {
            Some(Reserved::Full)
        } else {
            // A single larger reservation passes if there is no other.
            (before > 0 && wanted > UNSTORED_BYTES_MAX).then_some(Reserved::Busy)
        };
        if refusal.is_some() {
            self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        }
        refusal
    }

    pub fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            let before = self.reserved.fetch_sub(bytes, Ordering::AcqRel);
            debug_assert!(before >= bytes, "more space is returned than was granted");
        }
        self.wake();
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
            self.wake();
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
            self.wake();
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
        let wanted = self.reserved.load(Ordering::Acquire).saturating_add(bytes);
        let (stored_bytes, capacity_bytes) = (self.used_bytes(), self.capacity_bytes);
        (stored_bytes.saturating_add(wanted) > capacity_bytes)
            .then_some(Shortage::Database { stored_bytes, capacity_bytes })
    }

    /// Calls all wakers; refused callers try again.
    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        for waker in waiting {
            waker();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
