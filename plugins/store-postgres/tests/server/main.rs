//! The store on real servers, which the tests start.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cleaning;
mod conformance;
mod damage;
mod formats;
mod outage;
mod owner;
mod registry;
mod size;
mod support;
mod tls;
mod unknown;
