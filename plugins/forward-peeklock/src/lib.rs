//! Forwarder to a queue of another Peeklock broker, over the WebSocket protocol. The other broker
//! stores each message exactly once, even if connections are lost or either broker restarts.
//!
//! ```
//! # mod peeklock { pub use peeklock_core::*; pub use peeklock_forward_peeklock as forward_peeklock; }
//! use peeklock::contract::Forwarder as _;
//! use peeklock::forward_peeklock::{PeerConfig, PeerForwarder};
//!
//! let forwarder = PeerForwarder::new(PeerConfig::default());
//! assert!(forwarder.check("peeklock+wss://broker.example.com/orders").is_ok());
//! // Hosts without TLS or inside the network must be permitted by the operator.
//! assert!(forwarder.check("peeklock+ws://10.0.0.7:5301/orders").is_err());
//! ```
//!
//! The counts of hops and of copies are sent with the message, so that a circle of brokers ends
//! like a circle of entities (FWD-13, FWD-33). `docs/reference/websocket.md`, "Forwarding between
//! brokers", describes how the other broker recognises a message; `docs/reference/forwarding.md` is
//! the user documentation. The files:
//!
//! | File | Content |
//! |---|---|
//! | `config.rs` | settings, including tokens |
//! | `target.rs` | parsing of a destination: broker and queue |
//! | `connector.rs` | connections to permitted hosts, with TLS |
//! | `verdict.rs` | verdicts for the other broker's answers |
//! | `route.rs` | sends lists one after another |
//!
//! Deliberately absent: several lists at a time. The other broker remembers only recent messages,
//! and waiting for each answer keeps the order.

mod config;
mod connector;
mod route;
mod target;
mod verdict;

pub use config::{PeerConfig, Token, TokenError};
#[doc(no_inline)]
pub use peeklock_reach::{HostError, HostPattern, Place, Reach, certificates};
pub use route::PeerForwarder;
