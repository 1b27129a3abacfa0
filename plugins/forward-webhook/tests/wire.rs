//! Tests of the requests on the wire and of the verdicts for each answer. The test server records
//! every byte and answers as scripted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "wire/server.rs"]
mod server;

#[path = "wire/failures.rs"]
mod failures;
#[path = "wire/queue.rs"]
mod queue;
#[path = "wire/requests.rs"]
mod requests;
#[path = "wire/tls.rs"]
mod tls;
