//! What the purse of the broker knows of one connection's transactions, and in which order they give way.

use std::collections::BTreeSet;
use std::sync::Weak;

use super::TransactionId;
use super::book::Book;
use super::purse::{Asker, BookId};
use crate::broker::Broker;
use crate::time::Timestamp;

/// Until when a transaction has its room for certain. In this order they give way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    /// Its time is over then (TXN-06).
    Timeout(Timestamp),
    /// It has no operation and so no time: some clients declare the next one as soon as one is over, and may have
    /// nothing to do in it for days. From then on it gives way to whoever needs its room or its place.
    Empty(Timestamp),
}

/// The transactions of one book, in the order in which they give way. Until this is dropped the purse knows of them.
pub(super) struct Standing {
    broker: Broker,
    id: BookId,
    ends: BTreeSet<(End, TransactionId)>,
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

impl Standing {
    /// Has the purse know of a book, which is empty.
    pub(super) fn enter(broker: &Broker, book: Weak<Book>) -> Self {
        let id = broker.shared.transactions.enter(book);
        Self { broker: broker.clone(), id, ends: BTreeSet::new() }
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
        self.broker.shared.transactions.note(self.id, held_bytes, id, (was, is));
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
        self.broker.shared.transactions.leave(self.id, &self.ends);
    }
}
