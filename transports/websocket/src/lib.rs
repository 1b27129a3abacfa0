//! WebSocket transport for Peeklock: pushed deliveries with credit, pipelined sends, settlement by
//! ranges, and conversations that continue over a new socket after one is lost. (Data path, step
//! 1.)
//!
//! `docs/reference/websocket.md` describes the protocol, and `frame` has the same as types. Read in
//! the order of the modules. [`WebSocketTransport`] listens; `handshake` judges an upgrade;
//! `connection` is a conversation with one client; `operation` has a file for each group of
//! operations, with their bodies, their work and their answers.
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
