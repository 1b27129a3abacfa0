//! Keys, records and batches: the values that a machine writes and a store keeps, and everything
//! that these two share (DESIGN D11).
//!
//! Values are absolute, so the last value of a key wins. The first [`SPACE_BYTES`] bytes of a key
//! name its space, which can be deleted as a whole. Only `change/codec.rs` of `peeklock-model`
//! knows the meaning of keys and values.
//!
//! Modules in reading order: `key`, `tail`, `batch`, `reserved`.

mod batch;
mod key;
mod reserved;
mod tail;

pub use batch::{Batch, ContentOp, Record};
pub use key::{KEY_BYTES_MAX, Key, SPACE_BYTES};
pub use reserved::Reserved;
pub use tail::{Tail, space_of};
