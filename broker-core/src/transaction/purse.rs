//! What the open transactions of a whole broker may hold in memory, and whose give way when that is full.
//!
//! Who is refused has looked at the first of each order and at nobody else: it is nothing to him how many transactions
//! are open, and whose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::TransactionId;
use crate::admission::{Budget, Permit};
use crate::error::Rejection;
use crate::time::Timestamp;

/// The budget that all open transactions draw on, and who draws on it.
pub(crate) struct Purse {
    budget: Budget,
    ledger: Mutex<Ledger>,
}

/// Until when a transaction has its room for certain. In this order they give way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    /// Its time is over then (TXN-06).
    Timeout(Timestamp),
    /// It has no operation and so no time: some clients declare the next one as soon as one is over, and may have
    /// nothing to do in it for days. From then on it gives way to whoever needs its room or its place.
    Empty(Timestamp),
}

/// Open transactions of a connection, which give their room back.
pub(super) trait Holder: Send + Sync {
    /// Rolls a transaction back if its time is over, or if it has been without an operation for as long.
    fn roll_back_over(&self, id: TransactionId, now: Timestamp);

    /// Rolls back the transaction that times out first, if they all still hold more than twice `bytes`.
    fn roll_back_oldest(&self, bytes: u64);
}

/// Names a book here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BookId(u64);

/// Who asks for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) book: BookId,
    /// For an operation of this one.
    pub(super) transaction: Option<TransactionId>,
    /// What he holds already.
    pub(super) held_bytes: u64,
}

/// Who holds how much, and what is over first.
#[derive(Default)]
struct Ledger {
    books: BTreeMap<BookId, Entry>,
    last: u64,
    by_held: BTreeSet<(u64, BookId)>,
    by_end: BTreeSet<(End, BookId, TransactionId)>,
}

struct Entry {
    book: Weak<dyn Holder>,
    held_bytes: u64,
}

impl End {
    /// Before every other of one without an operation.
    pub(super) const FIRST_EMPTY: Self = Self::Empty(Timestamp::NONE);

    /// Whether its time runs, as that of one with an operation does.
    pub(super) const fn is_timeout(self) -> bool {
        matches!(self, Self::Timeout(_))
    }

    /// Whether it gives way by now.
    pub(super) fn is_over(self, now: Timestamp) -> bool {
        let (Self::Timeout(at) | Self::Empty(at)) = self;
        at <= now
    }
}

impl Purse {
    /// A budget of its own beside what is on its way in.
    pub(crate) fn new(budget: Budget) -> Self {
        Self { budget, ledger: Mutex::default() }
    }

    /// Takes room. If there is none, what is over gives its own back first, whoever has left it behind (TXN-06); then
    /// the oldest ones of who holds more than twice as much as this one would. To be called without the lock of a book.
    pub(super) fn take(
        &self,
        asker: Asker,
        bytes: u64,
        now: Timestamp,
    ) -> Result<Permit, Rejection> {
        let wanted = asker.held_bytes.saturating_add(bytes);
        loop {
            if let Some(permit) = self.budget.try_keep(bytes) {
                return Ok(permit);
            }
            // Whoever is found has changed what stands here when he was asked: the next one found is another.
            let over = self.ledger().first_over(asker, now);
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

    /// Adds who holds nothing yet.
    pub(super) fn enter(&self, book: Weak<dyn Holder>) -> BookId {
        let mut ledger = self.ledger();
        ledger.last += 1;
        let id = BookId(ledger.last);
        ledger.books.insert(id, Entry { book, held_bytes: 0 });
        id
    }

    /// Takes note of what a book holds since the end of one of its transactions has changed, or has not.
    pub(super) fn note(
        &self,
        book: BookId,
        held_bytes: u64,
        id: TransactionId,
        (was, is): (Option<End>, Option<End>),
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

    /// Forgets a book, which had these.
    pub(super) fn leave(&self, book: BookId, ends: &BTreeSet<(End, TransactionId)>) {
        let mut ledger = self.ledger();
        for (end, id) in ends {
            ledger.by_end.remove(&(*end, book, *id));
        }
        ledger.holds(book, 0);
        ledger.books.remove(&book);
    }

    /// Locks the ledger, which no panic can leave half changed. Nobody locks a book meanwhile.
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

    /// One whose time is over, or else one without an operation that has been so for as long. The one that is about to
    /// have its first is none.
    fn first_over(
        &mut self,
        asker: Asker,
        now: Timestamp,
    ) -> Option<(Arc<dyn Holder>, TransactionId)> {
        while let Some(first) = self.find_over(asker, now) {
            let (_, book, id) = first;
            if let Some(book) = self.book(book) {
                return Some((book, id));
            }
            // Its connection has ended, and is about to give the room back.
            self.by_end.remove(&first);
        }
        None
    }

    fn find_over(&self, asker: Asker, now: Timestamp) -> Option<(End, BookId, TransactionId)> {
        let timed_out = self.by_end.first().filter(|(end, ..)| end.is_timeout());
        let asks = |(_, book, id): &&(End, BookId, TransactionId)| {
            *book == asker.book && Some(*id) == asker.transaction
        };
        let from = (End::FIRST_EMPTY, BookId(0), TransactionId(0));
        let empty = self.by_end.range(from..).find(|entry| !asks(entry));
        [timed_out, empty].into_iter().flatten().find(|(end, ..)| end.is_over(now)).copied()
    }

    /// Who holds most, if it is more than twice so much.
    fn most(&mut self, bytes: u64) -> Option<Arc<dyn Holder>> {
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

    fn book(&self, id: BookId) -> Option<Arc<dyn Holder>> {
        self.books.get(&id).and_then(|entry| entry.book.upgrade())
    }
}
