//! Access checks: one table has the rights that each command requires, and access ends with its
//! grant.
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
