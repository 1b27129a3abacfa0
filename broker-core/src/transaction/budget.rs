//! Memory budget of all open transactions of a broker, and their order of eviction when it is
//! exhausted.
//!
//! A refused request examines only the first entry of each order. Its cost does not depend on the
//! number or owners of open transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::TransactionId;
use crate::admission::{Budget, Permit};
use crate::error::Rejection;
use crate::time::Timestamp;

/// Budget of all open transactions, and a ledger of its users.
pub(crate) struct TransactionBudget {
    budget: Budget,
    ledger: Mutex<Ledger>,
}

/// Time from which a transaction may be rolled back to free its room. Transactions are rolled back
/// in this order. Before its time, a transaction may be rolled back only if its owner holds the
/// most room, and only as the owner's first in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum EvictionTime {
    /// It times out at this instant (TXN-06).
    Timeout(Timestamp),
    /// It has no operation and so does not time out: some clients declare the next transaction as
    /// soon as one ends, and may not use it for days. From this instant on it may be evicted when
    /// its room or place is needed.
    Empty(Timestamp),
}

/// Owner of open transactions, which can release their room: the `Transactions` of a connection, in
/// `book.rs`.
pub(super) trait TransactionOwner: Send + Sync {
    /// Rolls a transaction back if it has timed out, or has been empty for the maximum duration.
    fn roll_back_if_evictable(&self, id: TransactionId, now: Timestamp);

    /// Rolls back the first transaction of this owner in the order of [`EvictionTime`], if all
    /// transactions of the owner together hold more than twice `bytes`.
    fn roll_back_oldest(&self, bytes: u64);
}

/// Number of an owner in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct OwnerId(u64);

/// A request for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomRequest {
    pub(super) owner: OwnerId,
    /// The transaction that needs it; none for a new one.
    pub(super) transaction: Option<TransactionId>,
    /// Bytes that the owner holds already.
    pub(super) held_bytes: u64,
}

/// Held bytes by owner, and the transactions in their order of eviction.
#[derive(Default)]
struct Ledger {
    owners: BTreeMap<OwnerId, LedgerEntry>,
    last: u64,
    by_held: BTreeSet<(u64, OwnerId)>,
    by_eviction: BTreeSet<(EvictionTime, OwnerId, TransactionId)>,
}

struct LedgerEntry {
    owner: Weak<dyn TransactionOwner>,
    held_bytes: u64,
}

impl EvictionTime {
    /// Lower bound of the eviction times of empty transactions.
    pub(super) const FIRST_EMPTY: Self = Self::Empty(Timestamp::NONE);

    /// Whether it has an operation, so that its time runs.
    pub(super) const fn is_timeout(self) -> bool {
        matches!(self, Self::Timeout(_))
    }

    /// Whether it may be evicted at `now`.
    pub(super) fn is_evictable(self, now: Timestamp) -> bool {
        let (Self::Timeout(at) | Self::Empty(at)) = self;
        at <= now
    }
}

impl TransactionBudget {
    /// Creates a budget of transactions, separate from the budget of incoming commands.
    pub(crate) fn new(budget: Budget) -> Self {
        Self { budget, ledger: Mutex::default() }
    }

    /// Takes room for a request. If there is none, transactions are rolled back until there is:
    /// first all of any owner that have timed out or were empty for the maximum duration (TXN-06),
    /// then the oldest of the owner that holds the most, if it holds more than twice as much as the
    /// owner of the request would. Must be called without holding the lock of an owner.
    ///
    /// # Errors
    /// `ServerBusy` if no more transactions may be rolled back.
    pub(super) fn take(
        &self,
        request: RoomRequest,
        bytes: u64,
        now: Timestamp,
    ) -> Result<Permit, Rejection> {
        let wanted = request.held_bytes.saturating_add(bytes);
        loop {
            if let Some(permit) = self.budget.try_keep(bytes) {
                return Ok(permit);
            }
            // Each eviction changes the ledger, so the next search finds another transaction.
            let evictable = self.ledger().first_evictable(request, now);
            if let Some((owner, id)) = evictable {
                owner.roll_back_if_evictable(id, now);
                continue;
            }
            let most = self.ledger().most(wanted);
            let Some(owner) = most else {
                return Err(Rejection::server_busy(
                    "open transactions hold all the memory reserved for them; try again later",
                ));
            };
            owner.roll_back_oldest(wanted);
        }
    }

