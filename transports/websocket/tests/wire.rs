//! The WebSocket transport on the wire, spoken to by a client that knows only the protocol.
//!
//! Every test has a broker and a listener of its own. The broker's clock stands still unless a test
//! moves it.
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
