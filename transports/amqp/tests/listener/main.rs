//! Tests of the listener over TCP and over WebSocket, with a client that uses the frames of this
//! crate: sends are stored, deliveries are settled, and tokens apply to their paths.

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
mod suspended;
mod tokens;
mod transactions;
mod types;
mod websocket;
mod withdrawn;
