//! What the purse of the broker knows of one connection's transactions, and in which order they give way.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use super::TransactionId;
use super::purse::{Asker, BookId, End, Holder, Purse};
use crate::time::Timestamp;

/// The transactions of one book, in the order in which they give way. Until this is dropped the purse knows of them.
pub(super) struct Standing {
    purse: Arc<Purse>,
    id: BookId,
    ends: BTreeSet<(End, TransactionId)>,
}

impl Standing {
    /// Has the purse know of a book, which is empty.
    pub(super) fn enter(purse: &Arc<Purse>, book: Weak<dyn Holder>) -> Self {
        let id = purse.enter(book);
        Self { purse: Arc::clone(purse), id, ends: BTreeSet::new() }
    }

    /// This book, as it asks for room.
    pub(super) const fn asker(&self, transaction: Option<TransactionId>, held_bytes: u64) -> Asker {
        Asker { book: self.id, transaction, held_bytes }
    }

    /// Takes note of what the book holds since the end of this transaction has changed, or has not: none before it was
    /// begun, and none after it is over.
    pub(super) fn note(
        &mut self,
        held_bytes: u64,
        id: TransactionId,
        (was, is): (Option<End>, Option<End>),
    ) {
        if was != is {
            if let Some(was) = was {
                self.ends.remove(&(was, id));
            }
            if let Some(is) = is {
                self.ends.insert((is, id));
            }
        }
        self.purse.note(self.id, held_bytes, id, (was, is));
    }

    /// Which gives way first.
    pub(super) fn first(&self) -> Option<TransactionId> {
        self.ends.first().map(|(_, id)| *id)
    }

    /// One whose time is over.
    pub(super) fn timed_out(&self, now: Timestamp) -> Option<TransactionId> {
        let first = self.ends.first().filter(|(end, _)| end.is_timeout() && end.is_over(now));
        first.map(|(_, id)| *id)
    }

    /// One that has been without an operation for as long as others have time.
    pub(super) fn long_empty(&self, now: Timestamp) -> Option<TransactionId> {
        let mut empty = self.ends.range((End::FIRST_EMPTY, TransactionId(0))..);
        empty.next().filter(|(end, _)| end.is_over(now)).map(|(_, id)| *id)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.purse.leave(self.id, &self.ends);
    }
}
