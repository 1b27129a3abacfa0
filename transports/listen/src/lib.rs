//! What listeners do alike, whatever is spoken on their connections.
//!
//! ```text
//!  Listener ─► bind: who may be served there ─► serve: socket ─► a place ─► a thread in turn ─► TLS ─► Serve
//!                                                                                                 │
//!  stop: accepts no more ─► Tracker: all are told, and waited for ◄── counts ─────────────────────┘
//! ```
//!
//! | File | What |
//! |---|---|
//! | `listener.rs` | the address, and who may be served at it (SEC-17) |
//! | `serve.rs` | from a socket to its connection, and the end of all of them |
//! | `workers.rs` | the threads that connections live in |
//! | `tracker.rs` | how many there are, and whether they are to end |
//! | `upgrade.rs` | who may connect over WebSocket (SEC-23; feature `upgrade`) |
//!
//! A transport with threads of its own, as HTTP has them by its framework, takes the listener and the tracker and leaves
//! the rest. Absent on purpose: what a connection costs, and who makes room for whom, which each transport decides by what
//! it knows of its clients.

mod listener;
mod serve;
mod tracker;
#[cfg(feature = "upgrade")]
pub mod upgrade;
mod workers;

pub use listener::Listener;
pub use serve::{Serve, Threads};
pub use tracker::{Tracked, Tracker};
