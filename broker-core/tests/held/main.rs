//! Held sessions, each with an actor of its own (DESIGN D3): its inlet, turns and timer, and every
//! way in which it ends. The broker has one arbiter and a store with switchable faults.

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
