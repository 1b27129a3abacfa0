//! AMQP 1.0 for Peeklock.
pub mod codec;
pub mod error;
pub mod frame;
pub mod performative;
pub mod sasl;
pub mod state;
pub mod terminus;

#[cfg(test)]
mod testing;
