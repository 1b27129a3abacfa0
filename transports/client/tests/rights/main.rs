//! Tests of every in-process operation with every set of rights. The expected results are written
//! down independently of the broker's table, from the specification.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hands;
mod lists;
mod matrix;
mod needs;
mod world;
