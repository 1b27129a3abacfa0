//! What several test binaries use.

pub mod http;
