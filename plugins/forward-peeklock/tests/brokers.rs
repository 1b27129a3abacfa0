//! Tests of the route to another broker, including lost connections and restarts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "brokers/away.rs"]
mod away;
#[path = "brokers/peer.rs"]
mod peer;
#[path = "brokers/proxy.rs"]
mod proxy;

#[path = "brokers/arrival.rs"]
mod arrival;
#[path = "brokers/circle.rs"]
mod circle;
#[path = "brokers/losses.rs"]
mod losses;
#[path = "brokers/tls.rs"]
mod tls;
