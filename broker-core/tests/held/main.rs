//! Sessions that are held, each by an actor of its own (DESIGN D3): its inlet and its turns, its timer, and
//! every way in which it ends. On a broker with one arbiter and a store behind a switch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod end;
mod failure;
mod many;
mod order;
mod stand;
mod subscription;
#[path = "../common/switched.rs"]
mod switched;
mod time;
