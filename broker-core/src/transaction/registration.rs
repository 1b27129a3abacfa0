//! Registration of a connection's transactions at the shared budget, with their order of eviction.
//! `book.rs` registers its transactions at it.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use super::TransactionId;
use super::budget::{EvictionTime, OwnerId, RoomRequest, TransactionBudget, TransactionOwner};
use crate::time::Timestamp;

/// Transactions of an owner in their order of eviction. Dropping it removes the owner from the
/// budget.
pub(super) struct BudgetRegistration {
    budget: Arc<TransactionBudget>,
    id: OwnerId,
    ends: BTreeSet<(EvictionTime, TransactionId)>,
}

impl BudgetRegistration {
    /// Registers an owner without transactions.
    pub(super) fn enter(
        budget: &Arc<TransactionBudget>,
        owner: Weak<dyn TransactionOwner>,
    ) -> Self {
        let id = budget.enter(owner);
        Self { budget: Arc::clone(budget), id, ends: BTreeSet::new() }
    }

    /// Returns a request for room by this owner.
    pub(super) const fn room_request(
        &self,
        transaction: Option<TransactionId>,
        held_bytes: u64,
    ) -> RoomRequest {
        RoomRequest { owner: self.id, transaction, held_bytes }
    }

    /// Records the held bytes of the owner, and the previous and current end of a transaction: none
    /// before it began, and none after it is over.
    pub(super) fn note(
        &mut self,
        held_bytes: u64,
        id: TransactionId,
        (was, is): (Option<EvictionTime>, Option<EvictionTime>),
    ) {
        if was != is {
            if let Some(was) = was {
                self.ends.remove(&(was, id));
            }
            if let Some(is) = is {
                self.ends.insert((is, id));
            }
        }
        self.budget.note(self.id, held_bytes, id, (was, is));
    }

    /// The transaction that is evicted first.
    pub(super) fn first(&self) -> Option<TransactionId> {
        self.ends.first().map(|(_, id)| *id)
    }

    /// A transaction that has timed out.
    pub(super) fn timed_out(&self, now: Timestamp) -> Option<TransactionId> {
        let first = self.ends.first().filter(|(end, _)| end.is_timeout() && end.is_evictable(now));
        first.map(|(_, id)| *id)
    }

    /// A transaction that has been empty for the maximum duration.
    pub(super) fn long_empty(&self, now: Timestamp) -> Option<TransactionId> {
        let mut empty = self.ends.range((EvictionTime::FIRST_EMPTY, TransactionId(0))..);
        empty.next().filter(|(end, _)| end.is_evictable(now)).map(|(_, id)| *id)
    }
}

impl Drop for BudgetRegistration {
    fn drop(&mut self) {
        self.budget.leave(self.id, &self.ends);
    }
}
