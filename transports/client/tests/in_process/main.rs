//! The in-process client against a broker, a module for each part of its interface.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../local/mod.rs"]
mod local;
#[path = "../log/mod.rs"]
mod log;

mod access;
mod actors;
mod consumers;
mod failures;
mod handles;
mod jobs;
mod rebuilt;
mod refused;
mod renewal;
mod requests;
mod session_consumer;
mod session_states;
mod session_workers;
mod simulation;
mod testing;
mod traces;
mod unreadable;
