//! The HTTP transport on the wire: exact bytes of answers, and unusual input on sockets.
//!
//! Each test has its own broker and listener, and a client that writes raw bytes. The broker's
//! clock stands still unless a test advances it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "tests")]

mod wire {
    pub mod client;
    pub mod server;

    mod atom;
    mod atom_hostile;
    mod atom_rights;
    mod atom_rules;
    mod bounds;
    mod console;
    mod data_plane;
    mod deadline;
    mod errors;
    mod expected;
    mod hostile;
    mod json_api;
    mod lifecycle;
    mod lists;
    mod looking;
    mod matrix;
    mod operate;
    mod searching;
    mod secure;
    mod security;
    mod sign_in;
    mod signed;
    mod topics;
    mod watch;
}
