//! Tests of handlers: deliveries made by hand, and a broker whose time stands still. (The feature `testing`.)
//!
//! ```text
//!  TestDelivery ──► handler ──► Settlement                     one message, no broker
//!  TestBroker: send ──► idle().await ──► look ──► advance(..)  what broker and handlers make of it together
//! ```
//!
//! A handler that decides by its message alone is tested with [`TestDelivery`]: what is given to it by hand is settled as
//! a consumer would settle it, and [`Settlement`](crate::port::Settlement) says how. What comes of several messages,
//! of retries and of time is tested with [`TestBroker`]; nothing sleeps there.

mod broker;
mod delivery;
mod session;

pub use self::broker::TestBroker;
pub use self::delivery::TestDelivery;
pub use self::session::TestSession;
