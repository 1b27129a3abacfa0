//! Tests of bearer tokens against a broker: rights and their duration, texts of refusals, and
//! reading of keys.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod issuer;
mod keys;
mod mutated;
mod publisher;
mod rsa;
mod tokens;
mod world;
