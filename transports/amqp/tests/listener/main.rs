//! The listener over TCP, with a client of the crate's own frames: what is sent is stored, what is received is
//! settled, tokens count where they were put.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod client;
mod receiving;
mod sending;
mod server;
mod tokens;
