//! What extension authors implement.

pub mod authorizer;
pub mod browser;
pub mod transport;

pub use authorizer::{AllowAll, Authorizer, Principal, Right};
pub use transport::{RunningTransport, Transport, TransportError};
