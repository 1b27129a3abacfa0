//! Open transactions: they belong to whoever began them, an in-process client or a connection
//! (TXN-01, TXN-12).
//!
//! ```text
//!            begin            issue ──► Command::Check ──► the entity: would it be done now?
//!  client ──────────► Open ◄──────────────────────────────── yes: kept, no: left out (TXN-07)
//!                      │ ├── roll back, timed out, connection closed: forgotten (TXN-04, TXN-06)
//!                      │ └── commit ──► Command::Commit ──► all of it, or none of it
//! ```
//!
//! Before the commit no entity knows anything of it: what it sends is nowhere to be seen and what it
//! settles stays locked (TXN-03). Forgetting it is all that a rollback is. [`Transactions`] keeps the
//! open ones of one connection within their bounds, `open.rs` one of them, `purse.rs` those of all connections,
//! `operation.rs` says what may belong to one. The machine's side is one file of its operations.

mod book;
mod open;
mod purse;
mod standing;

use std::fmt;

pub use self::book::{Ending, Issued, Question, Reach, Transactions};
pub use self::open::SPANS_SEVERAL;
pub(crate) use self::purse::Purse;
pub use peeklock_model::transaction::{Operation, Part, PartOutcome, in_transaction};

/// Names a transaction. A random number of 53 bits, which every language can hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// The number that these bits make.
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
