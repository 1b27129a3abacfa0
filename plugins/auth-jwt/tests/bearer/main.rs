//! Bearer tokens against a broker: who is let in where and how long, what the others are told, and when keys are read.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod keys;
mod mutated;
mod publisher;
mod rsa;
mod tokens;
mod world;
