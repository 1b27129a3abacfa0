//! Test kit for handlers: deliveries made by hand (`delivery`, `session`, `client`), a broker with
//! manual time (`broker`), and simulated worlds (`simulation`). Programs that embed a broker find it
//! in `peeklock::testing`.
//!
//! ```text
//!  TestDelivery ──► handler ──► Settlement                     one message, no broker
//!  TestClient ◄── handler                                      the messages that it sent
//!  TestBroker: send ──► idle().await ──► look ──► advance(..)  broker and handlers together
//!  Simulation: many worlds, one for each seed                  crashes, delays and disorder
//! ```
//!
//! Test a handler that decides by its message only with [`TestDelivery`]: its deliveries are settled as a consumer would
//! settle them, and [`Settlement`](peeklock_client::port::Settlement) is the result. Give a handler that sends the client of
//! a [`TestClient`], which records all sends. Test several messages, retries and time with [`TestBroker`], where nothing
//! sleeps, and crashes, delays and disorder with [`Simulation`].

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

/// Start time of tests: 2026-01-01.
pub(crate) const FIRST_INSTANT: Timestamp = Timestamp::from_unix_ms(1_767_225_600_000);
