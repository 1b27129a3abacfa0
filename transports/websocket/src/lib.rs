//! WebSocket transport for Peeklock: pushed deliveries with credit, pipelined sends, settlement by
//! ranges, and conversations that continue over a new socket after one is lost. (Data path, step
//! 1.)
//!
//! `docs/reference/websocket.md` describes the protocol. The modules in reading order:
//!
//! | Module | Content |
//! |---|---|
//! | `config`, `error` | settings; errors, and closes with their codes |
//! | `listener`, `site` | [`WebSocketTransport`], and the state of a listener |
//! | `handshake` | judges an upgrade |
//! | `metered`, `progress`, `unwritten` | below the library: bounds, pace, frames in pieces |
//! | `frame` | the protocol as types, in JSON and binary form |
//! | `connection` | a conversation with one client: open, read, carry out, write, resume, end |
//! | `operation` | a file for each group of operations: bodies, work, answers |
//! | `client`, `js` | the clients for Rust and for browsers |
//!
//! Two things are absent on purpose: compression, which a proxy in front can provide, and the
//! meaning of operations, which belongs to the broker.

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
