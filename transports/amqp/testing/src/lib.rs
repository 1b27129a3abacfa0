//! The client end of AMQP for tests and load generators: [`client`] has frames, windows and
//! requests of a client. With the feature `exercise`, `exercise` passes arbitrary bytes to each
//! parser of client input and checks the result.

pub mod client;
#[cfg(feature = "exercise")]
pub mod exercise;
