//! Topics: a naive oracle next to real machines, shells, a tree and a store that crashes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect ends there"
)]

mod cost;
mod model;
mod oracle;
mod reached;
#[path = "../common/rules.rs"]
mod rules;
mod world;
