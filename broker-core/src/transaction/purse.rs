//! What the open transactions of a whole broker may hold in memory.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::book::Book;
use crate::error::Rejection;
use crate::permits::{Budget, Permit};
use crate::time::Timestamp;

/// The budget that all open transactions draw on, and who draws on it.
pub(crate) struct Purse {
    budget: Budget,
    books: Mutex<Vec<Weak<Book>>>,
}

impl Purse {
    /// A budget of its own beside what is on its way in.
    pub(crate) const fn new(budget: Budget) -> Self {
        Self { budget, books: Mutex::new(Vec::new()) }
    }

    pub(super) fn register(&self, book: Weak<Book>) {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are gone are dropped before the list grows.
        if books.len() == books.capacity() {
            books.retain(|book| book.strong_count() > 0);
        }
        books.push(book);
    }

    /// Takes room for one part of one who holds so much already. If there is none, transactions that have timed
    /// out give theirs back first, whoever has left them behind (TXN-06); then the oldest ones of who holds more
    /// than twice as much as this one would. To be called without the lock of a book.
    pub(super) fn take(&self, bytes: u64, held: u64, now: Timestamp) -> Result<Permit, Rejection> {
        if let Some(permit) = self.budget.try_keep(bytes) {
            return Ok(permit);
        }
        let books: Vec<Weak<Book>> =
            self.books.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let books: Vec<Arc<Book>> = books.iter().filter_map(Weak::upgrade).collect();
        for book in &books {
            book.expire(now);
        }
        loop {
            if let Some(permit) = self.budget.try_keep(bytes) {
                return Ok(permit);
            }
            let most = books.iter().max_by_key(|book| book.held_bytes());
            let most = most.filter(|book| book.held_bytes() / 2 > held.saturating_add(bytes));
            if !most.is_some_and(|book| book.roll_back_oldest()) {
                break;
            }
        }
        self.budget.try_keep(bytes).ok_or_else(|| {
            Rejection::server_busy(
                "open transactions hold all the memory that is set aside for them",
            )
        })
    }
}
