//! Helpers that several test binaries use.

pub mod http;
