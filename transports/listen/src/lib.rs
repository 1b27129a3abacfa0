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
//! | `accept.rs` | sockets and permits for them |
//! | `proxy.rs`, `proxy/header.rs` | the PROXY protocol, by which proxies name their clients (LIS-04) |
//! | `admission.rs` | from a socket to a stream |
//! | `serve.rs` | from a socket to its connection, and the end of all connections |
//! | `start.rs` | from the settings of a transport to its listener |
//! | `entrance.rs` | ways into transports for connections that another listener has accepted |
//! | `gateway.rs`, `gateway/opening.rs` | one port for all protocols: the AMQP port, and further ones (LIS-01) |
//! | `workers.rs` | the threads that serve connections |
//! | `tracker.rs` | the number of connections, and whether they must end |
//! | `lookout.rs` | detects that a client has disconnected while nothing is read |
//! | `relayed.rs` | headers that show that a request passed a proxy (SEC-17) |
//! | `strangers.rs` | logs requests that are refused for their origin or host (SEC-23) |
//! | `upgrade.rs` | which clients may connect over WebSocket (SEC-23; feature `upgrade`) |
//! | `websocket.rs` | bounds on the buffers of the WebSocket library (feature `upgrade`) |
//!
//! A transport whose framework has its own threads, such as HTTP, uses only the listener and the
//! tracker. The number of connections, and the choice which client makes room, are not here: they
//! are the places of [`admission`](peeklock_core::admission). Each transport knows its cost of a
//! connection.

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
pub use proxy::{InvalidSource, Proxies, Source};
pub use serve::{Serve, Threads};
pub use start::ListenerStart;
pub use strangers::Strangers;
pub use tracker::{TrackGuard, Tracker};
