//! The other end of AMQP, for tests and loads: [`client`] has frames, windows and requests of a client. With the feature
//! `exercise`, `exercise` gives any bytes to each part that takes bytes of clients, and checks the result.

pub mod client;
#[cfg(feature = "exercise")]
pub mod exercise;
