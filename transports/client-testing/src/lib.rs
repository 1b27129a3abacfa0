//! Test kit for handlers: deliveries made by hand, a broker whose time stands still, and simulated worlds. Programs that
//! embed a broker find it in `peeklock::testing`.
//!
//! ```text
//!  TestDelivery ──► handler ──► Settlement                     one message, no broker
//!  TestClient ◄── handler                                      what it sent by then
//!  TestBroker: send ──► idle().await ──► look ──► advance(..)  what broker and handlers make of it together
//!  Simulation: many worlds, one for each seed                  what they make of crashes, delays and disorder
//! ```
//!
//! A handler that decides by its message alone is tested with [`TestDelivery`]: what is given to it by hand is settled as
//! a consumer would settle it, and [`Settlement`](peeklock_client::port::Settlement) says how. One that sends is given the client of a
//! [`TestClient`], which has a record of that. What comes of several messages,
//! of retries and of time is tested with [`TestBroker`]; nothing sleeps there. Whether a handler bears what can happen to
//! it is tried with [`Simulation`].

mod broker;
mod client;
mod delivery;
mod session;
mod simulation;

use peeklock_core::time::Timestamp;

pub use self::broker::TestBroker;
pub use self::client::{Sent, TestClient};
pub use self::delivery::TestDelivery;
pub use self::session::TestSession;
pub use self::simulation::{Failed, Mishap, Passed, Simulation, World};

/// The time at which tests begin: 2026-01-01.
pub(crate) const FIRST_INSTANT: Timestamp = Timestamp::from_unix_ms(1_767_225_600_000);
