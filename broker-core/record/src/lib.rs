//! What a machine writes and a store keeps: keys, records under them, and batches of records that are
//! stored together. The one thing that both know (DESIGN D11).
//!
//! Values are absolute, so the last one of a key wins. The first [`SPACE_BYTES`] bytes of a key name its
//! space; everything in a space can be dropped at once. What keys and values mean is known to
//! `peeklock-model`'s `change/codec.rs` alone.

mod batch;
mod key;
mod reserved;

pub use batch::{Batch, ContentOp, Record};
pub use key::{KEY_BYTES_MAX, Key, SPACE_BYTES};
pub use reserved::Reserved;
