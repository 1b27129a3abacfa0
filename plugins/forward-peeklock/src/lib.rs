//! Forwards messages to a queue of another Peeklock, over the WebSocket protocol. A message is stored there
//! once, whatever is lost on the way and whichever broker is restarted.
//!
//! ```
//! # mod peeklock { pub use peeklock_core::*; pub use peeklock_forward_peeklock as forward_peeklock; }
//! use peeklock::contract::Forwarder as _;
//! use peeklock::forward_peeklock::{PeerConfig, PeerForwarder};
//!
//! let forwarder = PeerForwarder::new(PeerConfig::default());
//! assert!(forwarder.check("peeklock+wss://broker.example.com/orders").is_ok());
//! // Without TLS, and inside the network, only what the operator has named.
//! assert!(forwarder.check("peeklock+ws://10.0.0.7:5301/orders").is_err());
//! ```
//!
//! The counts of hops and of copies travel along, so that a circle of brokers ends like a circle of entities
//! (FWD-13, FWD-33). How a message is recognised is told in `docs/reference/websocket.md`, "Forwarding between
//! brokers"; what a user follows is `docs/reference/forwarding.md`. The files:
//!
//! | File | What |
//! |---|---|
//! | `config.rs` | what an operator sets, tokens among it |
//! | `target.rs` | what a destination says: broker and queue |
//! | `connector.rs` | connects where it may, with TLS |
//! | `verdict.rs` | what the other broker's answer means for the message |
//! | `route.rs` | one list after the other |
//!
//! Absent on purpose: several lists at a time. The other broker remembers what it has taken of late, and
//! order is kept by waiting for the answer.

mod config;
mod connector;
mod route;
mod target;
mod verdict;

pub use config::{PeerConfig, Token, TokenError};
#[doc(no_inline)]
pub use peeklock_reach::{HostError, HostPattern, Place, Reach, certificates};
pub use route::PeerForwarder;
