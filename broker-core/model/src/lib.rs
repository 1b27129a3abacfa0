//! The model: what can be asked of an entity ([`command`]), what can happen to it ([`change`]) and what
//! follows ([`effect`]), on three pages; what travels between entities ([`transfer`]) and what belongs to a
//! transaction ([`transaction`]). How changes become records is in [`change::codec`].
//!
//! Values, no behaviour: the machines of `peeklock-machine` decide, the actors of `peeklock-core` drive them.

pub mod change;
pub mod command;
pub mod effect;
pub mod transaction;
pub mod transfer;

// What lies below has the same names in every crate of the core: `crate::error` here is `peeklock_core::error`.
pub(crate) use peeklock_record as store;
pub(crate) use peeklock_words::{description, error, ids, limits, message, path, rule, time};
