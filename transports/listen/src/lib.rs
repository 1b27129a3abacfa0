//! Parts that all listeners share, independent of the protocol of their connections.
//!
//! ```text
//!  Listener ─► bind: check anonymous access ──► accept: socket ─► a place ─► a thread in turn ─► Admission ─► Serve
//!                                                                                                    proxy, TLS  │
//!  stop: accepts no more ─► Tracker: asks all to end, then waits ◄─── counts ─────────────────────────────────────┘
//! ```
//!
//! | File | Responsibility |
//! |---|---|
//! | `listener.rs` | the address, and whether anonymous clients may be served there (SEC-17) |
//! | `accept.rs` | sockets and places for them |
//! | `proxy.rs`, `proxy/header.rs` | the PROXY protocol, by which proxies name their clients (LIS-04) |
//! | `admission.rs` | from a socket to a stream |
//! | `serve.rs` | from a socket to its connection, and the end of all connections |
//! | `start.rs` | from the settings of a transport to its listener |
//! | `entrance.rs` | ways into transports for connections that another listener has accepted |
//! | `gateway.rs`, `gateway/opening.rs` | one port for everything: that of AMQP, and further ones (LIS-01) |
//! | `workers.rs` | the threads that connections live in |
//! | `tracker.rs` | how many there are, and whether they are to end |
//! | `lookout.rs` | who has gone while nothing is read of it |
//! | `relayed.rs` | what tells that a request comes by a proxy (SEC-17) |
//! | `strangers.rs` | who is refused for where it comes from, in the log (SEC-23) |
//! | `upgrade.rs` | who may connect over WebSocket (SEC-23; feature `upgrade`) |
//! | `websocket.rs` | bounds on what the library of WebSocket buffers (feature `upgrade`) |
//!
//! A transport with threads of its own, as HTTP has them by its framework, takes the listener and the tracker and leaves
//! the rest. Absent on purpose: the number of connections and who makes room for whom, which are the places of
//! [`admission`](peeklock_core::admission), and the cost of a connection, which its transport knows.

mod accept;
mod admission;
mod entrance;
mod gateway;
mod listener;
mod lookout;
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

pub use admission::Admission;
pub use entrance::{Attend, Enter, Entrance, Upgrade};
pub use gateway::{Entrances, Gateway, GatewayConfig, SharedPort};
pub use listener::Listener;
pub use lookout::Lookout;
pub use proxy::{NoSource, Proxies, Source};
pub use serve::{Serve, Threads};
pub use start::Start;
pub use strangers::Strangers;
pub use tracker::{Tracked, Tracker};
