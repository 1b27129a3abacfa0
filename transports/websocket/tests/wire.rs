//! The WebSocket transport on the wire, tested with a client that knows only the protocol.
//!
//! Each test has its own broker and listener. The broker's clock stands still unless a test
//! advances it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "tests")]

mod wire {
    pub mod client;
    pub mod server;

    mod apart;
    mod expected;
    mod flow;
    mod handshake;
    mod hostile;
    mod lifecycle;
    mod lists;
    mod matrix;
    mod places;
    mod ranges;
    mod resume;
    mod rights;
    mod sessions;
    mod topics;
    mod transactions;
}
