//! What extension authors implement.

pub mod authorizer;
pub mod browser;
pub mod forwarder;
pub mod transport;

pub use authorizer::{AllowAll, Authorizer, Principal, Right};
pub use forwarder::{Forwarder, Outgoing, Route, Source, Verdict};
pub use transport::{RunningTransport, Transport, TransportError};
