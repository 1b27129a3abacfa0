//! What the open transactions of a whole broker may hold in memory.

use std::sync::{Mutex, PoisonError, Weak};

use super::book::Book;
use crate::error::Rejection;
use crate::permits::{Budget, Permit};
use crate::time::Timestamp;

/// The budget that all open transactions draw on, and who draws on it.
pub(crate) struct Room {
    budget: Budget,
    books: Mutex<Vec<Weak<Book>>>,
}

impl Room {
    /// Room of its own beside what is on its way in.
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

    /// Takes room for one part. If there is none, transactions that have timed out give theirs back
    /// first, whoever has left them behind (TXN-06). To be called without the lock of a book.
    pub(super) fn take(&self, bytes: u64, now: Timestamp) -> Result<Permit, Rejection> {
        if let Some(permit) = self.budget.try_keep(bytes) {
            return Ok(permit);
        }
        let books: Vec<Weak<Book>> =
            self.books.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for book in books {
            if let Some(book) = book.upgrade() {
                book.expire(now);
            }
        }
        self.budget.try_keep(bytes).ok_or_else(|| {
            Rejection::server_busy(
                "open transactions hold all the memory that is set aside for them",
            )
        })
    }
}
