//! AMQP 1.0 for Peeklock.
pub mod codec;
pub mod connection;
pub mod error;
#[cfg(feature = "testing")]
pub mod exercise;
pub mod frame;
pub mod link;
pub mod performative;
pub mod sasl;
pub mod serial;
mod session;
pub mod state;
pub mod terminus;

#[cfg(test)]
mod testing;
