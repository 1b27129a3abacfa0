//! Tests of the exporter against a collector: attributes and relations of spans, values of metrics,
//! and failures of the collector.

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
