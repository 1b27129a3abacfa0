//! What a collector gets of a broker: spans with their attributes and relations, metrics with their values; and what becomes
//! of it all when the collector does not take it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a test fails by panicking"
)]
#![allow(dead_code, reason = "the collector is shared with the tests of the program")]

mod collector;
mod failing;
mod measured;
mod relations;
mod world;

#[cfg(feature = "client")]
mod client;