    /// Adds an owner without transactions.
    pub(super) fn enter(&self, owner: Weak<dyn TransactionOwner>) -> OwnerId {
        let mut ledger = self.ledger();
        ledger.last += 1;
        let id = OwnerId(ledger.last);
        ledger.owners.insert(id, LedgerEntry { owner, held_bytes: 0 });
        id
    }

    /// Records the held bytes of an owner, and the previous and current eviction time of its
    /// transaction `id`.
    pub(super) fn note(
        &self,
        owner: OwnerId,
        held_bytes: u64,
        id: TransactionId,
        (was, is): (Option<EvictionTime>, Option<EvictionTime>),
    ) {
        let mut ledger = self.ledger();
        if was != is {
            if let Some(was) = was {
                ledger.by_eviction.remove(&(was, owner, id));
            }
            if let Some(is) = is {
                ledger.by_eviction.insert((is, owner, id));
            }
        }
        ledger.holds(owner, held_bytes);
    }

    /// Removes an owner with the eviction times of its transactions.
    pub(super) fn leave(&self, owner: OwnerId, times: &BTreeSet<(EvictionTime, TransactionId)>) {
        let mut ledger = self.ledger();
        for (time, id) in times {
            ledger.by_eviction.remove(&(*time, owner, *id));
        }
        ledger.holds(owner, 0);
        ledger.owners.remove(&owner);
    }

    /// Locks the ledger, which no panic can leave inconsistent. No owner is locked while it is
    /// held.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn holds(&mut self, owner: OwnerId, held_bytes: u64) {
        let Some(entry) = self.owners.get_mut(&owner) else { return };
        let before = std::mem::replace(&mut entry.held_bytes, held_bytes);
        if before != held_bytes {
            self.by_held.remove(&(before, owner));
            if held_bytes > 0 {
                self.by_held.insert((held_bytes, owner));
            }
        }
    }

    /// Returns a transaction that has timed out, or else one that has been empty for the maximum
    /// duration, except the transaction of the request itself.
    fn first_evictable(
        &mut self,
        request: RoomRequest,
        now: Timestamp,
    ) -> Option<(Arc<dyn TransactionOwner>, TransactionId)> {
        while let Some(first) = self.find_evictable(request, now) {
            let (_, owner, id) = first;
            if let Some(owner) = self.owner(owner) {
                return Some((owner, id));
            }
            // Its connection has ended and is about to release the room.
            self.by_eviction.remove(&first);
        }
        None
    }

    fn find_evictable(
        &self,
        request: RoomRequest,
        now: Timestamp,
    ) -> Option<(EvictionTime, OwnerId, TransactionId)> {
        let timed_out = self.by_eviction.first().filter(|(time, ..)| time.is_timeout());
        let asks = |(_, owner, id): &&(EvictionTime, OwnerId, TransactionId)| {
            *owner == request.owner && Some(*id) == request.transaction
        };
        let from = (EvictionTime::FIRST_EMPTY, OwnerId(0), TransactionId(0));
        let empty = self.by_eviction.range(from..).find(|entry| !asks(entry));
        [timed_out, empty].into_iter().flatten().find(|(time, ..)| time.is_evictable(now)).copied()
    }

    /// Returns the owner that holds the most, if that is more than twice `bytes`.
    fn most(&mut self, bytes: u64) -> Option<Arc<dyn TransactionOwner>> {
        while let Some(&(held, id)) = self.by_held.last()
            && held / 2 > bytes
        {
            if let Some(owner) = self.owner(id) {
                return Some(owner);
            }
            self.by_held.remove(&(held, id));
        }
        None
    }

    fn owner(&self, id: OwnerId) -> Option<Arc<dyn TransactionOwner>> {
        self.owners.get(&id).and_then(|entry| entry.owner.upgrade())
    }
}
