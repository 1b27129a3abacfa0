//! Access checks: one table decides for every command what a principal may do, and access ends with
//! its grant.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod rights {
    pub mod commands;
    mod destinations;
    mod ends;
    mod expected;
    mod lists;
    mod matrix;
    mod transactions;
    pub mod world;
}
