//! What listeners do alike, whatever is spoken on their connections.
//!
//! ```text
//!  Listener ─► bind: who may be served there ─► accept: socket ─► a place ─► a thread in turn ─► Admission ─► Serve
//!                                                                                                    proxy, TLS  │
//!  stop: accepts no more ─► Tracker: all are told, and waited for ◄── counts ─────────────────────────────────────┘
//! ```
//!
//! | File | What |
//! |---|---|
//! | `listener.rs` | the address, and who may be served at it (SEC-17) |
//! | `accept.rs` | sockets and places for them |
//! | `proxy.rs`, `proxy/header.rs` | proxies that say for whom they speak (LIS-04) |
//! | `admission.rs` | from a socket to a stream |
//! | `serve.rs` | from a socket to its connection, and the end of all of them |
//! | `start.rs` | from the settings of a transport to its listener |
//! | `entrance.rs` | ways into transports for connections that another listener has accepted |
//! | `gateway.rs`, `gateway/opening.rs` | one port for everything: that of AMQP, and further ones (LIS-01) |
//! | `workers.rs` | the threads that connections live in |
//! | `tracker.rs` | how many there are, and whether they are to end |
//! | `places.rs` | places beside sockets, for the transports whose clients say who they are only when they are served |
//! | `idle.rs` | who makes room when all places are taken: who is idle |
//! | `crowd.rs` | who makes room when nobody is idle: the address with most places, or who has shown no key |
//! | `lookout.rs` | who has gone while nothing is read of it |
//! | `relayed.rs` | what tells that a request comes by a proxy (SEC-17) |
//! | `strangers.rs` | who is refused for where it comes from, in the log (SEC-23) |
//! | `upgrade.rs` | who may connect over WebSocket (SEC-23; feature `upgrade`) |
//! | `websocket.rs` | bounds on what the library of WebSocket buffers (feature `upgrade`) |
//!
//! A transport with threads of its own, as HTTP has them by its framework, takes the listener and the tracker and leaves
//! the rest. Absent on purpose: what a connection costs, and who makes room for whom, which each transport decides by what
//! it knows of its clients.

mod accept;
mod admission;
mod crowd;
mod entrance;
mod gateway;
mod idle;
mod listener;
mod lookout;
mod places;
mod proxy;
pub mod relayed;
mod serve;
mod start;
mod strangers;
mod tracker;
#[cfg(feature = "upgrade")]
pub mod upgrade;
#[cfg(feature = "upgrade")]
pub mod websocket;
mod workers;

pub use accept::{sockets, spare_sockets};
pub use admission::Admission;
pub use crowd::{Leaving, Member};
pub use entrance::{Attend, Enter, Entrance, Upgrade};
pub use gateway::{Entrances, Gateway, GatewayConfig, SharedPort};
pub use idle::Idling;
pub use listener::Listener;
pub use lookout::Lookout;
pub use places::{Newcomer, Place, Places};
pub use proxy::{NoSource, Proxies, Source};
pub use serve::{Serve, Threads};
pub use start::Start;
pub use strangers::Strangers;
pub use tracker::{Tracked, Tracker};
