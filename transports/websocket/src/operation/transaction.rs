//! Transactions (file 15): one file for each operation. They belong to the conversation: they outlive a socket that is
//! lost and resumed, and are rolled back with the conversation (TXN-12).

mod begin;
mod commit;
mod roll_back;

pub(crate) use self::{begin::*, commit::*};
use crate::frame::bodies;

bodies! {
    struct TransactionOnly {
        transaction: u64,
    }
}
