//! The HTTP transport on the wire: exactly these bytes, and whatever else a socket may bring.
//!
//! Every test has a broker and a listener of its own, and a client that writes raw bytes. The
//! broker's clock stands still unless a test moves it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "tests")]

mod wire {
    pub mod client;
    pub mod server;

    mod atom;
    mod atom_hostile;
    mod atom_rights;
    mod atom_rules;
    mod bounds;
    mod data_plane;
    mod deadline;
    mod errors;
    mod expected;
    mod hostile;
    mod json_api;
    mod lifecycle;
    mod lists;
    mod matrix;
    mod secure;
    mod security;
    mod signed;
    mod topics;
}
