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

/// Time until which a transaction keeps its room for certain. Transactions are evicted in this
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum EvictionTime {
    /// It times out at this instant (TXN-06).
    Timeout(Timestamp),
    /// It has no operation and so does not time out: some clients declare the next transaction as
    /// soon as one ends, and may not use it for days. From this instant on it may be evicted when
    /// its room or place is needed.
    Empty(Timestamp),
}

/// Owner of open transactions, which can release their room.
pub(super) trait TransactionOwner: Send + Sync {
    /// Rolls a transaction back if it has timed out, or has been empty for the maximum duration.
    fn roll_back_over(&self, id: TransactionId, now: Timestamp);

    /// Rolls back the transaction of this owner that is evicted first, if all its transactions
    /// together hold more than twice `bytes`.
    fn roll_back_oldest(&self, bytes: u64);
}

/// Name of a book in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BookId(u64);

/// A request for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomRequest {
    pub(super) book: BookId,
    /// The transaction that needs it; none for a new one.
    pub(super) transaction: Option<TransactionId>,
    /// Bytes that the book holds already.
    pub(super) held_bytes: u64,
}

/// Held bytes by book, and the order of ends.
#[derive(Default)]
struct Ledger {
    books: BTreeMap<BookId, LedgerEntry>,
    last: u64,
    by_held: BTreeSet<(u64, BookId)>,
    by_end: BTreeSet<(EvictionTime, BookId, TransactionId)>,
}

struct LedgerEntry {
    book: Weak<dyn TransactionOwner>,
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
    pub(super) fn is_over(self, now: Timestamp) -> bool {
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
    /// first all in any book that have timed out or were empty for the maximum duration (TXN-06),
    /// then the oldest of the book that holds the most, if it holds more than twice as much as the
    /// book of the request would. Must be called without holding the lock of a book.
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
            let over = self.ledger().first_over(request, now);
            if let Some((book, id)) = over {
                book.roll_back_over(id, now);
                continue;
            }
            let most = self.ledger().most(wanted);
            let Some(book) = most else {
                return Err(Rejection::server_busy(
                    "open transactions hold all the memory reserved for them; try again later",
                ));
            };
            book.roll_back_oldest(wanted);
        }
    }

    /// Adds an empty book.
    pub(super) fn enter(&self, book: Weak<dyn TransactionOwner>) -> BookId {
        let mut ledger = self.ledger();
        ledger.last += 1;
        let id = BookId(ledger.last);
        ledger.books.insert(id, LedgerEntry { book, held_bytes: 0 });
        id
    }

    /// Records the held bytes of a book, and the previous and current end of a transaction in it.
    pub(super) fn note(
        &self,
        book: BookId,
        held_bytes: u64,
        id: TransactionId,
        (was, is): (Option<EvictionTime>, Option<EvictionTime>),
    ) {
        let mut ledger = self.ledger();
        if was != is {
            if let Some(was) = was {
                ledger.by_end.remove(&(was, book, id));
            }
            if let Some(is) = is {
                ledger.by_end.insert((is, book, id));
            }
        }
        ledger.holds(book, held_bytes);
    }

    /// Removes a book with the ends of its transactions.
    pub(super) fn leave(&self, book: BookId, ends: &BTreeSet<(EvictionTime, TransactionId)>) {
        let mut ledger = self.ledger();
        for (end, id) in ends {
            ledger.by_end.remove(&(*end, book, *id));
        }
        ledger.holds(book, 0);
        ledger.books.remove(&book);
    }

    /// Locks the ledger, which no panic can leave inconsistent. No book is locked while it is held.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn holds(&mut self, book: BookId, held_bytes: u64) {
        let Some(entry) = self.books.get_mut(&book) else { return };
        let before = std::mem::replace(&mut entry.held_bytes, held_bytes);
        if before != held_bytes {
            self.by_held.remove(&(before, book));
            if held_bytes > 0 {
                self.by_held.insert((held_bytes, book));
            }
        }
    }

    /// Returns a transaction that has timed out, or else one that has been empty for the maximum
    /// duration, except the transaction of the request itself.
    fn first_over(
        &mut self,
        request: RoomRequest,
        now: Timestamp,
    ) -> Option<(Arc<dyn TransactionOwner>, TransactionId)> {
        while let Some(first) = self.find_over(request, now) {
            let (_, book, id) = first;
            if let Some(book) = self.book(book) {
                return Some((book, id));
            }
            // Its connection has ended and is about to release the room.
            self.by_end.remove(&first);
        }
        None
    }

    fn find_over(
        &self,
        request: RoomRequest,
        now: Timestamp,
    ) -> Option<(EvictionTime, BookId, TransactionId)> {
        let timed_out = self.by_end.first().filter(|(end, ..)| end.is_timeout());
        let asks = |(_, book, id): &&(EvictionTime, BookId, TransactionId)| {
            *book == request.book && Some(*id) == request.transaction
        };
        let from = (EvictionTime::FIRST_EMPTY, BookId(0), TransactionId(0));
        let empty = self.by_end.range(from..).find(|entry| !asks(entry));
        [timed_out, empty].into_iter().flatten().find(|(end, ..)| end.is_over(now)).copied()
    }

    /// Returns the book that holds the most, if that is more than twice `bytes`.
    fn most(&mut self, bytes: u64) -> Option<Arc<dyn TransactionOwner>> {
        while let Some(&(held, id)) = self.by_held.last()
            && held / 2 > bytes
        {
            if let Some(book) = self.book(id) {
                return Some(book);
            }
            self.by_held.remove(&(held, id));
        }
        None
    }

    fn book(&self, id: BookId) -> Option<Arc<dyn TransactionOwner>> {
        self.books.get(&id).and_then(|entry| entry.book.upgrade())
    }
}
