//! The listener, and what answers the events of a [`Connection`](crate::connection::Connection) with a
//! broker.
//!
//! ```text
//!   socket ─► conversation ─► Connection ─► Event ─► login, attach, node/*, settle ─► Links ─► entities
//!   socket ◄─ conversation ◄─ Connection ◄─ deliver, settle, node/*  ◄─ Arrivals ◄─ Mailbox ◄────┘
//! ```
//!
//! [`AmqpTransport`] listens; each connection is one conversation, in one task of one thread. `node` has one
//! file for each kind of thing that a link can be attached to. Links, credit and locks are kept
//! by `peeklock-link`, as for the other transports with links.
//!
//! Served so far: SASL, `$cbs`, sending, receiving under lock and receiving for good, settling.
//! Refused with `amqp:not-implemented`: sessions, `$management`, transactions, sending by way of another
//! entity.

mod attach;
mod config;
mod conversation;
mod deliver;
mod end;
mod error;
mod listener;
mod login;
mod node;
mod settle;
mod site;
mod turn;

pub use self::config::AmqpConfig;
pub use self::listener::AmqpTransport;
