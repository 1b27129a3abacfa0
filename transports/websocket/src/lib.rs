//! WebSocket for Peeklock: pushed deliveries with credit, pipelined sends, settlement by ranges, and
//! conversations that go on over a new socket when one is lost. (Data path, step 1.)
//!
//! The protocol is written down in `docs/reference/websocket.md`; `frame` is the same as types. Read
//! in the order of the modules. [`WebSocketTransport`] listens; `handshake` judges an upgrade;
//! `connection` is a conversation with one client; `operation` has a file for each thing that is asked for
//! in it, with its form, what it does, and its answer.
//!
//! Absent on purpose: compression, which a proxy in front provides; what any operation means.

mod config;
mod error;
mod listener;
mod site;

mod handshake;
mod metered;
mod progress;
mod unwritten;

mod frame;

mod connection;

mod operation;

#[cfg(feature = "client")]
pub mod client;
pub mod js;
#[cfg(feature = "testing")]
pub mod testing;

pub use config::WebSocketConfig;
pub use frame::Encoding;
pub use listener::WebSocketTransport;
