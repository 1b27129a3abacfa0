//! The listener, and the answers of a broker to the events of a
//! [`Connection`](crate::connection::Connection).
//!
//! ```text
//!  socket ─► reception ─► conversation ─► Connection ─► Event ─► attach, node ─► Links ─► entities
//!             websocket                                           settle                     │
//!  socket ◄────────────── conversation ◄─ Connection ◄─ deliver, node ◄─ Arrivals ◄─ Mailbox ┘
//!                                                         settle
//! ```
//!
//! [`AmqpTransport`] listens for AMQP and for AMQP over WebSocket. Each connection is a
//! `Conversation` in a task of its own, which stays on one thread. `node` has one file for each
//! kind of node that a link can be attached to. `peeklock-link` manages links, credit and locks, as
//! for all transports with links.
//!
//! Modules in reading order:
//!
//! - `listener`, `listener_state`, `reception`, `websocket`: accepting clients
//! - `conversation`, `turn`, `traffic`, `end`: the state of a connection, its loop and its end
//! - `login`, `identity`, `place`: authentication, tokens, and the place of a connection
//! - `requests`, `work`: from events to commands, and from answers to the client
//! - `attach`, `queue_session`, `node`: links
//! - `deliver`, `deleted`, `settle`, `settlement`, `outcomes`: deliveries and their settlement
//! - `transaction`, `group`, `book`: transactions
//!
//! Not supported, refused with `amqp:not-implemented`: durable subscriptions, and link filters
//! other than the session filter.

mod attach;
mod book;
mod config;
mod conversation;
mod deleted;
mod deliver;
mod end;
mod error;
mod group;
mod identity;
mod listener;
mod listener_state;
mod login;
mod node;
mod outcomes;
mod place;
mod queue_session;
mod reception;
mod requests;
mod settle;
mod settlement;
mod transaction;
mod turn;
mod websocket;
mod work;

pub use self::config::AmqpConfig;
pub use self::listener::AmqpTransport;
#[cfg(feature = "testing")]
pub use self::node::{decode_all, operations};
