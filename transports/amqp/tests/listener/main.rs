//! The listener over TCP, with a client of the crate's own frames: what is sent is stored, what is received is
//! settled, tokens count where they were put; the same over WebSocket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod addresses;
mod apart;
mod asking;
mod associated;
mod browsing;
mod client;
mod closing;
mod credit;
mod entitled;
mod expected;
mod flow;
mod forced;
mod issuer;
mod large;
mod management;
mod many;
mod passwords;
mod places;
mod receiving;
mod replies;
mod request;
mod rights;
mod sending;
mod server;
mod sessions;
mod tokens;
mod transactions;
mod types;
mod websocket;
mod withdrawn;
