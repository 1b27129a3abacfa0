//! The listener, and what answers the events of a [`Connection`](crate::connection::Connection) with a
//! broker.
//!
//! ```text
//!   socket ─► reception ─► conversation ─► Connection ─► Event ─► login, attach, node/*, settle ─► Links ─► entities
//!               websocket       │
//!   socket ◄──────────── conversation ◄─ Connection ◄─ deliver, settle, node/*  ◄─ Arrivals ◄─ Mailbox ◄────┘
//! ```
//!
//! [`AmqpTransport`] listens, for AMQP and for AMQP over WebSocket; each connection is one conversation, in one task of one thread. `node` has one
//! file for each kind of thing that a link can be attached to. Links, credit and locks are kept
//! by `peeklock-link`, as for the other transports with links.
//!
//! Refused with `amqp:not-implemented`: durable subscriptions, filters beside that for a session.

mod attach;
mod book;
mod config;
mod conversation;
mod deliver;
mod end;
mod error;
mod flow;
mod group;
mod identity;
mod listener;
mod login;
mod node;
mod outcomes;
mod place;
mod reception;
mod removed;
mod requests;
mod session;
mod settle;
mod settlement;
mod site;
mod transaction;
mod turn;
mod websocket;
mod work;

pub use self::config::AmqpConfig;
pub use self::listener::AmqpTransport;
#[cfg(feature = "testing")]
pub use self::node::{operations, understand};
