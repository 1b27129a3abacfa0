//! Tests of both sides of TLS over real sockets with generated certificates.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod authority;
mod client_certificates;
mod handshakes;
mod pair;
mod pieces;
mod reload;
mod trust;
