//! Sessions of a queue (spec file 11, EXP-40 to EXP-47, RTY-22 to RTY-25), on the machine itself
//! with a store in memory: each rule by its id, then long random runs against a model of only the
//! rules.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod accept;
mod count;
mod expire;
mod model;
mod oracle;
mod order;
mod restart;
mod retry;
mod stand;
mod state;
