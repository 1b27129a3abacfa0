//! The model of an entity, on three pages in reading order: [`command`] lists the requests to an
//! entity and their outcomes, [`change`] the durable facts that a machine records, [`effect`] the
//! consequences that leave the machine. [`transfer`] has the messages between two entities,
//! [`transaction`] the operations of a transaction, [`inspect`] the inquiries of operators, and
//! [`change::codec`] the records of the store.
//!
//! Values only: the machines of `peeklock-machine` decide, and the actors of `peeklock-core` drive
//! them.

pub mod change;
pub mod command;
pub mod effect;
pub mod inspect;
pub mod transaction;
pub mod transfer;

// The crates below keep their names in every crate of the core: `crate::error` here is
// `peeklock_core::error` there.
pub(crate) use peeklock_record as store;
pub(crate) use peeklock_words::{
    description, error, ids, limits, message, path, policy, rule, time,
};
