//! The Rust client: it survives the loss of its connection, and its handles behave like those of a
//! client in process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod client {
    mod log;
    pub mod proxy;
    pub mod server;

    mod consumers;
    mod handles;
    mod hostile;
    mod loss;
    mod requests;
    mod secure;
}
