//! What goes over the wire, and what each answer becomes: a server on loopback that keeps every byte it
//! gets and answers as it is told.

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
