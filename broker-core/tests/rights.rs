//! The one door: what a principal may do is checked at every command, by one table, and ends when what was
//! granted ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod rights {
    pub mod commands;
    mod destinations;
    mod ends;
    mod lists;
    mod matrix;
    mod transactions;
    pub mod world;
}
