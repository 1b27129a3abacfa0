//! Open transactions. They belong to the in-process client or connection that began them (TXN-01,
//! TXN-12).
//!
//! ```text
//!            begin            issue ──► Command::Check ──► the entity: would it be carried out?
//!  client ──────────► Open ◄──────────────────────────────── yes: kept, no: removed (TXN-07)
//!                      │ ├── roll back, timed out, connection closed: forgotten (TXN-04, TXN-06)
//!                      │ └── commit ──► Command::Commit ──► all operations or none
//! ```
//!
//! Before the commit, no entity knows of the transaction: its sends are invisible, and its settled
//! messages stay locked (TXN-03). So a rollback only forgets it. [`Transactions`] keeps the open
//! transactions of a connection within their bounds; `open.rs` is a single one, `registration.rs`
//! their order of eviction, and `budget.rs` the budget for all connections. [`Operation`] lists the
//! commands that may be transactional. The machine has one file for its side.

mod book;
mod budget;
mod open;
mod registration;

use std::fmt;

pub use self::book::{PartCheck, PendingCommit, PendingPart, Reach, Transactions};
pub(crate) use self::budget::TransactionBudget;
pub use self::open::SPANS_SEVERAL;
pub use peeklock_model::transaction::{Operation, Part, PartOutcome, in_transaction};

/// Name of a transaction: a random number of 53 bits, which every language can represent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// Converts random bits to an id.
    fn of_bits(bits: u128) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "53 bits are wanted")]
        let bits = bits as u64;
        (bits >> 11).max(1)
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
